package collect_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/collect"
)

// BenchmarkCollect collects DGX H100s with names and GUIDs of their own into a folder and puts them
// together, 100 at a time:
//
//	go test ./internal/fleet/collect -run X -bench Collect -benchtime 10x
func BenchmarkCollect(b *testing.B) {
	text := strings.ReplaceAll(string(document(b, "dgx-h100")), `"origin":"fixture:dgx-h100"`, `"origin":"live"`)
	const many = 100
	var list []collect.Source
	size := 0
	for i := range many {
		data := []byte(strings.NewReplacer("a088:c203", fmt.Sprintf("%04x:c203", 0x1000+i), `"name":"dgx-h100"`, fmt.Sprintf(`"name":"n%d"`, i)).Replace(text))
		size += len(data)
		list = append(list, collect.Source{Name: fmt.Sprint("n", i), From: "file", Read: func(context.Context) ([]byte, error) { return bytes.Clone(data), nil }})
	}
	store, err := collect.OpenStore(b.TempDir(), write)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	written := 0
	for b.Loop() {
		hosts, err := collect.Run(b.Context(), each(list...), collect.Options{Decode: decode, Store: store})
		if err != nil {
			b.Fatal(err)
		}
		f, err := fleet.Build(hosts, nil)
		if err != nil {
			b.Fatal(err)
		}
		data, err := f.Encode()
		if err != nil {
			b.Fatal(err)
		}
		written = len(data)
	}
	b.ReportMetric(float64(written)/many, "document-B/host")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/many, "µs/host")
}

package fleet_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/fleet"
	"github.com/topoctl/topoctl/internal/base/fixturetest"
)

func BenchmarkSummarize(b *testing.B) {
	t := fixturetest.Topology(b, "dgx-h100")
	data, err := t.Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if _, err := topo.Decode(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("summarize", func(b *testing.B) {
		for b.Loop() {
			if _, err := fleet.Summarize("n1", t); err != nil {
				b.Fatal(err)
			}
		}
	})
}

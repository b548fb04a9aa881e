package picture

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/topoctl/topoctl/discover/topo"
)

// FuzzDraw draws any document that can be read: no panic, no endless tree, no
// control character.
func FuzzDraw(f *testing.F) {
	for _, m := range []machine{twoSockets(), troubled(), asserted(), newMachine("", 0)} {
		m.Derive()
		data, err := m.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		host, err := topo.Decode(data)
		if err != nil {
			return
		}
		var b bytes.Buffer
		for _, opts := range []TreeOptions{{}, {All: true, ASCII: true, Width: 40}} {
			if err := Tree(&b, host, opts); err != nil {
				t.Fatal(err)
			}
		}
		axis := []topo.Kind{topo.KindGPU, topo.KindNIC, topo.KindNUMA}
		for _, view := range []MatrixView{ViewClass, ViewNCCL, ViewExpected, ViewMeasured, ViewDelta} {
			for _, format := range []Format{FormatText, FormatCSV, FormatMarkdown} {
				if err := Matrix(&b, host.Matrix(axis, axis), MatrixOptions{View: view, Format: format, Host: host}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if i := strings.IndexFunc(b.String(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); i >= 0 {
			t.Errorf("a control character: %q", b.String()[max(0, i-40):i+1])
		}
	})
}

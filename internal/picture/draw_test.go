package picture

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

func TestTree(t *testing.T) {
	tests := []struct {
		golden string
		host   machine
		opts   TreeOptions
	}{
		{"two-sockets.tree.txt", twoSockets(), TreeOptions{}},
		{"troubled.tree.txt", troubled(), TreeOptions{}},
		{"troubled-all.tree.txt", troubled(), TreeOptions{All: true}},
		{"troubled-gpu.tree.txt", troubled(), TreeOptions{Only: []topo.Kind{topo.KindGPU}, ASCII: true, Units: units.Gbit}},
		{"troubled-narrow.tree.txt", troubled(), TreeOptions{Width: 60, ASCII: true}},
		{"troubled-color.tree.txt", troubled(), TreeOptions{Color: true}},
		{"asserted.tree.txt", asserted(), TreeOptions{}},
		{"empty.tree.txt", newMachine("", 0), TreeOptions{}},
	}
	for _, tt := range tests {
		t.Run(tt.golden, func(t *testing.T) {
			tt.host.Derive()
			var b bytes.Buffer
			if err := Tree(&b, tt.host.Topology, tt.opts); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+tt.golden, b.Bytes())
		})
	}
}

// A data direct function is named where it is no part of its NIC's slot.
func TestDataDirect(t *testing.T) {
	for slot, want := range map[uint8]bool{0: false, 1: true} {
		top := fixturetest.Topology(t, "hgx-h100-8nic")
		d := *topo.NewIndex(top).PCIDevice("pci:0000:19:00.0")
		d.BDF.Device, d.BDF.Func, d.Class, d.Device = slot, 1, "0x080100", "0x2100"
		d.ID = topo.PCIID(d.BDF)
		top.PCIDevices = append(top.PCIDevices, d)
		top.Derive()
		var b strings.Builder
		if err := Tree(&b, top, TreeOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "data direct function of a NIC"); got != want {
			t.Errorf("device %d: %v, want %v", slot, got, want)
		}
	}
}

func TestTreeWidth(t *testing.T) {
	m := troubled()
	m.Derive()
	for _, limit := range []int{1, 10, 40, 79, 120} {
		for _, color := range []bool{false, true} {
			var b bytes.Buffer
			if err := Tree(&b, m.Topology, TreeOptions{Width: limit, Color: color}); err != nil {
				t.Fatal(err)
			}
			for l := range strings.Lines(b.String()) {
				if n := text.Width(strings.TrimRight(stripColor(l), "\n")); n > limit && limit >= 40 {
					t.Errorf("width %d: a line of %d cells: %q", limit, n, l)
				}
			}
		}
	}
}

func stripColor(s string) string {
	for {
		i := strings.Index(s, "\x1b[")
		if i < 0 {
			return s
		}
		j := strings.IndexByte(s[i:], 'm')
		s = s[:i] + s[i+j+1:]
	}
}

// Colour must add nothing but escape codes.
func TestColorCarriesNoMeaning(t *testing.T) {
	m := troubled()
	m.Derive()
	var mono, color bytes.Buffer
	if err := errors.Join(Tree(&mono, m.Topology, TreeOptions{}), Tree(&color, m.Topology, TreeOptions{Color: true})); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(mono.String(), stripColor(color.String())); diff != "" {
		t.Errorf("the text differs (-mono +color):\n%s", diff)
	}
	if !strings.Contains(color.String(), "\x1b[31m") {
		t.Error("nothing is red on a host full of trouble")
	}
}

// measure makes up measurements: a little less than expected, a little more, none.
func measure(m *topo.Matrix) {
	m.Measured = make([][]*topo.Rate, len(m.Rows))
	for i := range m.Rows {
		for j, rate := range m.Rate[i] {
			m.Measured[i] = append(m.Measured[i], nil)
			if rate != nil && (i+j)%3 != 0 {
				v := *rate * topo.Rate(90+10*(i+j)%25) / 100
				m.Measured[i][j] = &v
			}
		}
	}
}

// Documents come from anywhere: a cycle of parents, a function that is its own
// parent, devices whose function is missing.
func TestTreeHostile(t *testing.T) {
	m := newMachine("\x1b]0;owned\x07", 1)
	a := m.pci("01:00.0", topo.PCIID(bdf("02:00.0")), classBridge, nil).ID
	m.pci("02:00.0", a, classBridge, nil)
	m.pci("03:00.0", topo.PCIID(bdf("03:00.0")), classNetwork, nil)
	m.gpu("04:00.0", topo.PCIID(bdf("77:00.0")), nil)
	m.gpu("05:00.0", "", nil)
	m.RDMADevices = append(m.RDMADevices, topo.RDMADevice{Node: topo.Node{ID: "rdma:x"}, Name: strings.Repeat("\x1b[2J", 1000), PCI: "pci:none"})
	m.Derive()
	for _, all := range []bool{false, true} {
		var b bytes.Buffer
		if err := Tree(&b, m.Topology, TreeOptions{All: all}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"GPU0", "GPU1"} {
			if !strings.Contains(b.String(), name) {
				t.Errorf("all=%v: %s is not in the tree:\n%s", all, name, b.String())
			}
		}
		if strings.ContainsAny(b.String(), "\x1b\x07") || !strings.Contains(b.String(), strings.Repeat(`\x1b[2J`, maxText/7-1)) || strings.Contains(b.String(), strings.Repeat(`\x1b[2J`, maxText/7)) {
			t.Errorf("all=%v: control characters reach the terminal, or a name is not cut: %q", all, b.String())
		}
	}
}

func TestMatrix(t *testing.T) {
	gpuNIC := []topo.Kind{topo.KindGPU, topo.KindNIC}
	type test struct {
		golden string
		host   machine
		rows   []topo.Kind
		cols   []topo.Kind
		opts   MatrixOptions
		noHost bool
	}
	tests := []test{
		{golden: "two-sockets.matrix.txt", host: twoSockets(), rows: gpuNIC, cols: gpuNIC},
		{golden: "two-sockets-nccl.matrix.txt", host: twoSockets(), rows: gpuNIC, cols: gpuNIC, opts: MatrixOptions{View: ViewNCCL}, noHost: true},
		{golden: "two-sockets-expected.matrix.txt", host: twoSockets(), rows: gpuNIC, cols: []topo.Kind{topo.KindNIC, topo.KindNUMA},
			opts: MatrixOptions{View: ViewExpected}, noHost: true},
		{golden: "two-sockets.matrix.md", host: twoSockets(), rows: []topo.Kind{topo.KindGPU}, cols: gpuNIC, opts: MatrixOptions{Format: FormatMarkdown}},
		{golden: "two-sockets.matrix.csv", host: twoSockets(), rows: []topo.Kind{topo.KindNUMA}, cols: gpuNIC, opts: MatrixOptions{Format: FormatCSV}},
		{golden: "two-sockets-expected.matrix.csv", host: twoSockets(), rows: []topo.Kind{topo.KindGPU}, cols: []topo.Kind{topo.KindNIC},
			opts: MatrixOptions{Format: FormatCSV, View: ViewExpected, Units: units.Gbit}, noHost: true},
		{golden: "two-sockets-color.matrix.txt", host: twoSockets(), rows: gpuNIC, cols: gpuNIC, opts: MatrixOptions{Color: true}},
		{golden: "troubled.matrix.txt", host: troubled(), rows: gpuNIC, cols: gpuNIC},
		{golden: "troubled-expected.matrix.txt", host: troubled(), rows: gpuNIC, cols: gpuNIC, opts: MatrixOptions{View: ViewExpected}, noHost: true},
		{golden: "asserted.matrix.txt", host: asserted(), rows: gpuNIC, cols: gpuNIC},
		{golden: "empty.matrix.txt", host: newMachine("", 0), rows: gpuNIC, cols: gpuNIC},
	}
	for _, view := range []MatrixView{ViewMeasured, ViewDelta} {
		tests = append(tests, test{golden: "two-sockets-" + string(view) + ".matrix.txt", host: twoSockets(), rows: gpuNIC, cols: gpuNIC, opts: MatrixOptions{View: view}, noHost: true},
			test{golden: "two-sockets-" + string(view) + ".matrix.csv", host: twoSockets(), rows: gpuNIC, cols: gpuNIC, opts: MatrixOptions{View: view, Format: FormatCSV}, noHost: true})
	}
	for _, tt := range tests {
		t.Run(tt.golden, func(t *testing.T) {
			tt.host.Derive()
			if !tt.noHost {
				tt.opts.Host = tt.host.Topology
			}
			m := tt.host.Matrix(tt.rows, tt.cols)
			if tt.opts.View == ViewMeasured || tt.opts.View == ViewDelta {
				measure(m)
			}
			var b bytes.Buffer
			if err := Matrix(&b, m, tt.opts); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+tt.golden, b.Bytes())
		})
	}
}

// Names come from foreign files.
func TestMatrixHostileNames(t *testing.T) {
	m := asserted()
	m.RDMADevices[0].Name = "=cmd|' /C calc'!A0\x1b[2J"
	m.Derive()
	axis := []topo.Kind{topo.KindGPU, topo.KindNIC}
	for _, format := range []Format{FormatText, FormatMarkdown, FormatCSV, FormatTSV} {
		var b bytes.Buffer
		if err := Matrix(&b, m.Matrix(axis, axis), MatrixOptions{Format: format}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Errorf("%s: a control character reaches the terminal: %q", format, b.String())
		}
		if format == FormatCSV && (strings.Contains(b.String(), ",=cmd") || strings.Contains(b.String(), "\n=cmd")) {
			t.Errorf("a spreadsheet would run a name as a formula:\n%s", b.String())
		}
		if format == FormatMarkdown && strings.Contains(b.String(), "=cmd|") {
			t.Errorf("a name breaks the table:\n%s", b.String())
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrors(t *testing.T) {
	m := twoSockets()
	m.Derive()
	axis := []topo.Kind{topo.KindGPU}
	want := map[string]error{"draw: write the tree: disk full": Tree(brokenWriter{}, m.Topology, TreeOptions{}),
		"diagram: write SVG: disk full": SVG(brokenWriter{}, m.Topology, Options{}), "diagram: write DOT: disk full": DOT(brokenWriter{}, m.Topology, Options{}),
		"draw: write the matrix: disk full": Matrix(brokenWriter{}, m.Matrix(axis, axis), MatrixOptions{})}
	for text, err := range want {
		if err == nil || err.Error() != text {
			t.Errorf("%v, want %s", err, text)
		}
	}
}

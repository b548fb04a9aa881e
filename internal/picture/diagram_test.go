package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/importtest"
)

func svg(t testing.TB, host *topo.Topology, o Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := SVG(&b, host, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func dot(t testing.TB, host *topo.Topology, o Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := DOT(&b, host, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The pictures as they were reviewed: of sound hosts, and with marks where a link or a port is not.
func TestGolden(t *testing.T) {
	for _, name := range []string{"a10-2nic", "dgx-h100", "b300-16nic", "dgx-h100-gpu2-x8", "dgx-h100-nic-gen1", "dgx-h100-port-down"} {
		t.Run(name, func(t *testing.T) {
			host := fixturetest.Topology(t, name)
			golden.Check(t, "testdata/"+name+".svg", svg(t, host, Options{}))
			golden.Check(t, "testdata/"+name+".dot", dot(t, host, Options{}))
		})
	}
}

// image is what an SVG shows, as a reader of XML finds it.
type image struct {
	texts   []string // what is written
	titles  []string // what is shown on hover
	classes map[string]int
	style   string
}

// parse reads an SVG and refuses what is not well-formed or leads elsewhere.
func parse(data []byte) (*image, error) {
	d := xml.NewDecoder(bytes.NewReader(data))
	d.Strict = true
	out := &image{classes: map[string]int{}}
	var open []string
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			open = append(open, tok.Name.Local)
			if !slices.Contains([]string{"svg", "title", "desc", "style", "rect", "g", "text", "path"}, tok.Name.Local) {
				return nil, fmt.Errorf("element %s", tok.Name.Local)
			}
			for _, a := range tok.Attr {
				switch a.Name.Local {
				case "class":
					for c := range strings.FieldsSeq(a.Value) {
						out.classes[c]++
					}
				case "href", "src", "onload", "onclick":
					return nil, fmt.Errorf("attribute %s", a.Name.Local)
				}
			}
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) == 0 {
				continue
			}
			switch s := string(tok); open[len(open)-1] {
			case "text":
				out.texts = append(out.texts, s)
			case "title", "desc":
				out.titles = append(out.titles, s)
			case "style":
				out.style += s
			}
		}
	}
	return out, nil
}

func mustParse(t testing.TB, data []byte) *image {
	t.Helper()
	out, err := parse(data)
	if err != nil {
		t.Fatalf("the SVG cannot be read: %v", err)
	}
	return out
}

// Every GPU and every matrix NIC of every host is in the scene exactly once,
// and both formats show it: by its name, or, where a box stands for many, by a
// row with the first and the last name and their count. The SVG names all of
// them on hover.
func TestEveryDeviceIsShown(t *testing.T) {
	all := hosts(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		host := all[name]
		t.Run(name, func(t *testing.T) {
			want := append(host.MatrixAxis(topo.KindGPU), host.MatrixAxis(topo.KindNIC)...)
			at := map[topo.ID]*node{}
			s := newScene(host, Options{})
			for _, p := range s.parts() {
				p.walk(func(n *node) {
					for _, id := range n.stands {
						if at[id] != nil {
							t.Errorf("%s is in %s and %s", id, at[id].what(), n.what())
						}
						at[id] = n
					}
				})
			}
			picture, graph := mustParse(t, svg(t, host, Options{})), string(dot(t, host, Options{}))
			for _, id := range want {
				label := labelOf(host, id)
				n := at[id]
				if n == nil {
					t.Errorf("%s is not shown", id)
					continue
				}
				if n.id == id && n.rows[0].left == label {
					if !slices.Contains(picture.texts, label) || !strings.Contains(graph, label) {
						t.Errorf("%s: %q is not in both formats", id, label)
					}
					continue
				}
				checkGroup(t, n, label, picture, graph)
			}
		})
	}
}

func labelOf(host *topo.Topology, id topo.ID) string {
	rows := host.Matrix([]topo.Kind{topo.KindGPU, topo.KindNIC}, nil).Rows
	return rows[slices.IndexFunc(rows, func(e topo.MatrixEntry) bool { return e.ID == id })].Name
}

// checkGroup: a box that stands for many tells the range and the count, and
// names the device on hover.
func checkGroup(t *testing.T, n *node, label string, picture *image, graph string) {
	t.Helper()
	var names []string
	for _, id := range n.stands {
		names = append(names, id.Name())
	}
	slices.SortFunc(names, topo.NaturalCompare)
	text := ""
	for _, r := range n.rows {
		text += r.left + " " + r.right + " "
		if !slices.Contains(picture.texts, r.left) || !strings.Contains(graph, r.left) {
			t.Errorf("%s: row %q is not in both formats", n.what(), r.left)
		}
	}
	members := names
	if strings.Contains(text, " VF") { // the box has a name of its own, and counts its virtual functions
		members = slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == n.id.Name() })
	}
	if !strings.Contains(text, span(members)) || !strings.Contains(text, strconv.Itoa(len(members))) {
		t.Errorf("%s: %q does not tell of %d devices, %s", n.what(), text, len(members), span(members))
	}
	if !slices.ContainsFunc(picture.titles, func(s string) bool { return slices.Contains(strings.Split(s, "\n"), label) }) {
		t.Errorf("%s: nothing names %s on hover", n.what(), label)
	}
}

// What a reader finds in the picture of some hosts.
func TestShows(t *testing.T) {
	tests := []struct {
		name  string
		host  *topo.Topology
		want  []string
		not   []string
		units units.System
	}{
		{"NVSwitches are a bar", fixturetest.Topology(t, "dgx-h100"), []string{"NVLink x18 to each of 8 GPUs through NVSwitches · ~370.8 GB/s per GPU", "UPI between socket 0 and socket 1 · ~22.0 GB/s", "4 NVSwitches"}, nil, ""},
		{"a mesh stands in the boxes", fixturetest.Topology(t, "mi300x-8nic"), []string{"xGMI x1: GPU 1-7", "xGMI x1: GPU 0, 2-7", "~48.0 GB/s"}, nil, ""},
		{"a partial mesh stands in the boxes", fixturetest.Topology(t, "v100-8gpu"), []string{"NVLink x2: GPU 3, 4", "NVLink x1: GPU 1, 2", "~40.0 GB/s"}, nil, ""},
		{"pairs", fixturetest.Topology(t, "h100-nvl-8gpu-2nic"), []string{"NVLink x12: GPU 1", "NVLink x12: GPU 0"}, nil, ""},
		{"C2C, and sockets in a bar", fixturetest.Topology(t, "gh200-4gpu"), []string{"C2C x10", "450.0 GB/s", "CPU link between 6 pairs of NUMA nodes · unknown rate", "hsn0", "200 Gb/s"}, nil, ""},
		{"virtual functions are counted", fixturetest.Topology(t, "sriov-pf-vf"), []string{"4 VFs: mlx5_2 .. mlx5_5"}, []string{"mlx5_3"}, ""},
		{"NICs alike are one box", fixturetest.Topology(t, "aws-p5-44nic-synthetic"), []string{"rdmap67s0 .. rdmap71s0", "5 NICs · EFA · ACTIVE", "each gen3 x16 · 15.8 GB/s", "?"}, []string{"rdmap68s0"}, ""},
		{"a bond names its legs", fixturetest.Topology(t, "bonds"), []string{"bond0: rdma0a + rdma0b", "bond0 .. bond7", "vlan 200 on bond0"}, []string{"rdma0b", "no interface"}, ""},
		{"NUMA nodes in sockets", fixturetest.Topology(t, "epyc-nps4"), []string{"NUMA 7", "socket 1", "xGMI between 16 pairs of NUMA nodes · ~16.0 GB/s"}, nil, ""},
		{"NUMA nodes whose sockets are not known", noSockets(t, "epyc-nps4"), []string{"NUMA 7", "NUMA link between 16 pairs of NUMA nodes · ~16.0 GB/s"}, []string{"xGMI between 16 pairs of NUMA nodes · ~16.0 GB/s", "socket 1"}, ""},
		{"software stands apart", fixturetest.Topology(t, "lab-softrdma"), []string{"software and virtual devices", "siw0", "NUMA node unknown", "mgmt"}, nil, ""},
		{"slow interfaces are small", fixturetest.Topology(t, "cpu-2eth"), []string{"eno1", "1 Gb/s", "nvme0"}, nil, ""},
		{"a slot below the NIC's ability", fixturetest.Variant(t, "a10-2nic", "{change: 0000:1a:00.0, link: gen5x16}"), []string{"gen4 x16 · 31.5 GB/s", "device: gen5 x16"}, nil, ""},
		{"an unknown state is told", fixturetest.Topology(t, "dgx-h100-missing-files"), []string{"InfiniBand · state ?", "incomplete: some of the host could not be read"}, nil, ""},
		{"a GPU's memory is no NUMA node of its own", &topo.Topology{NUMANodes: []topo.NUMANode{
			{Node: topo.Node{ID: topo.NUMAID(0)}}, {Node: topo.Node{ID: topo.NUMAID(4)}, Index: 4, Owner: "gpu:0"}}}, []string{"NUMA 0"}, []string{"NUMA 4"}, ""},
		{"classes that the text of nvidia-smi states", importtest.Hosts(t)["a800-8gpu-8bond"],
			[]string{"NVLink x8 to each of 8 GPUs through NVSwitches · unknown rate", "PIX: mlx5_bond_0, mlx5_bond_1", "mlx5_bond_0 .. mlx5_bond_7", "8 NICs"}, nil, ""},
		{"other units", fixturetest.Topology(t, "a10-2nic"), []string{"gen4 x16 · 29.3 GiB/s", "11.6 GiB/s", "UPI between socket 0 and socket 1 · ~9.3 GiB/s"}, nil, units.Gibyte},
		{"nothing", &topo.Topology{}, []string{"host", "nothing was found"}, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			picture := mustParse(t, svg(t, tt.host, Options{Units: tt.units}))
			for _, want := range tt.want {
				if !slices.Contains(picture.texts, want) {
					t.Errorf("%q is missing in\n%s", want, strings.Join(picture.texts, "\n"))
				}
			}
			for _, not := range tt.not {
				if slices.Contains(picture.texts, not) {
					t.Errorf("%q is shown", not)
				}
			}
		})
	}
}

// noSockets is a fixture of which the sockets are not known.
func noSockets(t *testing.T, name string) *topo.Topology {
	t.Helper()
	top := fixturetest.Topology(t, name)
	top.Packages = nil
	for i := range top.NUMANodes {
		top.NUMANodes[i].Package = nil
	}
	top.Derive()
	return top
}

func TestThemes(t *testing.T) {
	host := fixturetest.Topology(t, "a10-2nic")
	const media = "prefers-color-scheme: dark"
	for _, tt := range []struct {
		theme       Theme
		fill        string
		alsoPrefers bool
	}{{"", light.background, true}, {ThemeAuto, light.background, true}, {ThemeLight, light.background, false}, {ThemeDark, dark.background, false}} {
		out := string(svg(t, host, Options{Theme: tt.theme}))
		if !strings.Contains(out, `<rect class="tc-page" fill="`+tt.fill+`"`) || strings.Contains(out, media) != tt.alsoPrefers {
			t.Errorf("theme %q: background or media query is wrong", tt.theme)
		}
	}
	err := SVG(io.Discard, host, Options{Theme: "neon"})
	if err == nil || err.Error() != `diagram: theme "neon": want auto, light, dark` {
		t.Errorf("theme neon: %v", err)
	}
}

// Every class that an element has is in the style sheets of both palettes.
func TestEveryClassHasARule(t *testing.T) {
	for _, host := range []*topo.Topology{fixturetest.Topology(t, "lab-softrdma"), fixturetest.Topology(t, "gb200-tray"), fixturetest.Topology(t, "dgx-h100-gpu2-x8")} {
		picture := mustParse(t, svg(t, host, Options{}))
		for class := range picture.classes {
			if n := strings.Count(picture.style, "."+class+"{"); n != 2 {
				t.Errorf("class %s has %d rules, want one for each palette", class, n)
			}
		}
	}
}

// Texts can be read on what they stand on (WCAG 2.1: 4.5 to 1), and lines and
// borders be seen (3 to 1 for what says something).
func TestContrast(t *testing.T) {
	for name, p := range map[string]*palette{"light": &light, "dark": &dark} {
		for l, c := range p.looks {
			if c.fill == "" {
				continue
			}
			for what, text := range map[string]string{"text": p.text, "faint text": p.faint, "alert": p.alert} {
				if got := contrast(t, text, c.fill); got < 4.5 {
					t.Errorf("%s: %s on %s: contrast %.1f", name, what, lookClasses[l], got)
				}
			}
		}
		for what, text := range map[string]string{"text": p.text, "faint text": p.faint, "alert": p.alert} {
			if got := contrast(t, text, p.background); got < 4.5 {
				t.Errorf("%s: %s on the page: contrast %.1f", name, what, got)
			}
		}
		if got := contrast(t, p.sign, p.alert); got < 4.5 {
			t.Errorf("%s: the mark in a sign: contrast %.1f", name, got)
		}
		for _, l := range []look{lookPackage, lookNUMA, lookUnknown} {
			for s, line := range p.lines {
				if got := contrast(t, line, p.looks[l].fill); got < 3 {
					t.Errorf("%s: line %d on %s: contrast %.1f", name, s, lookClasses[l], got)
				}
			}
		}
	}
}

// contrast is the ratio of two colours by WCAG 2.1.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	luminance := func(color string) float64 {
		v, err := strconv.ParseUint(strings.TrimPrefix(color, "#"), 16, 24)
		if err != nil || len(color) != 7 {
			t.Fatalf("color %q", color)
		}
		channel := func(n uint64) float64 {
			c := float64(n&0xff) / 255
			if c <= 0.04045 {
				return c / 12.92
			}
			return math.Pow((c+0.055)/1.055, 2.4)
		}
		return 0.2126*channel(v>>16) + 0.7152*channel(v>>8) + 0.0722*channel(v)
	}
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// Graphviz itself reads every graph, without a word of complaint.
func TestGraphvizReadsDOT(t *testing.T) {
	program, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("dot (Graphviz) is not on PATH: nothing reads the graphs")
	}
	all := hosts(t)
	all["hostile"] = hostile()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), program, "-Tsvg")
			cmd.Stdin = bytes.NewReader(dot(t, all[name], Options{}))
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil || errs.Len() > 0 {
				t.Errorf("dot: %v\n%s", err, errs.String())
			}
			if name == "hostile" && !strings.Contains(out.String(), `&amp;lt;`) {
				t.Error("a name that looks like HTML is not shown as it is")
			}
			for _, g := range all[name].GPUs {
				if !strings.Contains(out.String(), "GPU"+strconv.Itoa(g.Index)) {
					t.Errorf("GPU%d is not in what dot draws", g.Index)
				}
			}
		})
	}
}

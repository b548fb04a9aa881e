package picture

import (
	"bytes"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

// The outline has the lines of the printed tree, in its order and depth, each with its name
// and what it says.
func TestOutlineIsTheTree(t *testing.T) {
	for name, host := range map[string]machine{"two sockets": twoSockets(), "troubled": troubled(), "asserted": asserted(), "empty": newMachine("", 0)} {
		host.Derive()
		for _, opts := range []TreeOptions{{ASCII: true}, {ASCII: true, All: true}} {
			var b bytes.Buffer
			if err := Tree(&b, host.Topology, opts); err != nil {
				t.Fatal(err)
			}
			printed := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
			lines := NewOutline(host.Topology, opts).Lines
			if len(lines) != len(printed) {
				t.Fatalf("%s: %d lines, the tree has %d", name, len(lines), len(printed))
			}
			seen := map[topo.ID]bool{}
			for i, l := range lines {
				text := strings.TrimLeft(printed[i], "|`- ")
				if depth := (len(printed[i]) - len(text)) / 3; depth != l.Depth && l.Name != "" {
					t.Errorf("%s: %q has depth %d, want %d", name, printed[i], l.Depth, depth)
				}
				pieces := []string{l.Name, l.Address, l.Rate}
				for _, c := range l.Details {
					pieces = append(pieces, c.Text)
				}
				for _, p := range pieces {
					if !strings.Contains(printed[i], strings.TrimSuffix(p, " not shown")) {
						t.Errorf("%s: %q lacks %q", name, printed[i], p)
					}
				}
				if l.ID != "" && seen[l.ID] {
					t.Errorf("%s: %s has two lines", name, l.ID)
				}
				seen[l.ID] = true
			}
		}
	}
}

// A link that runs otherwise than when the topology was read is described as it runs now.
func TestOutlineLinkNow(t *testing.T) {
	m := newMachine("n", 1)
	hb := m.root(0x17, 0)
	cur := func(speed, width int) *topo.PCILink {
		return &topo.PCILink{SpeedMTs: ptr(speed), Width: ptr(width), MaxSpeedMTs: ptr(32000), MaxWidth: ptr(16)}
	}
	m.PCIDevices = append(m.PCIDevices,
		topo.PCIDevice{Node: topo.Node{ID: "pci:0000:17:01.0"}, BDF: bdf("0000:17:01.0"), Role: topo.RoleRootPort, Parent: hb, Class: "0x060400", Link: cur(32000, 16)},
		topo.PCIDevice{Node: topo.Node{ID: "pci:0000:18:00.0"}, BDF: bdf("0000:18:00.0"), Role: topo.RoleEndpoint, Parent: "pci:0000:17:01.0", Class: "0x020700", Link: cur(32000, 16)})
	m.Derive()
	o := NewOutline(m.Topology, TreeOptions{})
	for _, c := range []struct {
		gpu      bool
		now      *topo.LaneRate
		text     string
		note     string
		degraded bool
		rate     topo.Rate
	}{
		{false, nil, "gen5 x16", "", false, 63_015_384_615},
		{false, &topo.LaneRate{SpeedMTs: 32000, Width: 16}, "gen5 x16", "", false, 63_015_384_615},
		{false, &topo.LaneRate{SpeedMTs: 32000, Width: 8}, "gen5 x8", "(max gen5 x16)", true, 31_507_692_307},
		{false, &topo.LaneRate{SpeedMTs: 2500, Width: 16}, "gen1 x16", "(max gen5 x16)", true, 4_000_000_000},
		{true, &topo.LaneRate{SpeedMTs: 2500, Width: 16}, "gen5 x16", "(now gen1 x16)", false, 63_015_384_615}, // it idles
		{true, &topo.LaneRate{SpeedMTs: 2500, Width: 4}, "gen5 x4", "(max gen5 x16)", true, 15_753_846_153},
	} {
		s := o.Link("pci:0000:18:00.0", c.gpu, c.now)
		if s.Text != c.text || s.Note != c.note || s.Degraded != c.degraded || s.Rate == nil || *s.Rate != c.rate {
			rate := topo.Rate(-1)
			if s.Rate != nil {
				rate = *s.Rate
			}
			t.Errorf("gpu %t, now %+v: %+v, rate %d", c.gpu, c.now, s, rate)
		}
	}
	if s := o.Link("pci:0000:99:00.0", false, nil); s != (LinkState{}) {
		t.Errorf("a function that is not there has the link %+v", s)
	}
}

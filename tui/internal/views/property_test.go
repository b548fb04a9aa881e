package views_test

import (
	"math/rand"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

// evil are names that a hostile host or document could have.
var evil = []string{
	"\x1b[31mred\x1b[0m", "\x1b]0;title\x07", strings.Repeat("x", 10_000), strings.Repeat("界", 5_000),
	"e" + strings.Repeat("\u0301", 300), "a\nb\r\tc", "\u202eright\u2066", "👩‍👩‍👧‍👦👍🏽", "\x9b31m", "\xff\xfe", " ", "",
	"[X] \u200b\u2060", "－－－－－－－－", "]8;;http://x\x1b\\",
}

// hostile is a host whose every text was chosen by an attacker.
func hostile(t testing.TB) *topo.Topology {
	t.Helper()
	x := *fixturetest.Topology(t, "dgx-h100-gpu2-x8")
	n := 0
	next := func() string { n++; return evil[n%len(evil)] }
	x.Host.Name, x.Host.Product, x.Host.Lacks, x.Origin = next(), next(), evil, next()
	x.Packages, x.NUMANodes, x.HostBridges = slices.Clone(x.Packages), slices.Clone(x.NUMANodes), slices.Clone(x.HostBridges)
	x.GPUs, x.RDMADevices, x.Ports = slices.Clone(x.GPUs), slices.Clone(x.RDMADevices), slices.Clone(x.Ports)
	x.Netdevs, x.NVMes, x.PCIDevices = slices.Clone(x.Netdevs), slices.Clone(x.NVMes), slices.Clone(x.PCIDevices)
	for i := range x.Packages {
		x.Packages[i].Model, x.Packages[i].CPUs = next(), next()
	}
	for i := range x.GPUs {
		x.GPUs[i].Model, x.GPUs[i].UUID, x.GPUs[i].Driver = next(), next(), next()
	}
	renamed := map[topo.ID]topo.ID{}
	for i := range x.RDMADevices {
		r := &x.RDMADevices[i]
		r.Name = next() + string(rune('a'+i))
		renamed[r.ID] = topo.RDMAID(r.Name)
		r.ID, r.Netdevs, r.Firmware = topo.RDMAID(r.Name), evil, next()
	}
	for i := range x.Ports {
		p := &x.Ports[i]
		p.RDMA = renamed[p.RDMA]
		p.ID, p.LinkLayer, p.PhysState = topo.PortID(p.RDMA.Name(), p.Number), next(), next()
		if i%2 == 0 {
			p.State = next()
		}
	}
	for i := range x.Netdevs {
		d := &x.Netdevs[i]
		d.Name = next() + string(rune('a'+i))
		d.ID, d.Driver, d.State = topo.NetdevID(d.Name), next(), next()
	}
	for i := range x.NVMes {
		x.NVMes[i].Model, x.NVMes[i].Serial = next(), next()
	}
	for i := range x.PCIDevices {
		x.PCIDevices[i].DeviceName, x.PCIDevices[i].Evidence = next(), next()
	}
	x.Derived, x.Links = nil, slices.DeleteFunc(slices.Clone(x.Links), func(l topo.Link) bool {
		return l.Kind == topo.LinkPCIe || l.Kind == topo.LinkPort || l.Kind == topo.LinkRootComplex || l.Kind == topo.LinkSocket
	})
	x.Derive()
	return &x
}

// check says whether lines may go to a terminal of w columns.
func check(t *rapid.T, what string, lines []string, w int) {
	for i, line := range lines {
		if n := ui.Width(line); n > w {
			t.Fatalf("%s: line %d has %d columns of %d: %q", what, i, n, w, line)
		}
		if clean := ui.Clean(line); clean != line {
			t.Fatalf("%s: line %d is not clean: %q", what, i, line)
		}
	}
}

var actions = []ui.Action{
	ui.Up, ui.Down, ui.Left, ui.Right, ui.PageUp, ui.PageDown, ui.Home, ui.End, ui.Enter,
	ui.Wide, ui.Sort, ui.Mark, ui.MarkAll, ui.Explain, ui.Measure,
}

// Whatever the size, the host, the keys and the filter: the panes have the size that was asked
// for, no name leaves its line, and nothing but styles reaches the terminal.
func TestPanesFit(t *testing.T) {
	states := []*state.State{state.New(state.Options{}), {}}
	for _, name := range []string{"dgx-h100", "gb200-tray", "cpu-2eth", "dgx-h100-missing-files", "sriov-pf-vf", "lab-softrdma", "empty"} {
		states = append(states, watched(t, name, 2))
	}
	states = append(states, after(hostile(t), 3), &state.State{Topology: &topo.Topology{}})
	rapid.Check(t, func(t *rapid.T) {
		l := ui.Look{ASCII: rapid.Bool().Draw(t, "ascii"), Color: rapid.Bool().Draw(t, "color")}
		e := viewtest.Env(states[rapid.IntRange(0, len(states)-1).Draw(t, "state")], l)
		var all []ui.View
		for _, v := range hostViews {
			all = append(all, v.make())
		}
		size := ui.Size{W: rapid.IntRange(0, 220).Draw(t, "w"), H: rapid.IntRange(0, 60).Draw(t, "h")}
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			v := all[rapid.IntRange(0, len(all)-1).Draw(t, "view")]
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				e.Filter = ui.Filter(rapid.SampledFrom([]string{"", "gpu", "!gpu", "mlx5_1", "cpu:", "no such thing", "!", evil[0]}).Draw(t, "filter"))
			case 1:
				e.State = states[rapid.IntRange(0, len(states)-1).Draw(t, "state")]
			case 2:
				v.Click(rapid.IntRange(-1, size.W).Draw(t, "x"), rapid.IntRange(-1, size.H).Draw(t, "y"), e)
			case 3:
				size = ui.Size{W: rapid.IntRange(0, 220).Draw(t, "w"), H: rapid.IntRange(0, 60).Draw(t, "h")}
			default:
				v.Key(rapid.SampledFrom(actions).Draw(t, "key"), e)
			}
			for _, v := range all {
				lines := v.Main(e, size)
				if len(lines) != size.H {
					t.Fatalf("%s: %d lines of %d", v.Name(), len(lines), size.H)
				}
				check(t, v.Name(), lines, size.W)
				check(t, v.Name()+" detail", v.Detail(e, size.W), size.W)
				v.Selection(e)
			}
		}
	})
}

// The cursor is always on the screen, marked by a sign that no colour is needed for.
func TestCursorIsSeen(t *testing.T) {
	random := rand.New(rand.NewSource(1)) //nolint:gosec // a fixed sequence
	for _, v := range hostViews {
		e := viewtest.Env(watched(t, "dgx-h100", 2), ui.Look{ASCII: true, Bare: true})
		x := v.make()
		for range 300 {
			x.Key(actions[random.Intn(8)], e)
			text := strings.Join(x.Main(e, ui.Size{W: 80, H: 3 + random.Intn(20)}), "\n")
			if n := strings.Count("\n"+text, "\n>"); n != 1 {
				t.Fatalf("%s: %d cursors:\n%s", v.name, n, text)
			}
		}
	}
}

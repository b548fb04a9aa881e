package draw

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/hostview"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
)

// foldVFs is how many virtual functions of one card are listed one by one.
const foldVFs = 4

// hostBridge is a root bus with what is below it, nothing if nothing is to show.
func (b *builder) hostBridge(hb *topo.HostBridge) []*line {
	below := b.functions(b.Children(hb.ID), 0)
	if len(below) == 0 {
		return nil
	}
	l := words(Cell{"host bridge " + b.clean(hb.ID.Name()), Plain}).of(hb.ID, nil)
	if hb.Synthetic {
		l.cells = append(l.cells, Cell{"(not in the file)", Faint})
	}
	l.add(below...)
	return []*line{l}
}

// functions are the lines of PCI functions on one bus, in PCI order. Ports are
// left out and what is below them takes their place, because a switch is shown
// as one; virtual functions of one card are folded where there are many.
func (b *builder) functions(list []*topo.PCIDevice, depth int) []*line {
	if depth > hostview.MaxDepth {
		return nil
	}
	var out []*line
	vfs := map[topo.ID][]*topo.PCIDevice{}
	for _, d := range list {
		if d.PF != "" && !b.opts.All && b.shown(d) {
			vfs[d.PF] = append(vfs[d.PF], d)
		}
	}
	for _, d := range list {
		if b.Reached(d) {
			continue
		}
		if group := vfs[d.PF]; d.PF != "" && len(group) > foldVFs {
			out = append(out, b.folded(group))
			continue
		}
		b.Reach(d)
		out = append(out, b.function(d, depth)...)
	}
	return out
}

// function is one PCI function and what is below it.
func (b *builder) function(d *topo.PCIDevice, depth int) []*line {
	below := b.functions(b.Children(d.ID), depth+1)
	switch d.Role {
	case topo.RoleRootPort, topo.RoleDownstream:
		if !b.opts.All {
			return below
		}
	case topo.RoleUpstream, topo.RoleBridge:
		if len(below) == 0 && !b.opts.All {
			return nil
		}
	}
	if d.IsBridge() || d.Role != topo.RoleEndpoint && len(below) > 0 {
		l := b.bridge(d)
		l.add(below...)
		return []*line{l}
	}
	lines := b.endpoint(d)
	if len(lines) == 0 {
		if !b.opts.All {
			b.hidden++
			return below
		}
		lines = []*line{b.other(d)}
	}
	lines[len(lines)-1].add(below...)
	return lines
}

// bridge is a port, a bridge, or the upstream port that stands for its switch.
func (b *builder) bridge(d *topo.PCIDevice) *line {
	names := map[topo.PCIRole]string{
		topo.RoleRootPort: "root port", topo.RoleUpstream: "switch", topo.RoleDownstream: "downstream port",
	}
	name, ok := names[d.Role]
	if !ok {
		name = "bridge"
	}
	l := words(Cell{name + " " + d.BDF.String(), Plain}).of(d.ID, d)
	if s := b.link(d, false, nil); s.Degraded {
		l.cells = append(l.cells, Cell{s.Text, Plain}, Cell{s.Note, Plain}, Cell{"!", Bad})
	}
	l.head = len(l.cells)
	l.cells = append(l.cells, Cell{b.clean(d.DeviceName), Faint})
	return l
}

// shown says whether a function carries something that is to be shown.
func (b *builder) shown(d *topo.PCIDevice) bool {
	if hostview.IsNetwork(d) && b.wants(topo.KindNIC) {
		return true
	}
	on := b.On(d.ID)
	return len(on.GPUs) > 0 && b.wants(topo.KindGPU) ||
		len(on.RDMADevices)+len(on.Netdevs) > 0 && b.wants(topo.KindNIC) ||
		len(on.NVMes) > 0 && b.wants(topo.KindNVMe) || len(on.NVSwitches) > 0 && b.wants(topo.KindNVSwitch)
}

// endpoint are the lines of the devices that a function carries.
func (b *builder) endpoint(d *topo.PCIDevice) []*line {
	if !b.shown(d) {
		return nil
	}
	on := b.On(d.ID)
	if len(on.GPUs)+len(on.RDMADevices)+len(on.Netdevs)+len(on.NVMes)+len(on.NVSwitches) == 0 {
		return []*line{b.idleNIC(d)}
	}
	var out []*line
	if b.wants(topo.KindGPU) {
		for _, g := range on.GPUs {
			out = append(out, b.gpu(g, d))
		}
	}
	if b.wants(topo.KindNIC) {
		for _, r := range on.RDMADevices {
			out = append(out, b.rdma(r, d))
		}
		if len(on.RDMADevices) == 0 {
			out = append(out, b.netdevs(on.Netdevs, d)...)
		}
	}
	if b.wants(topo.KindNVMe) {
		for _, n := range on.NVMes {
			out = append(out, b.nvme(n, d))
		}
	}
	if b.wants(topo.KindNVSwitch) {
		for _, s := range on.NVSwitches {
			out = append(out, b.device("NVSwitch", d, false, Cell{b.clean(d.DeviceName), Plain}).of(s.ID, d))
		}
	}
	return out
}

// folded is one line for many virtual functions of one card.
func (b *builder) folded(group []*topo.PCIDevice) *line {
	var names []string
	for _, d := range group {
		b.Reach(d)
		on := b.On(d.ID)
		for _, r := range on.RDMADevices {
			names = append(names, r.Name)
		}
		if len(on.RDMADevices) == 0 {
			for _, n := range on.Netdevs {
				names = append(names, n.Name)
			}
		}
	}
	l := words(Cell{fmt.Sprintf("%s of %s", text.Plural(len(group), "virtual function"), b.clean(group[0].PF.Name())), Plain})
	if len(names) > 0 {
		slices.SortFunc(names, topo.NaturalCompare)
		l.cells = append(l.cells, Cell{b.clean(names[0]) + " to " + b.clean(names[len(names)-1]), Plain})
	}
	return l
}

// LinkState is a function's PCIe link in words.
type LinkState struct {
	Text     string     // "gen5 x16", "" nothing is known
	Rate     *topo.Rate // expected, nil not known
	Note     string     // "(max gen5 x16)", "(now gen1 x16)"
	Degraded bool       // less than both ends can do
}

// link describes the link above a function, as hostview judges it.
func (b *builder) link(d *topo.PCIDevice, gpu bool, now *topo.LaneRate) LinkState {
	l := b.Link(d, gpu, now)
	switch {
	case l == nil:
		return LinkState{}
	case !l.Known:
		return LinkState{Rate: l.Rate}
	}
	s := LinkState{Text: pcie(l.Speed, l.Width), Rate: l.Rate, Degraded: l.Degraded}
	switch {
	case l.AbleSpeed > l.Speed || l.AbleWidth > l.Width:
		s.Note = "(max " + pcie(max(l.AbleSpeed, l.Speed), max(l.AbleWidth, l.Width)) + ")"
	case l.IdleSpeed > 0:
		s.Note = "(now " + pcie(l.IdleSpeed, l.Width) + ")"
	}
	return s
}

func pcie(speedMTs, width int) string {
	return units.PCIe(topo.PCIeGen(speedMTs), speedMTs, width)
}

package draw

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
)

// foldVFs is how many virtual functions of one card are listed one by one.
const foldVFs = 4

// hostBridge is a root bus with what is below it, nil if nothing is to show.
func (b *builder) hostBridge(hb *topo.HostBridge) *line {
	below := b.functions(b.children[hb.ID], 0)
	if len(below) == 0 {
		return nil
	}
	l := text(Cell{"host bridge " + b.clean(hb.ID.Name()), Plain}).of(hb.ID, nil)
	if hb.Synthetic {
		l.cells = append(l.cells, Cell{"(not in the file)", Faint})
	}
	l.add(below...)
	return l
}

// functions are the lines of PCI functions on one bus, in PCI order. Ports are
// left out and what is below them takes their place, because a switch is shown
// as one; virtual functions of one card are folded where there are many.
func (b *builder) functions(list []*topo.PCIDevice, depth int) []*line {
	if depth > maxDepth {
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
		if b.seen[d.ID] {
			continue
		}
		if group := vfs[d.PF]; d.PF != "" && len(group) > foldVFs {
			out = append(out, b.folded(group))
			continue
		}
		b.seen[d.ID] = true
		out = append(out, b.function(d, depth)...)
	}
	return out
}

// function is one PCI function and what is below it.
func (b *builder) function(d *topo.PCIDevice, depth int) []*line {
	below := b.functions(b.children[d.ID], depth+1)
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
	l := text(Cell{name + " " + d.BDF.String(), Plain}).of(d.ID, d)
	if s := b.link(d, false, nil); s.Degraded {
		l.cells = append(l.cells, Cell{s.Text, Plain}, Cell{s.Note, Plain}, Cell{"!", Bad})
	}
	l.head = len(l.cells)
	l.cells = append(l.cells, Cell{b.clean(d.DeviceName), Faint})
	return l
}

// shown says whether a function carries something that is to be shown.
func (b *builder) shown(d *topo.PCIDevice) bool {
	l := b.carried[d.ID]
	if b.isNetwork(d) && b.wants(topo.KindNIC) {
		return true
	}
	return l != nil && (len(l.gpus) > 0 && b.wants(topo.KindGPU) ||
		len(l.rdma)+len(l.netdevs) > 0 && b.wants(topo.KindNIC) ||
		len(l.nvmes) > 0 && b.wants(topo.KindNVMe) || len(l.switches) > 0 && b.wants(topo.KindNVSwitch))
}

func (b *builder) isNetwork(d *topo.PCIDevice) bool { return d.Class.Uint()>>16 == 0x02 }

// endpoint are the lines of the devices that a function carries.
func (b *builder) endpoint(d *topo.PCIDevice) []*line {
	if !b.shown(d) {
		return nil
	}
	on := b.carried[d.ID]
	if on == nil {
		return []*line{b.idleNIC(d)}
	}
	var out []*line
	if b.wants(topo.KindGPU) {
		for _, g := range on.gpus {
			out = append(out, b.gpu(g, d))
		}
	}
	if b.wants(topo.KindNIC) {
		for _, r := range on.rdma {
			out = append(out, b.rdma(r, d)...)
		}
		if len(on.rdma) == 0 {
			out = append(out, b.netdevs(on.netdevs, d)...)
		}
	}
	if b.wants(topo.KindNVMe) {
		for _, n := range on.nvmes {
			out = append(out, b.nvme(n, d))
		}
	}
	if b.wants(topo.KindNVSwitch) {
		for _, s := range on.switches {
			out = append(out, b.device("NVSwitch", d, false, Cell{b.clean(d.DeviceName), Plain}).of(s.ID, d))
		}
	}
	return out
}

// folded is one line for many virtual functions of one card.
func (b *builder) folded(group []*topo.PCIDevice) *line {
	var names []string
	for _, d := range group {
		b.seen[d.ID] = true
		if on := b.carried[d.ID]; on != nil {
			for _, r := range on.rdma {
				names = append(names, r.Name)
			}
			if len(on.rdma) == 0 {
				for _, n := range on.netdevs {
					names = append(names, n.Name)
				}
			}
		}
	}
	l := text(Cell{fmt.Sprintf("%s of %s", plural(len(group), "virtual function"), b.clean(group[0].PF.Name())), Plain})
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

// link describes the link above a function. A GPU that idles lowers its speed,
// so its maximum counts and the present one is only mentioned. now is what the link
// runs at where that was looked at since; nil: as the topology has it.
func (b *builder) link(d *topo.PCIDevice, gpu bool, now *topo.LaneRate) LinkState {
	l := b.linkOf(d)
	if l == nil {
		return LinkState{}
	}
	s := LinkState{Rate: l.BytesPerSec}
	state := l.Cur
	if now != nil {
		state = now
	}
	if state == nil {
		state = l.Max
	}
	if state == nil || b.invented(d) {
		return s
	}
	speed, lanes := state.SpeedMTs, state.Width
	var able topo.PCILink // what the function itself could do
	if d.Link != nil && d.PF == "" {
		able = *d.Link
	}
	fastest, widest := value(able.MaxSpeedMTs), value(able.MaxWidth)
	ends := topo.EndsOf(b.devices[l.A], b.devices[l.B])
	if now != nil {
		ends.Above.SpeedMTs, ends.Above.Width = &now.SpeedMTs, &now.Width
		ends.Below.SpeedMTs, ends.Below.Width = &now.SpeedMTs, &now.Width
	}
	s.Degraded = (l.Cur != nil || now != nil) && d.PF == "" && ends.Degraded(gpu)
	if m := l.Max; m != nil && gpu && m.SpeedMTs > speed {
		s.Note = "(now " + pcie(speed, lanes) + ")"
		speed = m.SpeedMTs
	}
	if now != nil {
		rate := topo.PCIeRate(speed, lanes)
		s.Rate = &rate
	}
	s.Text = pcie(speed, lanes)
	if fastest > speed || widest > lanes {
		s.Note = "(max " + pcie(max(fastest, speed), max(widest, lanes)) + ")"
	}
	return s
}

// invented says whether an end of the link above a function is a virtual
// machine's invention, which says nothing about a real link.
func (b *builder) invented(d *topo.PCIDevice) bool {
	above := b.devices[d.Parent]
	return d.Implausible || above != nil && above.Implausible
}

// linkOf finds the link above a function: its own, or the one that the
// functions of its slot share.
func (b *builder) linkOf(d *topo.PCIDevice) *topo.Link {
	if l := b.links[d.ID]; l != nil {
		return l
	}
	near := b.below[d.Parent]
	if parent := b.devices[d.Parent]; parent != nil && parent.Role != topo.RoleBridge && len(near) == 1 {
		return near[0]
	}
	for _, l := range near {
		if head := b.devices[l.B]; head != nil && head.BDF.Slot() == d.BDF.Slot() {
			return l
		}
	}
	return nil
}

func pcie(speedMTs, width int) string {
	return units.PCIe(topo.PCIeGen(speedMTs), speedMTs, width)
}

func value(v *int) int {
	if v == nil {
		return 0
	}
	return *v
}

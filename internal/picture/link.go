package picture

import (
	"github.com/topoctl/topoctl/discover/topo"
)

// Link is the PCIe link above a function as it counts for transfers. Speeds are per lane
// in mega transfers per second, widths in lanes.
type Link struct {
	*topo.Link
	Rate *topo.Rate // expected; nil is not known

	// Known is false if neither end tells the link's speed and width, or if a virtual
	// machine invented it. The rest is zero then.
	Known        bool
	Speed, Width int
	IdleSpeed    int // what an idle GPU lowered its speed to; Speed is its maximum then. 0 otherwise
	// Degraded: the link runs below what both ends can do, which is FullSpeed and FullWidth.
	Degraded             bool
	FullSpeed, FullWidth int
	AbleSpeed, AbleWidth int // what the function itself could do, 0 where it does not tell
}

// Link judges the link above a function, nil where the document has none. gpu says that
// the function is a GPU, which lowers its speed when it idles: its maximum counts. now is
// what the link runs at where that was read since; nil is as the topology has it.
func (v *View) Link(d *topo.PCIDevice, gpu bool, now *topo.LaneRate) *Link {
	above := v.LinkAbove(d.ID)
	if above == nil {
		return nil
	}
	l := &Link{Link: above, Rate: above.BytesPerSec}
	state := now
	if state == nil {
		state = above.Cur
	}
	if state == nil {
		state = above.Max
	}
	if port := v.PCIDevice(d.Parent); state == nil || d.Implausible || port != nil && port.Implausible {
		return l
	}
	l.Known, l.Speed, l.Width = true, state.SpeedMTs, state.Width
	if m := above.Max; m != nil && gpu && m.SpeedMTs > l.Speed {
		l.IdleSpeed, l.Speed = l.Speed, m.SpeedMTs
	}
	if now != nil {
		rate := topo.PCIeRate(l.Speed, l.Width)
		l.Rate = &rate
	}
	l.FullSpeed, l.FullWidth = l.Speed, l.Width
	if d.PF != "" { // a virtual function tells nothing of the link
		return l
	}
	if d.Link != nil {
		l.AbleSpeed, l.AbleWidth = value(d.Link.MaxSpeedMTs), value(d.Link.MaxWidth)
	}
	ends := EndsOf(v.PCIDevice(above.A), v.PCIDevice(above.B))
	if now != nil {
		ends.Above.SpeedMTs, ends.Above.Width = &now.SpeedMTs, &now.Width
		ends.Below.SpeedMTs, ends.Below.Width = &now.SpeedMTs, &now.Width
	}
	if l.Degraded = (above.Cur != nil || now != nil) && ends.Degraded(gpu); l.Degraded {
		if width := ends.Width(); width.Ability == Less {
			l.FullWidth = width.Could
		}
		if speed := ends.Speed(); speed.Ability == Less && !gpu {
			l.FullSpeed = speed.Could
		}
	}
	return l
}

func value(v *int) int {
	if v == nil {
		return 0
	}
	return *v
}

package diagram

import (
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
)

// wire is the link above a function; nil where the document has none (inside
// the root complex). A GPU that idles lowers its speed, so its maximum counts.
// main devices say so where they could do more than their slot.
func (b *builder) wire(d *topo.PCIDevice, gpu, main bool, subject string) *wire {
	l := b.linkOf(d)
	if l == nil {
		return &wire{state: wireRead}
	}
	w := &wire{state: b.stateOf(l), tip: []string{"link " + clean(string(l.ID))}}
	state := l.Cur
	if state == nil {
		state = l.Max
	}
	if state == nil || b.invented(d) {
		w.labels = []string{b.linkRate(l)}
		w.tip = append(w.tip, clean(l.Note))
		return w
	}
	var able topo.PCILink // what the function itself could do
	if d.Link != nil && d.PF == "" {
		able = *d.Link
	}
	speed, lanes := state.SpeedMTs, state.Width
	fastest, widest := value(able.MaxSpeedMTs), value(able.MaxWidth)
	full := topo.LaneRate{SpeedMTs: speed, Width: lanes}
	if m := l.Max; m != nil && gpu && m.SpeedMTs > speed {
		w.tip = append(w.tip, "now "+gen(speed)+", which an idle GPU lowers")
		speed, full.SpeedMTs = m.SpeedMTs, m.SpeedMTs
	}
	w.lanes = lanes
	text := units.PCIe(topo.PCIeGen(speed), speed, lanes)
	if ends := topo.EndsOf(b.devices[l.A], b.devices[l.B]); l.Cur != nil && d.PF == "" && ends.Degraded(gpu) {
		if width := ends.Width(); width.Ability == topo.AbilityLess {
			full.Width = width.Could
		}
		if speed := ends.Speed(); speed.Ability == topo.AbilityLess && !gpu {
			full.SpeedMTs = speed.Could
		}
		w.state = wireDegraded
		text = ofFull(gen(speed), gen(full.SpeedMTs)) + " " + ofFull("x"+strconv.Itoa(lanes), "x"+strconv.Itoa(full.Width))
		b.problems = append(b.problems, subject+" runs at "+text)
	}
	if l.Cur == nil {
		text = "at most " + text
	}
	w.labels = []string{text, b.linkRate(l)}
	if fastest > full.SpeedMTs || widest > full.Width {
		able := units.PCIe(topo.PCIeGen(max(fastest, speed)), max(fastest, speed), max(widest, lanes))
		w.tip = append(w.tip, "the device could do "+able)
		if main {
			w.labels = append(w.labels, "device: "+able)
		}
	}
	w.tip = append(w.tip, clean(l.Note))
	return w
}

// ofFull is "x8 of x16", or "x16" where that is all.
func ofFull(now, full string) string {
	if now == full {
		return now
	}
	return now + " of " + full
}

func gen(speedMTs int) string {
	if g := topo.PCIeGen(speedMTs); g > 0 {
		return "gen" + strconv.Itoa(g)
	}
	return strconv.FormatFloat(float64(speedMTs)/1000, 'g', -1, 64) + "GT/s"
}

func (b *builder) stateOf(l *topo.Link) wireState {
	switch {
	case l.BytesPerSec == nil:
		return wireUnknown
	case l.Basis == topo.BasisConstant, l.Basis == topo.BasisAssumed:
		return wireConstant
	}
	return wireRead
}

// linkRate is a link's rate in words: "63.0 GB/s", "~22.0 GB/s" where it is a
// constant or assumed, "?" where it is not known.
func (b *builder) linkRate(l *topo.Link) string {
	if l.BytesPerSec == nil {
		return "?"
	}
	text := units.Rate(int64(*l.BytesPerSec), b.opts.Units.Or(units.Gbyte))
	if b.stateOf(l) == wireConstant {
		text = "~" + text
	}
	return text
}

// portRate is a network port's rate in words.
func (b *builder) portRate(r *topo.Rate) string {
	if r == nil {
		return "?"
	}
	return units.Rate(int64(*r), b.opts.Units.Or(units.Gbit))
}

// invented says whether an end of the link above a function is a virtual
// machine's invention, which says nothing about a real link.
func (b *builder) invented(d *topo.PCIDevice) bool {
	above := b.devices[d.Parent]
	return d.Implausible || above != nil && above.Implausible
}

// bus are the PCIe links below one port or bridge.
type bus struct {
	only   *topo.Link // where there is a single one
	bySlot map[string]*topo.Link
}

// indexLinks notes the PCIe links by both ends.
func (b *builder) indexLinks() {
	for i := range b.t.Links {
		l := &b.t.Links[i]
		switch l.Kind {
		case topo.LinkRootComplex:
			b.roots[l.B] = l
		case topo.LinkPCIe:
			b.links[l.B] = l
			near := b.near[l.A]
			if near == nil {
				near = &bus{only: l, bySlot: map[string]*topo.Link{}}
				b.near[l.A] = near
			} else {
				near.only = nil
			}
			if head := b.devices[l.B]; head != nil && near.bySlot[head.BDF.Slot()] == nil {
				near.bySlot[head.BDF.Slot()] = l
			}
		}
	}
}

// linkOf finds the link above a function: its own, or the one that the
// functions of its slot share.
func (b *builder) linkOf(d *topo.PCIDevice) *topo.Link {
	if l := b.links[d.ID]; l != nil {
		return l
	}
	near := b.near[d.Parent]
	if near == nil {
		return nil
	}
	if parent := b.devices[d.Parent]; parent != nil && parent.Role != topo.RoleBridge && near.only != nil {
		return near.only
	}
	return near.bySlot[d.BDF.Slot()]
}

func value(v *int) int {
	if v == nil {
		return 0
	}
	return *v
}

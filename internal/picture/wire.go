package picture

import (
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
)

// wire is the link above a function; nil where the document has none (inside
// the root complex). A GPU that idles lowers its speed, so its maximum counts.
// main devices say so where they could do more than their slot.
func (b *builder) wire(d *topo.PCIDevice, gpu, main bool, subject string) *wire {
	l := b.Link(d, gpu, nil)
	if l == nil {
		return &wire{state: wireRead}
	}
	w := &wire{state: stateOf(l.Link), tip: []string{"link " + clean(string(l.ID))}, lanes: l.Width}
	if !l.Known {
		w.labels = []string{b.linkRate(l.Link)}
		w.tip = append(w.tip, clean(l.Note))
		return w
	}
	if l.IdleSpeed > 0 {
		w.tip = append(w.tip, "now "+units.PCIeGen(l.IdleSpeed)+", which an idle GPU lowers")
	}
	words := units.PCIe(l.Speed, l.Width)
	if l.Degraded {
		w.state = wireDegraded
		words = ofFull(units.PCIeGen(l.Speed), units.PCIeGen(l.FullSpeed)) + " " + ofFull("x"+strconv.Itoa(l.Width), "x"+strconv.Itoa(l.FullWidth))
		b.problems = append(b.problems, subject+" runs at "+words)
	}
	if l.Cur == nil {
		words = "at most " + words
	}
	w.labels = []string{words, b.linkRate(l.Link)}
	if l.AbleSpeed > l.FullSpeed || l.AbleWidth > l.FullWidth {
		able := units.PCIe(max(l.AbleSpeed, l.Speed), max(l.AbleWidth, l.Width))
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

func stateOf(l *topo.Link) wireState {
	switch {
	case l.BytesPerSec == nil:
		return wireUnknown
	case !l.Basis.Sure():
		return wireTypical
	}
	return wireRead
}

// linkRate is a link's rate with how it is known.
func (b *builder) linkRate(l *topo.Link) string {
	if l.BytesPerSec == nil {
		return "?"
	}
	return l.Basis.Text(units.Rate(int64(*l.BytesPerSec), b.opts.Units.Or(units.Gbyte)))
}

// portRate is a network port's rate in words.
func (b *builder) portRate(r *topo.Rate) string {
	if r == nil {
		return "?"
	}
	return units.Rate(int64(*r), b.opts.Units.Or(units.Gbit))
}

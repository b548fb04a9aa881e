package watch

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
)

// setLanes takes in what the ends of a link say now. The lower of what they say counts.
func (w *Watch) setLanes(at int64, l *pcieLink, now map[topo.ID]lanes) []Event {
	before := w.lowest(l)
	for _, end := range l.ends {
		n, ok := now[end]
		if !ok {
			continue
		}
		was := w.lanes[end]
		if n.speed == 0 {
			n.speed = was.speed
		}
		if n.width == 0 {
			n.width = was.width
		}
		w.lanes[end] = n
	}
	after := w.lowest(l)
	wide := before.width != 0 && after.width != before.width
	fast := !l.idles && before.speed != 0 && after.speed != before.speed
	if !wide && !fast {
		return nil
	}
	e := Event{AtNS: at, Kind: LinkSpeed, Subject: l.device, Severity: info}
	if wide && after.width < before.width || fast && after.speed < before.speed {
		e.Severity = warning
	}
	if l.idles || before.speed == 0 || after.speed == 0 {
		e.Text = fmt.Sprintf("PCIe x%d -> x%d", before.width, after.width)
	} else {
		e.Text = "PCIe " + units.PCIe(before.speed, before.width) + " -> " + units.PCIe(after.speed, after.width)
		x, y := topo.PCIeRate(before.speed, before.width), topo.PCIeRate(after.speed, after.width)
		if before.width > 0 && after.width > 0 {
			e.Text += ": " + units.Rate(int64(x), units.Gbyte) + " -> " + units.Rate(int64(y), units.Gbyte)
		}
	}
	return []Event{stamp(e)}
}

// lowest is the lower of what the ends of a link say.
func (w *Watch) lowest(l *pcieLink) lanes {
	var out lanes
	lower := func(a, b int) int {
		if a == 0 || b != 0 && b < a {
			return b
		}
		return a
	}
	for _, end := range l.ends {
		n := w.lanes[end]
		out.speed, out.width = lower(out.speed, n.speed), lower(out.width, n.width)
	}
	return out
}

// setRate takes in what a port that is up runs at. What it says while it is down means
// nothing.
func (w *Watch) setRate(at int64, p *port, now *topo.Rate) []Event {
	s := w.states[p.id]
	if !p.rated || now == nil || *now <= 0 || s == nil || !s.up {
		return nil
	}
	was := s.rate
	s.rate = *now
	if was == 0 || was == *now {
		return nil
	}
	e := Event{AtNS: at, Kind: LinkSpeed, Severity: info, Subject: p.id,
		Text: units.Rate(int64(was), units.Gbit) + " -> " + units.Rate(int64(*now), units.Gbit)}
	if *now < was {
		e.Severity = warning
	}
	return []Event{stamp(e)}
}

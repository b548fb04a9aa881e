package watch

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/counters"
	"github.com/topoctl/topoctl/internal/units"
)

// updateSpeeds compares a topology's rates with what they were.
func (w *Watch) updateSpeeds(at int64, seen *snapshot) []Event {
	var out []Event
	live := w.live.live(at)
	for _, p := range seen.ports {
		if !live || !w.live.ports[p.id] {
			out = append(out, w.setRate(at, p, p.rate)...)
		}
	}
	for id := range w.rates {
		if seen.byID[id] == nil {
			delete(w.rates, id)
		}
	}
	known := w.lanes
	w.lanes = map[topo.ID]lanes{}
	for _, l := range seen.pcie {
		now := map[topo.ID]lanes{}
		for _, end := range l.ends {
			if was, ok := known[end]; ok {
				w.lanes[end] = was
			}
			if !live || !w.live.links[end] {
				now[end] = l.read[end]
			}
		}
		out = append(out, w.setLanes(at, l, now)...)
	}
	return out
}

// speedsOf does the same with what counters say of PCIe links.
func (w *Watch) speedsOf(at int64, s *counters.Sample) []Event {
	now := map[topo.ID]lanes{}
	for i := range s.Links {
		now[s.Links[i].ID] = lanesOf(s.Links[i].SpeedMTs, s.Links[i].Width)
	}
	var out []Event
	for _, l := range w.seen.pcie {
		out = append(out, w.setLanes(at, l, now)...)
	}
	return out
}

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
		e.Text = "PCIe " + pcie(before) + " -> " + pcie(after)
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

func pcie(l lanes) string { return units.PCIe(l.speed, l.width) }

// setRate takes in what a port that is up runs at. What it says while it is down means
// nothing.
func (w *Watch) setRate(at int64, p *port, now *topo.Rate) []Event {
	s := w.links[p.id]
	if !p.rated || now == nil || *now <= 0 || s == nil || !s.up {
		return nil
	}
	was := w.rates[p.id]
	w.rates[p.id] = *now
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

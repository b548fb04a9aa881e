package watch

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
)

// lanes is the state of a link; 0 is not known.
type lanes struct{ speed, width int }

// setLanes takes in what a function says of its link now.
func (w *Watch) setLanes(at int64, l pcieLink, now *counters.Link) []Event {
	before := w.lanes[now.ID]
	after := before
	if now.SpeedMTs != nil && *now.SpeedMTs > 0 {
		after.speed = *now.SpeedMTs
	}
	if now.Width != nil && *now.Width > 0 {
		after.width = *now.Width
	}
	w.lanes[now.ID] = after
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
			e.Text += ": " + x.String() + " -> " + y.String()
		}
	}
	return []Event{stamp(e)}
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

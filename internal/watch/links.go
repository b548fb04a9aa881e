package watch

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

// portState is what is remembered of a port.
type portState struct {
	known    bool // whether it is up
	up       bool
	state    string // as it was reported last
	changed  int64  // when
	reported bool   // that it went down
	flaps    int
	rate     topo.Rate // while it is up, 0 not known
	errors   portErrors
}

// down says whether a port is known to be down.
func (s *portState) down() bool { return s != nil && s.known && !s.up }

// state is what is remembered of a port that is there.
func (w *Watch) state(id topo.ID) *portState {
	s := w.states[id]
	if s == nil {
		s = &portState{}
		w.states[id] = s
	}
	return s
}

// Flaps is how often a port went down since the watch began.
func (w *Watch) Flaps(id topo.ID) int {
	if s := w.states[id]; s != nil {
		return s.flaps
	}
	return 0
}

// carries says whether a port in a state can carry data; not known of states that say
// nothing.
func carries(rdma bool, state string) (up, known bool) {
	if rdma {
		return state == "ACTIVE", state != ""
	}
	switch state {
	case "up", "unknown": // drivers without carrier say unknown
		return true, true
	case "down", "lowerlayerdown", "dormant", "notpresent":
		return false, true
	}
	return false, false
}

// liveCounters remembers which ports counters cover. As long as they come, they alone count for
// these: a look at the whole host takes long, and may be out of date when it arrives.
type liveCounters struct {
	at, gap int64
	begun   bool
	ports   map[topo.ID]bool
	links   map[topo.ID]bool // by function
}

// How long counters count as live after the last ones: two and a half times what lay between
// them, but within these.
const (
	leastLive = 3 * second
	mostLive  = 60 * second
)

func (l *liveCounters) update(at int64, s *counters.Sample) {
	if l.begun {
		l.gap = at - l.at
	}
	l.begun, l.at = true, at
	l.ports, l.links = map[topo.ID]bool{}, map[topo.ID]bool{}
	for i := range s.Ports {
		l.ports[s.Ports[i].ID] = s.Ports[i].State != ""
	}
	for i := range s.Links {
		l.links[s.Links[i].ID] = true
	}
}

// uncovered is what a look at the whole host says of the ports and links that no live counters cover.
func (l *liveCounters) uncovered(at int64, s *counters.Sample) *counters.Sample {
	if !l.begun || at-l.at > min(max(l.gap*5/2, leastLive), mostLive) {
		return s
	}
	return &counters.Sample{
		Ports: slices.DeleteFunc(slices.Clone(s.Ports), func(p counters.Port) bool { return l.ports[p.ID] }),
		Links: slices.DeleteFunc(slices.Clone(s.Links), func(x counters.Link) bool { return l.links[x.ID] }),
	}
}

// mostGone is how many ports are remembered that are no more: a driver that is loaded anew
// brings its ports back.
const mostGone = 1024

// forget drops what is remembered of ports and PCIe links that are no more: of a port its rate, and all where they
// are many.
func (w *Watch) forget(seen *snapshot) {
	many := len(w.states) > len(seen.ports)+mostGone
	for id, s := range w.states {
		if seen.byID[id] == nil {
			s.rate = 0
			if many {
				delete(w.states, id)
			}
		}
	}
	maps.DeleteFunc(w.lanes, func(id topo.ID, _ lanes) bool { _, there := seen.pcie[id]; return !there })
}

// look compares what a sample says of the ports and links of a host with what they were.
func (w *Watch) look(at int64, seen *snapshot, s *counters.Sample) []Event {
	ports := make(map[topo.ID]*counters.Port, len(s.Ports))
	for i := range s.Ports {
		ports[s.Ports[i].ID] = &s.Ports[i]
	}
	known := slices.DeleteFunc(slices.Clone(seen.ports), func(p *port) bool { return ports[p.id] == nil })
	var out []Event
	for _, p := range known {
		out = append(out, w.setState(at, seen, p, ports[p.id].State)...)
	}
	out = w.withCosts(out)
	for _, p := range known {
		out = append(out, w.setRate(at, p, ports[p.id].BytesPerSec)...)
	}
	for i := range s.Links {
		if l, ok := seen.pcie[s.Links[i].ID]; ok {
			out = append(out, w.setLanes(at, l, &s.Links[i])...)
		}
	}
	for _, p := range known {
		out = append(out, w.errors(at, p.id, ports[p.id].Errors)...)
	}
	return out
}

// Counters takes in a look at the counters and says what has changed. Before the first
// topology nothing is known of what they are about.
func (w *Watch) Counters(at int64, s *counters.Sample) []Event {
	if s == nil || w.seen == nil {
		return nil
	}
	out := w.look(at, w.seen, s)
	w.live.update(at, s)
	return out
}

// setState takes in a port's state. Those that it follows were taken in before.
func (w *Watch) setState(at int64, x *snapshot, p *port, state string) []Event {
	up, known := carries(p.rdma, state)
	if !known {
		return nil
	}
	s := w.state(p.id)
	if !s.known {
		s.known, s.up, s.state, s.changed = true, up, state, at
		return nil
	}
	if s.up == up {
		s.state = state
		return nil
	}
	e := Event{AtNS: at, Subject: p.id, Text: s.state + " -> " + state}
	since := at - s.changed
	s.up, s.state, s.changed = up, state, at
	if up {
		wasReported := s.reported
		s.reported = false
		if !wasReported {
			return nil
		}
		e.Kind, e.Severity, e.Flaps = LinkUp, info, s.flaps
		e.Text += " after " + duration(since)
		return []Event{stamp(e)}
	}
	s.flaps++
	s.reported = x.byID[p.leader] == nil || !w.states[p.leader].down()
	if !s.reported {
		return nil // the other reports it
	}
	e.Kind, e.Flaps = LinkDown, s.flaps
	if s.flaps > 1 {
		e.Text += fmt.Sprintf(", for the %s time", ordinal(s.flaps))
	}
	return []Event{stamp(e)}
}

// duration is a time for people.
func duration(ns int64) string {
	d := time.Duration(ns)
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func ordinal(n int) string {
	switch {
	case n%100/10 == 1:
	case n%10 == 1:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}

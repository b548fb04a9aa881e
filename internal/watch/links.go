package watch

import (
	"fmt"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/counters"
)

// links are the states of ports.
type links map[topo.ID]*linkState

type linkState struct {
	up       bool
	state    string // as it was reported last
	changed  int64  // when
	reported bool   // that it went down
	flaps    int
}

// Flaps is how often a port went down since the watch began.
func (w *Watch) Flaps(id topo.ID) int {
	if s := w.links[id]; s != nil {
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

func (l *liveCounters) live(at int64) bool {
	return l.begun && at-l.at <= min(max(l.gap*5/2, leastLive), mostLive)
}

// mostGone is how many ports are remembered that are no more: a driver that is loaded anew
// brings its ports back.
const mostGone = 1024

// updateLinks compares the states of a topology's ports with what they were.
func (w *Watch) updateLinks(at int64, seen *snapshot) []Event {
	var out []Event
	live := w.live.live(at)
	for _, p := range seen.ports {
		if !live || !w.live.ports[p.id] {
			out = append(out, w.setState(at, seen, p, p.state)...)
		}
	}
	if len(w.links) > len(seen.ports)+mostGone {
		for id := range w.links {
			if seen.byID[id] == nil {
				delete(w.links, id)
			}
		}
	}
	return w.withCosts(out)
}

// setState takes in a port's state. Those that it follows were taken in before.
func (w *Watch) setState(at int64, x *snapshot, p *port, state string) []Event {
	up, known := carries(p.rdma, state)
	if !known {
		return nil
	}
	s := w.links[p.id]
	if s == nil {
		w.links[p.id] = &linkState{up: up, state: state, changed: at}
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
	s.reported = !w.isDown(x, p.leader)
	if !s.reported {
		return nil // the other reports it
	}
	e.Kind, e.Flaps = LinkDown, s.flaps
	if s.flaps > 1 {
		e.Text += fmt.Sprintf(", for the %s time", ordinal(s.flaps))
	}
	return []Event{stamp(e)}
}

// isDown says whether a port is known to be down.
func (w *Watch) isDown(x *snapshot, id topo.ID) bool {
	s := w.links[id]
	return x.byID[id] != nil && s != nil && !s.up
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

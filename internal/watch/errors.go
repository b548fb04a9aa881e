package watch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

// When error counters are reported: when they begin to move, then at most every again while they
// go on, and when they have stood still for still.
const (
	again = 10 * second
	still = 60 * second
)

// portErrors are the error counters of a port.
type portErrors struct {
	last                     map[string]uint64
	going                    bool
	began, moved, reportedAt int64
	unreported, total        map[string]uint64
}

// replaced drops what was counted of devices whose names others have now, and first reports
// what was held back.
func (w *Watch) replaced(at int64, gone map[topo.ID]bool) []Event {
	var out []Event
	for _, id := range slices.SortedFunc(maps.Keys(gone), byName) {
		if s := w.states[id]; s != nil {
			s.errors.reportedAt = at - again
			out = append(out, s.errors.report(at, id)...)
			s.errors = portErrors{}
		}
	}
	return out
}

func byName(a, b topo.ID) int { return topo.NaturalCompare(string(a), string(b)) }

// downCounters count what a link event reports; alone they report one that was too short to
// be seen.
var downCounters = []string{"link_downed", "carrier_down_count"}

// settled is how long after a link event these counters may follow it.
const settled = 5 * second

// errors takes in the error counters of a port. A counter that went back began anew.
func (w *Watch) errors(at int64, id topo.ID, now map[string]uint64) []Event {
	if now == nil {
		return nil
	}
	s := w.state(id)
	t := &s.errors
	for name, n := range now {
		was, known := t.last[name]
		if !known || n <= was {
			continue
		}
		if slices.Contains(downCounters, name) && (s.down() || s.flaps > 0 && at-s.changed <= settled) {
			continue
		}
		t.add(at, name, n-was)
	}
	t.last = maps.Clone(now)
	if out := t.report(at, id); out != nil {
		return out
	}
	if !t.going || len(t.unreported) > 0 || at-t.moved < still {
		return nil
	}
	e := Event{AtNS: at, Kind: ErrorsStop, Severity: info, Subject: id, Counters: t.total,
		Text: fmt.Sprintf("none for %s; %s in total over %s", duration(at-t.moved), sums(t.total), duration(t.moved-t.began))}
	*t = portErrors{last: t.last}
	return []Event{stamp(e)}
}

func (t *portErrors) add(at int64, name string, n uint64) {
	if !t.going && len(t.total) == 0 {
		t.began, t.unreported, t.total = at, map[string]uint64{}, map[string]uint64{}
	}
	t.moved = at
	t.unreported[name] += n
	t.total[name] += n
}

// report reports what has moved, unless there was a report a moment ago.
func (t *portErrors) report(at int64, id topo.ID) []Event {
	if len(t.unreported) == 0 || t.going && at-t.reportedAt < again {
		return nil
	}
	e := Event{AtNS: at, Kind: Errors, Severity: info, Subject: id, Counters: t.unreported, Text: sums(t.unreported)}
	for name := range t.unreported {
		if counters.Serious(name) {
			e.Severity = warning
		}
	}
	if t.going {
		e.Text += fmt.Sprintf(" (%s since %s ago)", sums(t.total), duration(at-t.began))
	}
	t.going, t.reportedAt, t.unreported = true, at, map[string]uint64{}
	return []Event{stamp(e)}
}

// dueErrors reports what was held back.
func (w *Watch) dueErrors(at int64) []Event {
	var out []Event
	for _, id := range slices.SortedFunc(maps.Keys(w.states), byName) {
		out = append(out, w.states[id].errors.report(at, id)...)
	}
	return out
}

// sums is "rx_crc_errors +3, symbol_error +12".
func sums(moved map[string]uint64) string {
	const most = 6
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(moved)) {
		if len(parts) == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(moved)-most))
			break
		}
		parts = append(parts, fmt.Sprintf("%s +%d", name, moved[name]))
	}
	return strings.Join(parts, ", ")
}

package watch

import (
	"cmp"
	"maps"
	"slices"
)

// source is what is known of who brings news.
type source struct {
	lost    bool
	waiting bool
	since   int64 // when it began to wait
	detail  string
}

// A source that waits is lost after patience: on a busy host answers take long now and then.
const (
	mostSources = 1024
	patience    = 10 * second
)

// Source takes in how a source does ("ok", "waiting", "failed", "ended"; see package
// record) and says when it is lost and when it is back.
func (w *Watch) Source(at int64, name, status, detail string) []Event {
	s, known := w.sources[name]
	if status == "ended" { // as it should
		delete(w.sources, name)
		return nil
	}
	if !known && len(w.sources) == mostSources {
		return nil
	}
	s.detail = detail
	var out []Event
	switch {
	case status == "waiting" && !s.waiting:
		s.waiting, s.since = true, at
	case status == "failed":
		s.waiting = false
		if !s.lost {
			s.lost = true
			out = append(out, lost(at, name, detail))
		}
	case status == "ok":
		s.waiting = false
		if s.lost {
			s.lost = false
			out = append(out, stamp(Event{AtNS: at, Kind: SourceBack, Severity: info, Source: name, Text: "sends updates again"}))
		}
	}
	w.sources[name] = s
	return out
}

func lost(at int64, name, detail string) Event {
	return stamp(Event{AtNS: at, Kind: SourceLost, Severity: warning, Source: name, Text: cmp.Or(detail, "sends no updates")})
}

// overdue reports sources that wait for too long.
func (w *Watch) overdue(at int64) []Event {
	var out []Event
	for _, name := range slices.Sorted(maps.Keys(w.sources)) {
		if s := w.sources[name]; s.waiting && !s.lost && at-s.since >= patience {
			s.lost = true
			w.sources[name] = s
			out = append(out, lost(at, name, s.detail))
		}
	}
	return out
}

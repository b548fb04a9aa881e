package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/record"
)

// lateAfterPeriods without news make a source late.
const lateAfterPeriods = 3

const maxPeriod = 3600 * second

// find is the place of a source in Sources.
func (s *State) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.Sources, name, func(x Source, name string) int { return cmp.Compare(x.Name, name) })
}

// source is the entry of a name, which is made where there is room for one; nil there
// is none.
func (s *State) source(name string) *Source {
	i, found := s.find(name)
	if !found {
		if len(s.Sources) == MaxSources {
			return nil
		}
		s.Sources = slices.Insert(s.Sources, i, Source{Name: name, Status: record.StatusWaiting})
	}
	return &s.Sources[i]
}

// noteNews notes that a source has brought news.
func (s *State) noteNews(x *Source) {
	if since := min(s.Now-x.LastNS, maxPeriod); x.hasNews && since > 0 {
		if x.periodNS == 0 {
			x.periodNS = since
		}
		// One long silence is no period, many are.
		x.periodNS = max(1, x.periodNS+(min(since, 4*x.periodNS)-x.periodNS)/4)
	}
	x.hasNews, x.LastNS, x.filledNS = true, s.Now, s.Now
	if x.Status != record.StatusOK {
		s.setStatus(x, record.StatusOK, "")
	}
}

// setStatus notes how a source does, and has the watcher tell of it.
func (s *State) setStatus(x *Source, status, detail string) {
	switch status {
	case record.StatusFailed:
		x.Failed = true
	case record.StatusEnded: // the end of a recording mends nothing
		if x.Failed {
			detail = x.Detail
		}
	default:
		x.Failed = false
	}
	x.Status, x.Detail = status, detail
	if s.watch != nil {
		s.addEvents(s.watch.Source(s.Now, x.Name, status, detail))
	}
}

// periodic says whether a source brings news again and again, also where nothing has
// changed.
func (x *Source) periodic() bool {
	return x.Name == record.SourceCounters || strings.HasPrefix(x.Name, record.AgentPrefix)
}

// isLate says whether a source should have brought news by now.
func (x *Source) isLate(now int64) bool {
	return x.periodic() && x.hasNews && x.periodNS > 0 && x.Status != record.StatusEnded &&
		(now-x.LastNS)/lateAfterPeriods > x.periodNS
}

// markLate looks after the sources that are late: they are waited for, and what they
// feed is not known meanwhile.
func (s *State) markLate() {
	for i := range s.Sources {
		x := &s.Sources[i]
		if !x.isLate(s.Now) {
			continue
		}
		if x.Status == record.StatusOK {
			s.setStatus(x, record.StatusWaiting, "it brings no news")
		}
		missed := (s.Now - x.filledNS) / x.periodNS
		if missed == 0 {
			continue
		}
		x.filledNS += missed * x.periodNS
		n := int(min(missed, HistoryLen))
		if x.Name == record.SourceCounters {
			s.addCounterGaps(n)
		} else if e := s.Engine(x.Name); e != nil {
			e.addGap(n)
		}
	}
}

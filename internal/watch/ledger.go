package watch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
)

// What a ledger does at most.
const (
	mostFacts = 4096 // that it remembers at a time
	mostNews  = 64   // events of one step
	// mostTurns is how often one fact is reported, to be so or not, within calm: what comes and
	// goes all the time is reported again when calm is over.
	mostTurns = 6
	calm      = 600 * second
)

// item is a fact that is so now: of one device, so that facts of several devices come and
// go one by one, and are reported together where they do so together.
type item struct {
	key     string
	subject topo.ID
	group   string // facts of one group are one event
	event   Event  // without time and subjects
	gone    string // the text of the event that takes it back
	lacking string // why it can no longer be determined whether it is so, "" it can
}

// ledger remembers what is so and what of it was reported, and reports each change once.
type ledger struct {
	appears, goes Kind
	facts         map[string]*fact
}

type fact struct {
	item
	present, reported bool
	muted             bool   // never reported, and so never taken back
	severity          string // that was reported
	since             int64  // when turns began to count
	turns             int
}

func newLedger(appears, goes Kind) ledger {
	return ledger{appears: appears, goes: goes, facts: map[string]*fact{}}
}

// update takes in all that is so now. What is not among it is so no more, and lacking says
// of which of that it cannot be determined.
func (l *ledger) update(at int64, now []item, lacking func(*item) string) []Event {
	for _, f := range l.facts {
		f.present = false
	}
	for _, x := range now {
		f := l.facts[x.key]
		if f == nil {
			if len(l.facts) == mostFacts {
				continue
			}
			f = &fact{since: at}
			l.facts[x.key] = f
		}
		f.item, f.present = x, true
	}
	for _, f := range l.facts {
		if !f.present && lacking != nil {
			f.lacking = lacking(&f.item)
		}
	}
	return l.due(at)
}

// rank is the place of a severity in the order of how bad it is, the worst first.
func rank(severity string) int { return slices.Index([]string{severe, warning, info, ""}, severity) }

// due reports what is so and was not reported, and takes back what is so no more.
func (l *ledger) due(at int64) []Event {
	var came, gone []*fact
	for _, key := range slices.Sorted(maps.Keys(l.facts)) {
		f := l.facts[key]
		if at-f.since >= calm {
			f.since, f.turns = at, 0
		}
		switch {
		case !f.present && f.muted, !f.present && !f.reported && f.turns == 0:
			delete(l.facts, key)
		case f.muted || f.turns >= mostTurns:
		case f.present && (!f.reported || rank(f.event.Severity) < rank(f.severity)):
			came = append(came, f)
		case !f.present && f.reported:
			gone = append(gone, f)
		}
	}
	return append(events(at, l.goes, false, gone), events(at, l.appears, true, came)...)
}

// events makes an event of the facts of each group, and one for all that are too many.
func events(at int64, kind Kind, appears bool, facts []*fact) []Event {
	groups := group.By(facts, func(f *fact) [3]string { return [3]string{f.group, f.lacking, f.event.Severity} })
	slices.SortStableFunc(groups, func(a, b []*fact) int { return order(a[0], b[0]) })
	var out []Event
	for i, list := range groups {
		if i < mostNews {
			out = append(out, eventOf(at, kind, appears, list))
			continue
		}
		for _, f := range list {
			f.reported, f.muted = false, true
		}
	}
	if more := len(groups) - mostNews; more > 0 {
		out = append(out, stamp(Event{AtNS: at, Kind: kind, Severity: info, Text: fmt.Sprintf("and %d more, which are not listed", more)}))
	}
	return out
}

// order has the worst first, then as codes and devices are named.
func order(a, b *fact) int {
	return cmp.Or(rank(a.event.Severity)-rank(b.event.Severity), cmp.Compare(a.event.Code, b.event.Code),
		topo.NaturalCompare(string(a.subject), string(b.subject)), cmp.Compare(a.key, b.key))
}

// eventOf makes one event of facts that came or went together.
func eventOf(at int64, kind Kind, appears bool, list []*fact) Event {
	slices.SortStableFunc(list, order)
	e := list[0].event
	e.AtNS, e.Kind, e.Subject = at, kind, list[0].subject
	e.Detail = slices.Clone(e.Detail)
	flapping := false
	for _, f := range list {
		f.reported, f.severity = appears, f.event.Severity
		f.turns++
		flapping = flapping || f.turns == mostTurns
		if len(list) > 1 {
			e.Subjects = append(e.Subjects, f.subject)
		}
	}
	if !appears {
		e.Severity, e.Text, e.Detail = info, list[0].gone, nil
		if lacking := list[0].lacking; lacking != "" {
			e.Severity, e.Detail = warning, []string{"it can no longer be determined: " + lacking}
		}
	}
	if flapping {
		e.Detail = append(e.Detail, fmt.Sprintf("it comes and goes: reported %d times, and not again for a while", mostTurns))
	}
	return stamp(e)
}

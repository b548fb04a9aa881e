package watch

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/diff"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

const second = int64(1_000_000_000)

// Options say what a watch holds a host against.
type Options struct {
	// Baseline is what drift is against, derived; nil: the first topology.
	Baseline     *topo.Topology
	BaselineName string       // what people call it
	Overlay      topo.Overlay // measured rates of links
	Doctor       doctor.Options
	// Infos: findings that are only good to know are reported as well.
	Infos bool
}

// Watch remembers what a host was like when it was last looked at. It is stepped from one
// goroutine; time is in nanoseconds since the watch began and does not go back. What it
// remembers is bounded by the host's size.
type Watch struct {
	o        Options
	first    *topo.Topology // nil until there is one
	last     *topo.Topology
	seen     *snapshot
	paths    *pathsel.Host // of last, nil until it is needed
	doctor   *doctor.Report
	drift    *diff.Report
	findings ledger
	drifts   ledger
	initial  map[string]bool // differences of links that were there at the first look
	sources  map[string]source
	states   map[topo.ID]*portState
	lanes    map[topo.ID]lanes // of PCIe links, by function
	live     liveCounters
}

// New begins a watch.
func New(o Options) *Watch {
	return &Watch{o: o, findings: newLedger(Finding, Cleared), drifts: newLedger(Drift, DriftGone), initial: map[string]bool{},
		sources: map[string]source{}, states: map[topo.ID]*portState{}, lanes: map[topo.ID]lanes{}}
}

// Doctor is what the doctor says of the last topology, nil without one.
func (w *Watch) Doctor() *doctor.Report { return w.doctor }

// Drift is how the last topology differs from the baseline or from the first one, nil
// without a topology.
func (w *Watch) Drift() *diff.Report { return w.drift }

// Topology takes in a look at the whole host, which must be derived and not change
// afterwards, and says what has changed.
func (w *Watch) Topology(at int64, t *topo.Topology) []Event {
	if t == nil {
		return nil
	}
	report, err := doctor.Run(t, w.o.Doctor)
	out := w.ownStatus(at, "doctor", err)
	if err != nil {
		return out
	}
	beginning := w.first == nil
	if beginning {
		w.first = t
	}
	w.doctor = report
	seen := newSnapshot(t)
	out = append(out, w.look(at, seen, w.live.uncovered(at, &seen.sample))...)
	out = append(out, w.replaced(at, counters.Replaced(w.last, t))...)
	w.last, w.seen, w.paths = t, seen, nil
	w.forget(seen)
	out = append(out, w.findings.update(at, w.findingItems(report), unchecked(report))...)
	out = append(out, w.compare(at, t, beginning)...)
	if beginning {
		for i := range out {
			out[i].Initial = true
		}
		out = slices.Insert(out, 0, w.started(at, t))
	}
	return out
}

// baseline is what drift is against.
func (w *Watch) baseline() *topo.Topology { return cmp.Or(w.o.Baseline, w.first) }

// compare looks for drift.
func (w *Watch) compare(at int64, t *topo.Topology, beginning bool) []Event {
	name := "the start"
	if w.o.Baseline != nil {
		name = w.o.BaselineName
	}
	report, err := diff.Compare(w.baseline(), t, diff.Options{OldLabel: name, NewLabel: "now"})
	out := w.ownStatus(at, "drift", err)
	if err != nil {
		return out
	}
	w.drift = report
	return append(out, w.drifts.update(at, w.driftItems(report, beginning), notCompared(report))...)
}

// ownStatus reports on this watch's own parts as on sources.
func (w *Watch) ownStatus(at int64, name string, err error) []Event {
	if err != nil {
		return w.Source(at, name, "failed", pkgerr.Message(err))
	}
	return w.Source(at, name, "ok", "")
}

// Tick lets time pass: what was held back may be due.
func (w *Watch) Tick(at int64) []Event {
	out := append(w.overdue(at), w.dueErrors(at)...)
	out = append(out, w.findings.due(at)...)
	return append(out, w.drifts.due(at)...)
}

// started says what there is.
func (w *Watch) started(at int64, t *topo.Topology) Event {
	s := w.doctor.Summary
	e := Event{AtNS: at, Kind: Started, Severity: info,
		Text: fmt.Sprintf("%s, %s, %s; %s, %s", text.Plural(len(t.GPUs), "GPU"), text.Plural(len(t.Ports), "RDMA port"), text.Plural(len(t.Netdevs), "interface"),
			text.Plural(s.Errors, "error"), text.Plural(s.Warnings, "warning"))}
	switch {
	case s.Errors > 0:
		e.Severity = severe
	case s.Warnings > 0:
		e.Severity = warning
	}
	if t.Host.Name != "" {
		e.Detail = append(e.Detail, "host "+t.Host.Name)
	}
	if w.o.Baseline != nil {
		e.Detail = append(e.Detail, "drift is measured against "+w.o.BaselineName)
	}
	if !t.Complete {
		e.Detail = append(e.Detail, "some of the host could not be read")
	}
	return stamp(e)
}

// stamp gives an event what all have.
func stamp(e Event) Event {
	e.Schema = Schema
	return e
}

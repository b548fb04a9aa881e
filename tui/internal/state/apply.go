package state

import (
	"maps"
	"slices"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/watch"
	"github.com/topoctl/topoctl/probe"
)

// Options say what a state begins with.
type Options struct {
	// Baseline is what drift is against; nil: the first topology.
	Baseline     *topo.Topology
	BaselineName string
	Overlay      topo.Overlay  // measured rates of links
	Measured     *probe.Report // that they are from, nil none
}

// applyState is what Apply needs from one record to the next.
type applyState struct {
	watch  *watch.Watch // nil in a clone
	sample *counters.Sample
}

// New is a state in which nothing is known yet.
func New(o Options) *State {
	w := watch.New(watch.Options{Baseline: o.Baseline, BaselineName: o.BaselineName, Overlay: o.Overlay})
	return &State{Overlay: o.Overlay, Measured: o.Measured, BaselineName: o.BaselineName, Ports: map[topo.ID]*Port{},
		Links: map[topo.ID]counters.Link{}, GPUs: map[topo.ID]*GPU{}, applyState: applyState{watch: w}}
}

// Apply takes in a record, which must not change afterwards. Time never goes back: a record
// of the past is taken as of now.
func (s *State) Apply(r *record.Record) {
	s.advance(r.AtNS)
	if r.Start != nil {
		s.Start = *r.Start
	}
	if r.Source == "" {
		return
	}
	x := s.source(r.Source)
	if x == nil {
		return
	}
	if r.State != nil {
		s.sourceState(x, r.State)
	}
	if r.Topology == nil && r.Counters == nil && r.Engine == nil && r.Probe == nil {
		return
	}
	s.noteNews(x)
	if r.Topology != nil {
		s.topology(r.Topology)
	}
	if r.Counters != nil {
		s.counters(r.Counters)
	}
	if r.Engine != nil {
		s.engine(r.Source, r.Engine)
	}
	if r.Probe != nil {
		s.probe(r.Probe)
	}
}

// Tick says what time it is, on the clock of the records.
func (s *State) Tick(now int64) {
	s.advance(now)
	if s.watch != nil {
		s.addEvents(s.watch.Tick(s.Now))
	}
}

// advance lets the time pass that is between two records.
func (s *State) advance(now int64) {
	if now <= s.Now {
		return
	}
	s.Now = now
	s.markLate()
	s.expire()
	if s.Probe != nil {
		s.Probe.tick(s.Now)
	}
}

// sourceState takes in how a source does.
func (s *State) sourceState(x *Source, now *record.SourceState) {
	switch now.Status {
	case record.StatusOK, record.StatusWaiting, record.StatusFailed, record.StatusEnded:
	default: // a newer writer's
		return
	}
	s.setStatus(x, now.Status, now.Detail)
	if p := s.Probe; x.Name == record.SourceProbe && p != nil && (now.Status == record.StatusEnded || now.Status == record.StatusFailed) {
		if p.Running && now.Detail != "" {
			p.addError(now.Detail)
		}
		p.stop()
	}
}

// topology takes in a look at the host.
func (s *State) topology(t *topo.Topology) {
	s.replaced(s.Topology, t)
	s.Topology = t
	if s.watch == nil {
		return
	}
	s.addEvents(s.watch.Topology(s.Now, t))
	s.Doctor, s.Drift = s.watch.Doctor(), s.watch.Drift()
}

// addEvents adds events; the oldest go where there is no room.
func (s *State) addEvents(events []watch.Event) {
	s.Events = append(s.Events, events...)
	if more := len(s.Events) - MaxEvents; more > 0 {
		s.Events = s.Events[more:]
		s.Dropped += more
	}
}

// Clone is a copy that stays as it is while the original goes on. It takes in records of its
// own, but knows of no events that follow, and asks no doctor: the watcher stays with
// the original.
func (s *State) Clone() *State {
	out := *s
	out.watch = nil
	out.Ports, out.GPUs = make(map[topo.ID]*Port, len(s.Ports)), make(map[topo.ID]*GPU, len(s.GPUs))
	for id, p := range s.Ports {
		c := *p
		c.errorMoves = slices.Clip(c.errorMoves)
		out.Ports[id] = &c
	}
	for id, g := range s.GPUs {
		c := *g
		out.GPUs[id] = &c
	}
	out.Links = maps.Clone(s.Links)
	out.Engines = slices.Clone(s.Engines)
	for i, e := range out.Engines {
		out.Engines[i] = e.clone()
	}
	out.Probe = s.Probe.clone()
	out.Events, out.Sources = slices.Clip(s.Events), slices.Clone(s.Sources)
	return &out
}

// cloned copies a list and what it points to.
func cloned[T any](list []*T) []*T {
	out := make([]*T, len(list))
	for i, x := range list {
		c := *x
		out[i] = &c
	}
	return out
}

package measure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// round is a round that a controller has begun on this agent.
type round struct {
	number int64
	ctx    context.Context // of its jobs
	cancel context.CancelFunc
	begin  chan struct{} // closed by start

	regions []*engine.Region
	looks   []lookAt
	once    sync.Once // of end

	mu      sync.Mutex
	started bool
	memory  int64 // bytes of regions and of jobs
	jobs    []*job
	running sync.WaitGroup
}

type lookAt struct {
	id int
	at *lane.Look
}

// prepare begins a round: it allocates memory for initiators to write to, and reads the counters of the
// links.
func (s *Server) prepare(ctx context.Context, e *engine.Engine, l *lease, r *request, a *answer) error {
	s.op.Lock()
	defer s.op.Unlock()
	s.mu.Lock()
	before, last, over := l.round, l.last, l.ending
	s.mu.Unlock()
	switch {
	case over:
		return errors.New("the lease is over")
	case r.Round <= last:
		return fmt.Errorf("round %d after %d: want a higher number", r.Round, last)
	}
	if before != nil { // its controller has forgotten it
		before.end(s.o.Logger)
	}
	now := &round{number: r.Round, begin: make(chan struct{})}
	now.ctx, now.cancel = context.WithCancel(context.Background())
	for i := range r.Regions {
		got, err := s.alloc(ctx, e, l, now, &r.Regions[i])
		if err != nil {
			now.end(s.o.Logger)
			return err
		}
		a.Regions = append(a.Regions, got)
	}
	t := topologyOf(e)
	readers := map[string]*lane.Links{} // the names that a controller calls this host: one
	for i := range r.Looks {
		k := &r.Looks[i]
		if readers[k.Host] == nil {
			if len(readers) > 0 {
				now.end(s.o.Logger)
				return fmt.Errorf("this host is called both %q and %q", r.Looks[0].Host, k.Host)
			}
			readers[k.Host] = lane.NewLinks(t, k.Host, s.o.Sysfs)
		}
		now.looks = append(now.looks, lookAt{k.ID, readers[k.Host].Look(k.Path)})
	}
	s.mu.Lock()
	l.round, l.last = now, r.Round
	s.mu.Unlock()
	a.Served = servedBy(e)
	return nil
}

// reserveMemory counts memory of a round against the agent's limit.
func (r *round) reserveMemory(bytes, most int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes > most-r.memory {
		return pkgerr.Errorf("memory", "%d more bytes do not fit: %d are in use, and this agent allows %d for probes", bytes, r.memory, most)
	}
	r.memory += bytes
	return nil
}

// alloc allocates memory that initiators write to.
func (s *Server) alloc(ctx context.Context, e *engine.Engine, l *lease, now *round, want *region) (region, error) {
	if ctx.Err() != nil {
		return region{}, context.Cause(ctx)
	}
	if err := now.reserveMemory(want.Bytes, s.o.Limits.MemoryBytes); err != nil {
		return region{}, err
	}
	o, note := regionAt(topologyOf(e), want.Location)
	o.Name, o.Grant = fmt.Sprintf("probe-%.8s-%d-%d", l.id, now.number, want.ID), memory.PeerRead|memory.PeerWrite
	m, err := e.Alloc(want.Bytes, o)
	if err != nil { // a node without memory, say: that is for the pairs of this one
		return region{ID: want.ID, Error: clip(err.Error(), maxErrorText)}, now.reserveMemory(-want.Bytes, s.o.Limits.MemoryBytes)
	}
	now.regions = append(now.regions, m)
	return region{ID: want.ID, Bytes: m.Size(), Location: want.Location, Name: m.Name(), Node: lane.BoundTo(m), Note: note}, nil
}

// regionAt says how memory at a location is allocated.
func regionAt(t *topo.Topology, at pathsel.Location) (o engine.RegionOptions, note string) {
	o.Location = at
	o.Memory, note = lane.MemoryAt(at, len(t.NUMANodes))
	return o, note
}

// connect begins the jobs of a round: they connect, and wait for start.
func (s *Server) connect(e *engine.Engine, now *round, jobs []jobWant, targets []Targets) error {
	for i := range jobs {
		j := &jobs[i]
		if s.o.Transports[j.Transport] == nil {
			return fmt.Errorf("transport %q: this agent does not measure it", j.Transport)
		}
		if j.Spec.PairTime == 0 || j.Spec.PairTime > s.o.Limits.Duration {
			return fmt.Errorf("time for a pair: %v, 0 is no limit: this agent allows at most %v", j.Spec.PairTime, s.o.Limits.Duration)
		}
	}
	now.mu.Lock()
	defer now.mu.Unlock()
	if now.started || len(now.jobs) > 0 || now.ctx.Err() != nil {
		return errors.New("connect: the round has begun")
	}
	if err := s.reserve(now, jobs); err != nil {
		return err
	}
	for i := range jobs {
		j := &job{s: s, e: e, want: jobs[i], targets: targets, state: stateConnecting}
		now.jobs = append(now.jobs, j)
		now.running.Go(func() { j.run(now) })
	}
	return nil
}

// reserve checks jobs against the agent's limits and counts them; the round is locked.
func (s *Server) reserve(now *round, jobs []jobWant) error {
	bytes, rate := now.memory, int64(0)
	for i := range jobs {
		if jobs[i].Bytes > s.o.Limits.MemoryBytes-bytes {
			return pkgerr.Errorf("memory", "%d more bytes do not fit: %d are in use, and this agent allows %d for probes", jobs[i].Bytes, bytes, s.o.Limits.MemoryBytes)
		}
		bytes += jobs[i].Bytes
		limit := jobs[i].Spec.RateLimit
		if jobs[i].BothWays {
			limit *= 2
		}
		if most := s.o.Limits.BytesPerSec; most > 0 && (limit == 0 || limit > most-rate) {
			return fmt.Errorf("rate: this agent moves at most %d bytes/s, all its pairs together", most)
		}
		rate += limit
	}
	now.memory = bytes
	return nil
}

func (r *round) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.started {
		r.started = true
		close(r.begin)
	}
}

// poll returns the states of the jobs, with what the controller has not seen yet.
func (r *round) poll(has []seen) []jobState {
	r.mu.Lock()
	jobs := r.jobs
	r.mu.Unlock()
	by := map[int]seen{}
	for _, s := range has {
		by[s.ID] = s
	}
	out := make([]jobState, len(jobs))
	room := maxPollBytes
	for i, j := range jobs {
		out[i] = j.poll(by[j.want.ID], &room)
	}
	return out
}

// endRound ends a round of a lease.
func (s *Server) endRound(l *lease, now *round) {
	s.op.Lock()
	defer s.op.Unlock()
	now.end(s.o.Logger)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.round == now {
		l.round = nil
	}
}

// closeTime bounds the wait for memory of a round that peers still write to; they are cut off after it.
const closeTime = 10 * time.Second

// end stops the jobs, waits for them, and frees the memory.
func (r *round) end(log *slog.Logger) {
	r.once.Do(func() {
		r.cancel()
		r.running.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		for _, m := range r.regions {
			if err := m.Close(ctx); err != nil {
				log.Warn("probe: cannot free memory of a round", "region", m.Name(), "error", err)
			}
		}
	})
}

// linkStates are the states of the links, and what their counters counted since prepare.
func (r *round) linkStates() []linkStates {
	out := []linkStates{}
	for _, k := range r.looks {
		out = append(out, linkStates{k.id, k.at.Since()})
	}
	return out
}

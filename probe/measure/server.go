package measure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/self"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// ServerOptions say what an agent lets controllers do. Zero fields take defaults.
type ServerOptions struct {
	// Credentials are those of the agent's engine: initiators prove themselves to targets with them.
	Credentials func() *trust.Credentials
	// Transports are those that pairs can be measured over, by their names ("tcp", "rdma",
	// "shm"); each pair has an engine of its own with one of them. nil: tcp and shm.
	Transports map[string]engine.TransportFactory
	Limits     Limits // default 1 GiB of memory, 10 min for a pair, no limit of the rate
	// Targets are what controllers may have the agent connect to. TargetsOf, where it is not nil, narrows that
	// for a controller; false: it may not measure at all.
	Targets   Targets
	TargetsOf func(trust.PeerID) (Targets, bool)
	// Lease is how long a controller may be silent before all that it began is ended and
	// its memory is free; default 10 s.
	Lease time.Duration
	// Sysfs is where /sys is, for link states; default /sys.
	Sysfs  string
	Logger *slog.Logger // nil: silent
}

// The defaults of an agent.
const (
	defaultMemory   = 1 << 30
	defaultDuration = 10 * time.Minute
	defaultLease    = 10 * time.Second
)

// Server is the agent's side: it answers controllers' calls. One controller at a time has the lease, with
// one round at a time. Its methods may be called by many goroutines.
type Server struct {
	o     ServerOptions
	began time.Time // its monotonic clock is the server's

	connecting chan struct{} // has a place for each job that connects
	dials      *lane.Pacer

	// op is locked while a round is prepared or ended, which may take long.
	op sync.Mutex

	mu     sync.Mutex
	engine *engine.Engine // nil until Serve
	lease  *lease
	closed bool
	ending sync.WaitGroup // leases that ran out
}

// lease is the exclusive right of a controller to use the agent.
type lease struct {
	id, controller string
	heard          time.Duration
	timer          *time.Timer
	last           int64 // the number of the last round
	round          *round
	ending         bool // it is being ended
}

// NewServer makes a server that answers nothing until Serve. An engine with its Answer is an agent:
//
//	s := measure.NewServer(measure.ServerOptions{})
//	e, err := engine.New(ctx, engine.Options{Answer: s.Answer})
//	if err != nil { ... }
//	s.Serve(e)
//	defer s.Close()
//
// All peers that may call the engine may measure, unless TargetsOf says otherwise.
func NewServer(o ServerOptions) *Server {
	if o.Transports == nil {
		o.Transports = map[string]engine.TransportFactory{"tcp": engine.TCP(), "shm": engine.SHM()}
	}
	o.Limits.MemoryBytes = cmp.Or(o.Limits.MemoryBytes, defaultMemory)
	o.Limits.Duration = cmp.Or(o.Limits.Duration, defaultDuration)
	o.Lease = cmp.Or(o.Lease, defaultLease)
	o.Sysfs = cmp.Or(o.Sysfs, "/sys")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{o: o, began: time.Now(), connecting: make(chan struct{}, maxConnecting), dials: newPacer()}
}

// Serve sets the engine that serves memory to initiators; its Answer is the server's.
func (s *Server) Serve(e *engine.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine = e
}

// Close ends what a controller began and waits for it. Call it before the engine's Close.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	l := s.lease
	s.mu.Unlock()
	if l != nil {
		s.endLease(l)
	}
	s.ending.Wait()
}

func (s *Server) now() time.Duration { return time.Since(s.began) }

// Answer answers a controller's call; see engine.Serve.Answer. All of it may be hostile.
func (s *Server) Answer(ctx context.Context, from trust.PeerID, data []byte) ([]byte, error) {
	r, err := parseRequest(data)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	e, closed := s.engine, s.closed
	s.mu.Unlock()
	if e == nil || closed {
		return nil, errors.New("the agent is starting or stopping: try again")
	}
	targets := []Targets{s.o.Targets}
	if s.o.TargetsOf != nil && r.Do != doCPU { // which initiators ask
		own, may := s.o.TargetsOf(from)
		if !may {
			return nil, errors.New("this agent does not allow this controller to measure (--grants)")
		}
		targets = append(targets, own)
	}
	a := &answer{}
	switch r.Do {
	case doDescribe:
		a.Agent, err = s.describe(e)
	case doCPU:
		if cpu, ok := self.CPU(ctx); ok {
			a.CPUNS = new(int64(cpu))
		}
	case doLease:
		err = s.acquireLease(r, from)
		a.LeaseNS = int64(s.o.Lease)
	default:
		err = s.answerHolder(ctx, e, r, targets, a)
	}
	if err != nil {
		return nil, err
	}
	a.Schema, a.Epoch = callSchema, e.Epoch()
	return json.Marshal(a)
}

// answerHolder answers what only the holder of the lease may ask.
func (s *Server) answerHolder(ctx context.Context, e *engine.Engine, r *request, targets []Targets, a *answer) error {
	l, err := s.renewLease(r.Lease)
	if err != nil {
		return err
	}
	switch r.Do {
	case doRelease:
		s.endLease(l)
		return nil
	case doPrepare:
		return s.prepare(ctx, e, l, r, a)
	}
	s.mu.Lock()
	now := l.round
	s.mu.Unlock()
	if now == nil || now.number != r.Round {
		return fmt.Errorf("%s: round %d is not prepared here", clip(r.Do, 40), r.Round)
	}
	switch r.Do {
	case doConnect:
		return s.connect(e, now, r.Jobs, targets)
	case doPoll:
		a.Jobs = now.poll(r.Seen)
	case doStart:
		a.Load = lane.LoadNow()
		now.start()
	case doStop:
		now.cancel()
	case doEnd:
		a.Load = lane.LoadNow()
		s.endRound(l, now)
		a.Served, a.Links = servedBy(e), now.linkStates()
	default:
		return fmt.Errorf("unknown request %.40q", r.Do)
	}
	return nil
}

// describe says what this agent is.
func (s *Server) describe(e *engine.Engine) (*description, error) {
	d := &description{Name: e.Name(), Transports: []string{}, Endpoints: []endpoint{}, Limits: s.o.Limits}
	for _, err := range e.Unavailable() {
		d.Unavailable = append(d.Unavailable, err.Error())
	}
	offered := map[string]bool{}
	for _, a := range e.Advertised() {
		offered[string(a.Transport)] = true
		if a.Transport == "tcp" {
			d.Endpoints = append(d.Endpoints, endpoint{Port: a.Port, Address: a.Address})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.o.Transports)) {
		if offered[name] {
			d.Transports = append(d.Transports, name)
		}
	}
	if t := e.Topology(); t != nil {
		var err error
		if d.Topology, err = t.Encode(); err != nil {
			return nil, err
		}
		if most := engine.MaxAnswerBytes * 3 / 4; len(d.Topology) > most {
			return nil, fmt.Errorf("the topology has %d bytes: want at most %d", len(d.Topology), most)
		}
	}
	return d, nil
}

// servedBy is what the engine has moved for peers.
func servedBy(e *engine.Engine) *served {
	x := e.Stats()
	return &served{ReadBytes: x.ServedReadBytes, WrittenBytes: x.ServedWrittenBytes, Uncounted: x.ServedUncounted}
}

// acquireLease gives the lease to a controller, or renews it.
func (s *Server) acquireLease(r *request, from trust.PeerID) error {
	if len(r.Lease) < 16 {
		return fmt.Errorf("lease of %d bytes: want 16 or more", len(r.Lease))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lease
	switch {
	case s.closed:
		return errors.New("the agent is stopping")
	case l != nil && l.ending:
		return errors.New("the last controller's round is still ending: try again")
	case l != nil && l.id != r.Lease:
		silent := s.now() - l.heard
		return fmt.Errorf("%q is measuring (last heard from %v ago; its lease ends after %v)", l.controller, silent.Round(time.Second), s.o.Lease)
	case l != nil:
		s.extendLease(l)
		return nil
	}
	l = &lease{id: r.Lease, controller: cmp.Or(r.Controller, clip(from.Claimed, 40)), heard: s.now()}
	l.timer = time.AfterFunc(s.o.Lease, func() { s.expire(l) })
	s.lease = l
	s.o.Logger.Info("probe: a controller begins", "controller", l.controller)
	return nil
}

// renewLease finds the lease with this ID, and renews it.
func (s *Server) renewLease(id string) (*lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lease; l != nil && l.id == id && !l.ending && !s.closed {
		s.extendLease(l)
		return l, nil
	}
	return nil, errors.New("this controller has no lease: it was silent for too long, or the agent was restarted")
}

// extendLease restarts the time after which the lease ends; the mutex is held.
func (s *Server) extendLease(l *lease) {
	l.heard = s.now()
	l.timer.Reset(s.o.Lease)
}

// expire ends a lease whose controller was silent.
func (s *Server) expire(l *lease) {
	s.mu.Lock()
	if l.ending || s.closed || s.now()-l.heard < s.o.Lease {
		s.mu.Unlock()
		return // it was renewed, or is being ended
	}
	s.ending.Add(1)
	s.mu.Unlock()
	defer s.ending.Done()
	s.o.Logger.Warn("probe: the controller is silent: its round is ended", "controller", l.controller)
	s.endLease(l)
}

// endLease ends a lease and everything that depends on it, and waits.
func (s *Server) endLease(l *lease) {
	s.mu.Lock()
	l.ending = true
	l.timer.Stop()
	if l.round != nil {
		l.round.cancel()
	}
	s.mu.Unlock()
	s.op.Lock() // a round may just be made
	s.mu.Lock()
	now := l.round
	s.mu.Unlock()
	if now != nil {
		now.end(s.o.Logger)
	}
	s.op.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	l.round = nil
	if s.lease == l {
		s.lease = nil
		s.o.Logger.Info("probe: the controller has ended", "controller", l.controller)
	}
}

// topologyOf is what the engine knows of its host; never nil.
func topologyOf(e *engine.Engine) *topo.Topology {
	if t := e.Topology(); t != nil {
		return t
	}
	return &topo.Topology{}
}

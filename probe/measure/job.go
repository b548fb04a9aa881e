package measure

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/self"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// job is a pair that this agent initiates.
type job struct {
	s       *Server
	e       *engine.Engine // the agent's
	want    jobWant
	targets []Targets // each of which must allow an address

	// What it holds while it runs.
	engine *engine.Engine // its own
	lane   lane.Lane
	note   string

	mu      sync.Mutex
	state   string
	samples []probe.Sample
	result  *result
}

// How long a job may take to find its target, by one address and by all.
const (
	addressTime = 3 * time.Second
	connectTime = 15 * time.Second
)

// maxConnecting bounds how many jobs connect at a time: hundreds would be in each other's way.
const maxConnecting = 16

// run connects, waits for the others, and measures.
func (j *job) run(now *round) {
	select {
	case j.s.connecting <- struct{}{}:
	case <-now.ctx.Done():
		j.finish(outcome(probe.Measurement{}, errors.New("stopped before it connected")))
		return
	}
	limited, cancel := context.WithTimeoutCause(now.ctx, connectTime, fmt.Errorf("not connected within %v", connectTime))
	err := j.connect(limited)
	if cause := context.Cause(limited); err != nil && cause != nil {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	cancel()
	<-j.s.connecting
	defer j.close()
	if err != nil {
		j.finish(outcome(probe.Measurement{}, err))
		return
	}
	j.setState(stateReady)
	select {
	case <-now.begin:
	case <-now.ctx.Done():
		j.finish(outcome(probe.Measurement{}, errors.New("stopped before it began")))
		return
	}
	j.setState(stateRunning)
	// Later than the time for the pair, by which the lane ends by itself.
	ctx, end := context.WithTimeout(now.ctx, j.want.Spec.PairTime+connectTime)
	defer end()
	m := lane.Measure(ctx, j.lane, j.want.Spec, j.addSample)
	m.Binding = probe.Binding{Threads: 1, FromMemory: lane.BoundTo(j.lane.Local)}
	if j.note != "" {
		m.Notes = append(m.Notes, j.note)
	}
	j.finish(outcome(m, m.Err))
}

// outcome is a measurement as it is sent.
func outcome(m probe.Measurement, err error) *result {
	r := &result{Measurement: m}
	if m.Bandwidth == nil {
		r.Bandwidth = []probe.Bandwidth{}
	}
	var w lane.Waived
	switch {
	case errors.As(err, &w):
		r.Waived = clip(err.Error(), maxErrorText)
	case err != nil:
		r.Error, r.Cause = clip(err.Error(), maxErrorText), probe.CauseOf(err)
	}
	return r
}

// maxErrorText bounds the texts of errors that are sent.
const maxErrorText = 2 << 10

func (j *job) setState(state string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state = state
}

func (j *job) finish(r *result) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state, j.result = stateDone, r
}

func (j *job) addSample(s probe.Sample) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.samples = append(j.samples, s)
}

// poll returns what the controller has not seen, as far as it fits.
func (j *job) poll(has seen, room *int) jobState {
	const sampleBytes, measurementBytes = 64, 4 << 10 // about, as JSON
	j.mu.Lock()
	defer j.mu.Unlock()
	out := jobState{ID: j.want.ID, State: j.state}
	from := min(max(has.Samples, 0), len(j.samples))
	to := min(len(j.samples), from+max(0, *room/sampleBytes))
	out.Samples = j.samples[from:to:to]
	*room -= len(out.Samples) * sampleBytes
	if j.result != nil && !has.Result && to == len(j.samples) && *room > 0 {
		out.Result = j.result
		*room -= measurementBytes + len(j.samples)*20
	}
	return out
}

// connect creates the engine of a job, with memory, and finds the lane.
func (j *job) connect(ctx context.Context) error {
	want := &j.want
	transport := j.s.o.Transports[want.Transport]
	if want.LocalPort != "" {
		transport = engine.OnPort(transport, want.LocalPort)
	}
	for _, t := range j.targets {
		transport = engine.Within(transport, func(ctx context.Context, to netip.AddrPort) error { return t.allows(ctx, to.String()) })
	}
	var err error
	j.engine, err = engine.New(ctx, engine.Options{
		Name: fmt.Sprintf("%s-probe-%d-%d", j.e.Name(), os.Getpid(), want.ID), Security: engine.Security{Credentials: j.s.o.Credentials}, Ports: engine.Ports{Topology: j.e.Topology()},
		Logger: j.s.o.Logger, Transports: []engine.TransportFactory{transport}, GiveUp: want.GiveUp,
	})
	if err != nil {
		return waiveUnavailable(err)
	}
	p, address, err := j.open(ctx)
	if err != nil {
		return probe.Because(probe.CauseConnect, err)
	}
	o, note := regionAt(topologyOf(j.e), want.Location)
	j.note = note
	l := lane.Lane{Peer: p, Transport: want.Transport, BothWays: want.BothWays}
	if l.Local, err = j.engine.Alloc(want.Bytes, o); err != nil {
		return lane.Waive(err)
	}
	if l.Remote, err = p.Region(ctx, want.Region); err != nil {
		return err
	}
	if l.Name, err = lane.Isolate(j.engine, p, l.Local, l.Remote, want.Transport, want.LocalPort, want.RemotePort); err != nil {
		if at, bad := netip.ParseAddrPort(address); bad == nil && errors.Is(err, engine.ErrNoLane) && self.Address(at.Addr()) {
			err = lane.Waive(fmt.Errorf("both agents run on one machine, with no port between them: %w", err))
		}
		return waiveUnavailable(err)
	}
	if want.Alone {
		l.CPU = j.cpu(p)
	}
	j.lane = l
	// The connection is made before the round begins.
	b, err := p.Submit(ctx, []engine.Op{engine.WriteOp(l.Local.Span(0, 1), l.Remote.At(0))}, engine.SubmitOptions{Transport: pathsel.Transport(want.Transport)})
	if err == nil {
		<-b.Done()
		err = b.Err()
	}
	return probe.Because(probe.CauseConnect, err)
}

// waiveUnavailable marks the errors of a host that does not have what a pair needs.
func waiveUnavailable(err error) error {
	if errors.Is(err, engine.ErrUnavailable) {
		return lane.Waive(err)
	}
	return err
}

// open finds the target at one of its addresses. At some of them there may be another agent, of another
// network.
func (j *job) open(ctx context.Context) (p *engine.Peer, at string, err error) {
	var errs []error
	for _, address := range j.want.Addresses {
		if ctx.Err() != nil {
			break
		}
		if err := j.mayDial(ctx, address); err != nil {
			errs = append(errs, err)
			continue
		}
		limited, cancel := context.WithTimeout(ctx, addressTime)
		p, err := j.engine.Open(limited, address)
		cancel()
		if err == nil && p.Epoch() == j.want.Epoch {
			return p, address, nil
		}
		if err == nil {
			err = errors.Join(fmt.Errorf("the agent at %s is another one, %.40q", address, p.EngineName()), p.Close())
		}
		errs = append(errs, err)
	}
	return nil, "", fmt.Errorf("%s is not reached: %w", j.want.Host, errors.Join(errs...))
}

// mayDial says why an address is not dialled, and else waits until it may be.
func (j *job) mayDial(ctx context.Context, address string) error {
	for _, t := range j.targets {
		if err := t.allows(ctx, address); err != nil {
			return err
		}
	}
	return j.s.dials.Wait(ctx, 1)
}

// cpu asks for the processor time of both ends.
func (j *job) cpu(p *engine.Peer) func(context.Context) (time.Duration, bool) {
	ask, err := encodeRequest(&request{Do: doCPU})
	return func(ctx context.Context) (time.Duration, bool) {
		own, ok := self.CPU(ctx)
		if !ok || err != nil || j.want.Epoch == j.e.Epoch() {
			return own, ok && err == nil // both ends are this process
		}
		data, err := p.Call(ctx, ask)
		var a answer
		if err != nil || decode(data, maxAnswerEntries, &a) != nil || a.Schema != callSchema || a.CPUNS == nil || *a.CPUNS < 0 || *a.CPUNS > int64(maxCPU) {
			return 0, false
		}
		return own + time.Duration(*a.CPUNS), true
	}
}

// maxCPU is more processor time than any process takes.
const maxCPU = 1 << 61

func (j *job) close() {
	if j.engine == nil {
		return
	}
	if err := j.engine.Close(); err != nil {
		j.s.o.Logger.Warn("probe: cannot close the engine of a pair", "error", err)
	}
}

// Package local measures the paths of this host: memory from each NUMA node, GPUs, and
// between its ports.
//
// What is measured how:
//
//   - Memory: threads on the CPUs of To, memory of From. "read" loads a working set that no
//     cache holds; "copy" copies one half of it to the other with streaming stores, and
//     counts each byte twice, once loaded and once stored, as STREAM's copy does.
//   - Memory latency: each load's address is what the load before gave (pointer chase),
//     from one random cache line to the next, after the caches were emptied of them by
//     loading all else: load_ns are means of chaseLoads loads each, so that percentiles are
//     those of means.
//   - GPUs: copies by the driver between pinned memory and GPUs, or two GPUs, timed by
//     events on the GPU.
//   - Ports: two engines in this process, one at each port (see probe/internal/lane).
package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/cuda"
	"github.com/topoctl/topoctl/probe/internal/lane"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/probe"
)

// Options configure a Prober.
type Options struct {
	// Topology is this host's, derived.
	Topology *topo.Topology
	// CUDA gives the driver, or says why there is none; it is asked at most once, when
	// the first pair of a GPU is measured. nil: cuda.Load of the system's library.
	CUDA func() (*cuda.Lib, error)
	// Engine are the transports for pairs of ports; nil: those of an engine by default.
	Engine []engine.TransportFactory
	// Sysfs is where /sys is, for link states; "" is /sys.
	Sysfs string
	// Now is time since some moment, by a clock that nobody steps; nil: the system's.
	Now func() time.Duration
}

// Prober measures pairs of this host.
type Prober struct {
	o      Options
	system system
	// regionBytes is the memory at each end of a pair of ports, copyBytes that of copies
	// of GPUs.
	regionBytes, copyBytes int64

	cudaOnce sync.Once
	gpus     *gpus
	cudaErr  error

	arenas arenas

	mu      sync.Mutex
	engines map[engineKey]*engineAtPort
	closed  bool
	token   []byte
}

// New makes a Prober of this host. Call Close when done.
func New(o Options) (*Prober, error) {
	if o.Topology == nil {
		return nil, pkgerr.New("probe", "local: no topology: discover the host first")
	}
	if o.Topology.Origin != "live" {
		return nil, pkgerr.Errorf("probe", "local: the topology is of %q, not of this host as it is", o.Topology.Origin)
	}
	return newProber(o, thisSystem()), nil
}

func newProber(o Options, h system) *Prober {
	if o.CUDA == nil {
		o.CUDA = func() (*cuda.Lib, error) { return cuda.Load("") }
	}
	if o.Sysfs == "" {
		o.Sysfs = "/sys"
	}
	if o.Now == nil {
		o.Now = lane.Monotonic()
	}
	return &Prober{o: o, system: h, regionBytes: regionBytes, copyBytes: copyBytes, engines: map[engineKey]*engineAtPort{}, arenas: arenas{free: map[int]*arena{}}}
}

// waivef says why a pair cannot be measured on this host.
func waivef(format string, args ...any) error { return lane.Waive(fmt.Errorf(format, args...)) }

// job is a pair that is ready to be measured.
type job struct {
	measure func(ctx context.Context, spec probe.Spec, tell func(probe.Sample)) probe.Measurement
	close   func() error
}

// round is pairs that are measured at the same time.
type round struct {
	*Prober
	spec  probe.Spec
	began time.Duration // on Now
	alone bool          // there is one pair: the processor time of the process is its own
	ready sync.WaitGroup
}

// Round measures pairs at the same time; see run.Prober. Preparing them counts as part of their time, of
// which at least half is for measuring.
func (p *Prober) Round(ctx context.Context, pairs []probe.Pair, spec probe.Spec, tell func(pair int, s probe.Sample)) []probe.Measurement {
	r := &round{Prober: p, spec: spec, began: p.o.Now(), alone: len(pairs) == 1}
	freed := p.dropArenas(pairs)
	out := make([]probe.Measurement, len(pairs))
	var telling sync.Mutex
	var running sync.WaitGroup
	r.ready.Add(len(pairs))
	for i := range pairs {
		running.Go(func() {
			out[i] = r.measure(ctx, &pairs[i], func(s probe.Sample) {
				if tell != nil {
					telling.Lock()
					defer telling.Unlock()
					tell(i, s)
				}
			})
		})
	}
	running.Wait()
	if len(out) > 0 {
		out[0].Err = errors.Join(out[0].Err, freed)
	}
	return out
}

// dropArenas frees memory if no pair of a round needs it.
func (p *Prober) dropArenas(pairs []probe.Pair) error {
	if slices.ContainsFunc(pairs, func(x probe.Pair) bool { return x.Kind == probe.Memory }) {
		return nil
	}
	return p.arenas.freeAll()
}

// measure measures one pair together with the others: it begins when all are ready.
func (r *round) measure(ctx context.Context, pair *probe.Pair, tell func(probe.Sample)) probe.Measurement {
	j, err := r.prepare(ctx, pair)
	r.ready.Done()
	m := probe.Measurement{Bandwidth: []probe.Bandwidth{}, Links: []probe.LinkState{}}
	if err != nil {
		var w lane.Waived
		if errors.As(err, &w) {
			m.Waived = w.Error()
		} else {
			m.Err = pkgerr.Errorf("probe", "%s: %w", pair.ID, err)
		}
		return m
	}
	r.ready.Wait()
	spec := r.spec
	spec.PairTime = max(spec.PairTime-(r.o.Now()-r.began), (spec.PairTime+1)/2) // 0, no limit, stays 0
	links := lane.NewLinks(r.o.Topology, pair.From.Host, r.o.Sysfs).Look(pair.Path)
	before := r.system.load()
	m = j.measure(ctx, spec, tell)
	m.Processors = r.system.load().Since(before, pair.From.Host)
	m.Links = links.Since()
	m.Err = errors.Join(m.Err, j.close())
	if m.Err != nil {
		m.Err = pkgerr.Errorf("probe", "%s: %w", pair.ID, m.Err)
	}
	return m
}

// prepare acquires what a pair needs.
func (r *round) prepare(ctx context.Context, pair *probe.Pair) (*job, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	switch {
	case pair.Waived != "":
		return nil, lane.Waive(errors.New(pair.Waived))
	case pair.Kind == probe.Memory:
		return r.memory(pair)
	case pair.Kind == probe.GPU:
		return r.gpu(pair)
	case pair.Kind == probe.Port:
		return r.port(ctx, pair)
	}
	return nil, fmt.Errorf("kind %q: want memory, gpu or port", pair.Kind)
}

// Close frees what the Prober uses. No Round may be running.
func (p *Prober) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for _, e := range p.engines {
		errs = append(errs, e.engine.Close())
	}
	clear(p.engines)
	errs = append(errs, p.arenas.freeAll())
	if p.gpus != nil {
		errs = append(errs, p.gpus.close())
		p.gpus = nil
	}
	return errors.Join(errs...)
}

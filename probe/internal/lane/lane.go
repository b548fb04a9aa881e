// Package lane measures one lane between two engines: bandwidth by size, and round trips, in
// samples of a given time until there are enough.
// It is what probe/internal/local does within a host, and agents do between hosts.
//
// Isolate takes every other lane between an engine and its peer out of use, and Measure fails
// if bytes went another way nevertheless. Lanes are taken out by name: an engine that is
// used for several transports to one peer at the same time is in its own way, so that each
// measurement at a time has an engine of its own.
package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

// Lane is a lane to measure, and the memory at both ends.
type Lane struct {
	Peer   *engine.Peer
	Local  *engine.Region
	Remote *engine.RemoteRegion // of Peer
	// Transport and Name say which: see Isolate. Bytes go to the peer (WRITE).
	Transport, Name string
	// BothWays keeps the other direction as busy at the same time.
	BothWays bool
	// CPU is the processor time that the processes of both ends have taken so far; nil, or ok
	// false: not known. It is asked twice, and may ask another host.
	CPU func(ctx context.Context) (cpu time.Duration, ok bool)
	// Now is the clock; nil: the system's.
	Now func() time.Duration
}

// Waived is an error that says why a pair cannot be measured on this host: it lacks something, and nothing is broken.
type Waived struct{ error }

// Waive marks an error as a reason why a pair cannot be measured on this host.
func Waive(err error) error { return Waived{err} }

func (w Waived) Unwrap() error { return w.error }

// latencyBytes is the size of the ops whose round trips are timed.
const latencyBytes = 8

// Isolate takes every lane between an engine and one of its peers out of use except the one over a
// transport between two ports, and returns its name. Ports are those of the topologies; "" is any port, as
// for transports between processes of one host, which have none. local and remote are the regions that
// will be used. The error wraps engine.ErrUnavailable if the engine does not have the transport, and
// engine.ErrNoLane if there is no lane between the ports; both say why.
func Isolate(e *engine.Engine, p *engine.Peer, local *engine.Region, remote *engine.RemoteRegion, transport string, from, to topo.ID) (name string, err error) {
	x, err := p.Explain(local.Location(), remote.Location()) // this makes the lanes
	if err != nil {
		return "", err
	}
	var others, all []string
	for _, l := range p.Lanes() {
		all = append(all, fmt.Sprintf("%q", l.Lane))
		fits := string(l.Transport) == transport && (from == "" || l.LocalPort == from) && (to == "" || l.RemotePort == to)
		if fits && name == "" && l.Health != engine.LaneGone {
			name = l.Lane
		} else if l.Health != engine.LaneGone {
			others = append(others, l.Lane)
		}
	}
	if name == "" {
		return "", noLane(x, transport, from, to, all)
	}
	for _, l := range others {
		if l == name {
			return "", pkgerr.Errorf("probe", "lane: two lanes are called %q", name)
		}
		if err := e.Suspend(l); err != nil {
			return "", err
		}
	}
	return name, nil
}

const anyPort topo.ID = "any port"

// noLane says why there is no such lane, in the words of the engine.
func noLane(x *engine.Explanation, transport string, from, to topo.ID, all []string) error {
	has := false
	var why []string
	for _, r := range x.Routes {
		for i := range r.Groups {
			g := &r.Groups[i]
			if string(g.Transport) != transport {
				continue
			}
			has = true
			if g.Reason != "" {
				why = append(why, g.Reason)
			}
			why = append(why, g.Rejected...)
		}
	}
	if !has {
		return pkgerr.Errorf("probe", "lane: %s is %w: %s", transport, engine.ErrUnavailable, cmp.Or(strings.Join(x.Unavailable, "; "), "the engine was made without it"))
	}
	if len(why) == 0 {
		slices.Sort(all)
		why = []string{"the lanes are " + strings.Join(slices.Compact(all), ", ")}
	}
	return pkgerr.Errorf("probe", "lane: %w over %s from %s to the peer's %s: %s", engine.ErrNoLane, transport, cmp.Or(from, anyPort), cmp.Or(to, anyPort), strings.Join(why, "; "))
}

// Measure measures a lane: round trips first, while it is idle, then bandwidth by size. If it fails or ctx
// ends, it returns what was measured and an error. tell may be nil; it is called by one goroutine at a
// time, and not after Measure has returned. Binding and LinkStates are left to the caller.
func Measure(ctx context.Context, l Lane, spec probe.Spec, tell func(probe.Sample)) probe.Measurement {
	m := probe.Measurement{Bandwidth: []probe.Bandwidth{}, Links: []probe.LinkState{}}
	if m.Err = l.check(&spec); m.Err != nil {
		return m
	}
	if l.Now == nil {
		l.Now = Monotonic()
	}
	r := run{Lane: l, spec: &spec, tell: tell, m: &m, until: Deadline(l.Now, &spec)}
	before := l.Peer.Lanes()
	m.Err = r.measure(ctx)
	m.Err = errors.Join(m.Err, r.checkLanes(before, l.Peer.Lanes()))
	return m
}

func (l *Lane) check(spec *probe.Spec) error {
	room := min(l.Local.Size(), l.Remote.Size())
	need := int64(0)
	if len(spec.SizesBytes) > 0 {
		need = spec.SizesBytes[len(spec.SizesBytes)-1]
	}
	if spec.LatencySamples > 0 {
		need = max(need, latencyBytes)
	}
	if l.BothWays {
		need *= 2
	}
	if need > room {
		return pkgerr.Errorf("probe", "lane %s: %d bytes of memory are needed at each end, but there are %d here and %d at the peer: use smaller sizes",
			l.Name, need, l.Local.Size(), l.Remote.Size())
	}
	return nil
}

// run is one measurement.
type run struct {
	Lane
	spec  *probe.Spec
	tell  func(probe.Sample)
	m     *probe.Measurement
	until time.Duration // on Now, 0 never
}

// latencyPart says which part of the time for a pair round trips may take, 1/latencyPart.
const latencyPart = 4

func (r *run) measure(ctx context.Context) error {
	if r.spec.LatencySamples > 0 {
		if err := r.latency(ctx); err != nil {
			return err
		}
	}
	return Sizes(r.Now, r.spec, r.until, func(size int64, until time.Duration, last bool) error {
		return r.bandwidth(ctx, size, until, last)
	})
}

// latency times READs of a few bytes, one after the other. The first ones connect.
func (r *run) latency(ctx context.Context) error {
	until := Share(r.Now(), r.until, latencyPart)
	op := []engine.Op{engine.ReadOp(r.Local.Span(0, latencyBytes), r.Remote.At(0))}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if until > 0 { // also where nothing comes back
		defer cancelStalled(r.until-r.Now(), cancel)()
	}
	var samples []int64
	warm := r.Now() + r.spec.Warmup
	defer func() {
		if p := probe.NewPercentiles(samples); p != nil {
			r.m.Latency = &probe.Latency{SizeBytes: latencyBytes, RTT: p, OneWay: p.Half()}
		}
	}()
	for len(samples) < r.spec.LatencySamples {
		began := r.Now()
		if until > 0 && began >= until {
			r.m.Notes = append(r.m.Notes, fmt.Sprintf("%d of %d round trips were timed: there was no time for more", len(samples), r.spec.LatencySamples))
			return nil
		}
		if err := r.submit(ctx, op); err != nil {
			return err
		}
		if now := r.Now(); began >= warm {
			samples = append(samples, int64(now-began))
		}
	}
	return nil
}

// submit runs a batch. When ctx ends, the batch is cancelled and waited for: its memory is in use until
// then.
func (r *run) submit(ctx context.Context, ops []engine.Op) error {
	b, err := r.Peer.Submit(ctx, ops, engine.SubmitOptions{Transport: pathsel.Transport(r.Transport)})
	if err == nil {
		<-b.Done()
		err = b.Err()
	}
	if err != nil && ctx.Err() != nil {
		return stalledMoving(context.Cause(ctx))
	}
	return probe.Because(probe.CauseMove, err)
}

// stalledMoving adds the cause to an error that says that nothing arrived in time.
func stalledMoving(err error) error {
	if errors.Is(err, ErrStalled) {
		return probe.Because(probe.CauseMove, err)
	}
	return err
}

// checkLanes checks that all bytes went over the lane, and notes how many were sent again.
func (r *run) checkLanes(before, after []engine.LaneStats) error {
	var wrong []string
	for i := range after {
		a := &after[i]
		bytes, retries := a.Bytes, a.Retries
		if k := slices.IndexFunc(before, func(b engine.LaneStats) bool { return b.ID == a.ID }); k >= 0 {
			bytes, retries = bytes-before[k].Bytes, retries-before[k].Retries
		}
		switch ours := string(a.Transport) == r.Transport && a.Lane == r.Name; {
		case ours && retries > 0:
			r.m.Notes = append(r.m.Notes, fmt.Sprintf("%d slices were not delivered at first and were sent again", retries))
		case !ours && bytes > 0:
			wrong = append(wrong, fmt.Sprintf("%d bytes went over %s", bytes, a.Lane))
		}
	}
	if len(wrong) > 0 {
		return pkgerr.Errorf("probe", "lane %s: %s: not only this lane was measured", r.Name, strings.Join(wrong, ", "))
	}
	return nil
}

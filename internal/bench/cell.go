package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/units"
)

// end is a local engine and its view of the peer.
type end struct {
	batchTime time.Duration // at most
	engine    *engine.Engine
	local     *engine.Region
	peer      *engine.Peer
	remote    *engine.RemoteRegion
}

// cell is one measurement: an op of one size, over one transport.
type cell struct {
	r         *run
	op        engine.OpKind
	size      int64
	transport string
	layout    layout

	samples   samples
	latency   recorder
	ops       int64
	lanes     []LaneResult
	retries   int64
	fallbacks int64
	explained sync.Once // the first batch of any worker tells:
	checksum  string
	verifying sync.Mutex // guards the fields of verified
	verified  *Check
	faulted   *Fault
	err       error
	rounds    int // that were measured to their end
	workers   []*worker
}

func (c *cell) name() string { return describe(c.op.String(), c.size, c.transport) }

// round moves batches for a while; what a warm-up moves is not recorded. The error of a failed batch is c.err: only
// errors after which nothing more can be measured are returned. A batch that timed out takes its time from what is left
// for all.
func (c *cell) round(ctx context.Context, d time.Duration, record bool) error {
	r, e := c.r, c.r.end
	peerCPU, known := processCPU(r.o.ChildPID)
	stats, lanes := e.engine.Stats(), e.peer.Lanes()
	latency, fault := &recorder{}, (*FaultPlan)(nil)
	if record {
		latency, fault = &c.latency, r.o.Fault
	}
	start, cpu := time.Now(), selfCPU()
	m := newMeter(start, latency)
	r.watch.follow(m)
	if err := c.runWorkers(ctx, m, start.Add(d), fault); err != nil {
		c.err = err
	}
	if record {
		s := sample{bytes: m.bytes, elapsed: m.last.Sub(start), self: selfCPU() - cpu}
		if after, ok := processCPU(r.o.ChildPID); ok && known {
			s.peer, s.peerKnown = after-peerCPU, true
		}
		c.samples = append(c.samples, s)
		c.ops += m.ops
		after := e.engine.Stats()
		c.retries += after.Retries - stats.Retries
		c.fallbacks += after.Fallback - stats.Fallback
		if c.err == nil && ctx.Err() == nil {
			c.rounds++
		}
	}
	c.countLanes(lanes, e.peer.Lanes())
	if err := c.over(ctx); err != nil {
		return err
	}
	if errors.Is(c.err, context.DeadlineExceeded) {
		if r.left -= e.batchTime; r.left <= 0 {
			return noAnswer{&r.o}
		}
	}
	return nil
}

// over is why nothing more can be measured, nil where it can: a failed batch of one measurement says
// nothing of the others, unless the peer is gone.
func (c *cell) over(ctx context.Context) error {
	if errors.Is(c.err, engine.ErrPeerLost) || errors.Is(c.err, engine.ErrPeerRestarted) {
		c.err = &PeerGoneError{Peer: c.r.end.peer.Name(), During: c.name(), Err: c.err}
		return c.err
	}
	return ctx.Err()
}

// runWorkers runs a goroutine for each batch in flight, and the fault if there is one.
func (c *cell) runWorkers(ctx context.Context, m *meter, until time.Time, fault *FaultPlan) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running, faults sync.WaitGroup
	errs := make([]error, len(c.workers)+1)
	over := make(chan struct{})
	if fault != nil {
		faults.Go(func() { errs[len(c.workers)] = c.runFault(fault, m, over) })
	}
	for i, w := range c.workers {
		running.Go(func() {
			if err := w.run(ctx, m, until); err != nil && ctx.Err() == nil {
				errs[i] = err
				stop() // the others stop as well
			}
		})
	}
	running.Wait()
	close(over)
	faults.Wait()
	if fault != nil {
		c.faulted = m.fault(fault.Lane, time.Now())
	}
	return errors.Join(errs...)
}

// runFault suspends the lane and, after the planned time or at the end, resumes it.
func (c *cell) runFault(fault *FaultPlan, m *meter, over <-chan struct{}) error {
	wait := func(d time.Duration) bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return true
		case <-over:
			return false
		}
	}
	if !wait(fault.At) {
		return nil
	}
	m.setPhase(duringFault, time.Now())
	if err := c.r.end.engine.Suspend(fault.Lane); err != nil {
		return err
	}
	inTime := fault.For > 0 && wait(fault.For)
	if fault.For == 0 {
		<-over
	}
	err := c.r.end.engine.Resume(fault.Lane)
	if inTime {
		m.setPhase(afterFault, time.Now())
	}
	return err
}

// countLanes adds the difference between two readings of the lanes.
func (c *cell) countLanes(before, after []engine.LaneStats) {
	key := func(l *engine.LaneStats) string { return string(l.Transport+"\x00") + l.Lane }
	was := map[string]engine.LaneStats{}
	for i := range before {
		was[key(&before[i])] = before[i]
	}
	for i := range after {
		now := &after[i]
		old := was[key(now)]
		if now.Bytes == old.Bytes && now.Retries == old.Retries {
			continue
		}
		k := slices.IndexFunc(c.lanes, func(l LaneResult) bool { return l.Lane == now.Lane && l.Transport == string(now.Transport) })
		if k < 0 {
			k = len(c.lanes)
			c.lanes = append(c.lanes, LaneResult{Lane: now.Lane, Transport: string(now.Transport)})
		}
		c.lanes[k].Bytes += now.Bytes - old.Bytes
		c.lanes[k].Slices += now.Slices - old.Slices
		c.lanes[k].Retries += now.Retries - old.Retries
		if now.Connection != "" {
			c.lanes[k].Connection = now.Connection
		}
	}
	slices.SortFunc(c.lanes, func(a, b LaneResult) int {
		return strings.Compare(a.Transport+"\x00"+a.Lane, b.Transport+"\x00"+b.Lane)
	})
}

// usesTransport says whether a transport carried any of the ops, or was asked to.
func (c *cell) usesTransport(transport string) bool {
	return c.transport == transport || slices.ContainsFunc(c.lanes, func(l LaneResult) bool { return l.Transport == transport })
}

// streams is how many sockets carried the ops.
func (c *cell) streams() int {
	n := 0
	for _, l := range c.lanes {
		if l.Transport == "tcp" {
			n++
		}
	}
	return max(1, n)
}

// congestionControl is that of the sockets, nil without sockets.
func (c *cell) congestionControl() *string {
	var names []string
	for _, l := range c.lanes {
		if l.Transport == "tcp" {
			names = append(names, congestionWord.FindString(l.Connection))
		}
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" })
	if len(names) == 0 {
		return nil
	}
	all := strings.Join(names, ", ")
	return &all
}

// result is the measurement for the report.
func (c *cell) result() Result {
	all := c.samples.sum()
	r := Result{
		Op: c.op.String(), Transport: c.transport, Policy: pick.Adaptive, SizeBytes: c.size, Batch: c.r.o.batchFor(c.size), Threads: c.r.o.Threads, InFlight: c.r.o.InFlight,
		DurationNS: int64(all.elapsed), Bytes: all.bytes, Ops: c.ops, BytesPerSec: all.bytesPerSec(),
		RoundsBytesPerSec: c.samples.rates(), Latency: latencyOf(&c.latency),
		Complete: c.rounds == c.r.o.rounds(), Lanes: c.lanes, Checksum: c.checksum, CongestionControl: c.congestionControl(),
		Retries: c.retries, Fallbacks: c.fallbacks, Verified: c.verified, Fault: c.faulted,
	}
	if r.Lanes == nil {
		r.Lanes = []LaneResult{}
	}
	if all.elapsed > 0 {
		r.OpsPerSec = int64(float64(c.ops) / all.elapsed.Seconds())
	}
	if c.verified == nil { // verifying takes more time than moving
		r.LocalCPUSecondsPerGB = perGB(all.self, all.bytes)
		if all.peerKnown {
			r.PeerCPUSecondsPerGB = perGB(all.peer, all.bytes)
			r.CPUSecondsPerGB = perGB(all.self+all.peer, all.bytes)
		}
	}
	if c.err != nil {
		text := pkgerr.Message(c.err)
		r.Error = &text
	}
	return r
}

// recordCheck counts the verification of one op.
func (c *cell) recordCheck(bytes, wrong, at int64) {
	c.verifying.Lock()
	defer c.verifying.Unlock()
	v := c.verified
	v.Bytes += bytes
	if wrong == 0 {
		return
	}
	v.MismatchedBytes += wrong
	v.MismatchedOps++
	if v.First == nil {
		where := fmt.Sprintf("%s of %s: byte %d of the peer's region", c.op, units.Bytes(c.size), at)
		v.First = &where
	}
}

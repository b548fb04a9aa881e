package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/self"
	"github.com/topoctl/topoctl/internal/units"
)

// run is one run of the benchmark.
type run struct {
	o             Options
	end           *end
	verifier      *end          // nil unless every byte is verified
	raw           netip.Addr    // where raw sockets go; the zero Addr: nowhere
	rawCongestion string        // their congestion control
	copyTo        *memory.Block // what copies and raw sockets move to and from
	memory        int64         // used on each side
	fillTime      func(bytes int64) time.Duration
	report        *Report
	watch         watcher
	left          time.Duration // of Options.Timeout
}

const (
	stall     = 30 * time.Second     // the most that a batch may take
	unlimited = 365 * 24 * time.Hour // what is left without a timeout
)

// batchTime is how long the next batch may take.
func (r *run) batchTime() time.Duration { return max(time.Millisecond, min(stall, r.left)) }

// noAnswer is the error of a peer that does not answer within Options.Timeout.
type noAnswer struct{ o *Options }

func (e noAnswer) Error() string {
	return fmt.Sprintf("peer %q has not answered in %s", e.o.Peer, e.o.Timeout)
}

func (noAnswer) Unwrap() error { return context.DeadlineExceeded }

// Run measures. If something was measured it returns a report together with an error, such as
// the context's when the user stopped the run, or a *PeerGoneError.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &run{o: o, fillTime: fillTime, left: cmp.Or(o.Timeout, unlimited) - o.Waited}
	hide := func() {}
	err := r.open(ctx)
	if err == nil && o.Show != nil {
		if hide, err = o.Show(r.end.engine); hide == nil {
			hide = func() {}
		}
	}
	if err == nil {
		stop := r.watch.start(o.Progress)
		err = r.measure(ctx)
		stop()
	}
	hide()
	if r.report != nil {
		r.report.Complete = err == nil && !slices.ContainsFunc(r.report.Results, func(x Result) bool { return !x.Complete })
		if len(r.report.Results) == 0 && err != nil {
			r.report = nil
		}
	}
	return r.report, errors.Join(err, r.close())
}

// open makes the engine that measures, its memory, and its view of the peer; and another engine where every
// byte is verified, so that what that takes is not in the figures of the first.
func (r *run) open(ctx context.Context) error {
	o := &r.o
	var err error
	if r.end, err = r.dial(ctx); err != nil {
		return err
	}
	first := r.end
	r.memory = min(o.Memory, first.remote.Size())
	if first.local, err = first.engine.Alloc(r.memory, engine.RegionOptions{Name: "bench"}); err != nil {
		return err
	}
	if err := first.restrict(o.Lanes, o.LaneCount, o.Fault); err != nil {
		return err
	}
	r.report = &Report{
		Schema: Schema, Tool: o.Tool, StartedAt: o.Now().UTC(), CPUs: runtime.GOMAXPROCS(0),
		Peer: Peer{Name: first.peer.Name(), Address: o.Peer, Region: first.remote.Name(), OwnChild: o.ChildPID != 0},
		Memory: Memory{LocalBytes: r.memory, RemoteBytes: r.memory, WorkingSetBytes: 2 * r.memory, Layout: "scattered",
			PageBytes: first.local.Info().PageBytes, Notes: append([]string{}, first.local.Info().Notes...)},
		Unavailable: []string{}, Results: []Result{}, Ceilings: []Ceiling{},
	}
	for _, err := range first.engine.Unavailable() {
		r.report.Unavailable = append(r.report.Unavailable, err.Error())
	}
	if r.report.Host, err = os.Hostname(); err != nil {
		r.report.Host = ""
	}
	if o.Check {
		if r.verifier, err = r.dial(ctx); err != nil {
			return err
		}
	}
	if err := r.checkLayouts(); err != nil {
		return err
	}
	if r.copyTo, err = memory.Alloc(r.memory, memory.Options{}); err != nil {
		return pkgerr.Errorf("bench", "memory to copy to: %w", err)
	}
	if peer := first.peer.Address().Addr(); self.Address(peer) { // raw sockets reach this host alone
		r.report.Peer.SameHost, r.raw = true, peer
	}
	return nil
}

// dial makes an engine, opens the peer and finds the region.
func (r *run) dial(ctx context.Context) (*end, error) {
	o, batchTime := &r.o, r.batchTime()
	e, err := engine.New(ctx, engine.Options{Name: fmt.Sprintf("bench-%d", os.Getpid()), Security: engine.Security{Credentials: o.Credentials, Protection: o.Protection}, Ports: engine.Ports{Topology: o.Topology, Overlay: o.Overlay}, DefaultTimeout: batchTime, Transports: o.Engine, Registry: o.Registry})
	if err != nil {
		return nil, err
	}
	x := &end{engine: e, batchTime: batchTime}
	if err := r.reach(ctx, x); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if err := r.checkGrant(x); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return x, nil
}

// RegionTime is how long a peer that answers may take until it offers a region: it may have been started just now.
const RegionTime = 2 * time.Second

// reach opens the peer and finds the region. The time also bounds a peer that accepts and does not answer.
func (r *run) reach(ctx context.Context, x *end) error {
	limited, stop := context.WithTimeout(ctx, r.left)
	defer stop()
	began := time.Now()
	var err error
	if x.peer, err = x.engine.Open(limited, r.o.Peer); err == nil {
		waiting, stop := context.WithTimeout(limited, RegionTime)
		defer stop()
		x.remote, err = x.peer.Region(waiting, r.o.Region)
	}
	r.left -= time.Since(began)
	if err != nil && !errors.Is(err, engine.ErrNoRegion) && limited.Err() != nil && ctx.Err() == nil {
		return noAnswer{&r.o}
	}
	return err
}

// checkGrant refuses what the peer would refuse, before anything is measured.
func (r *run) checkGrant(x *end) error {
	g := x.remote.Grant()
	for _, op := range r.o.Ops {
		switch {
		case op == engine.Read && g&memory.PeerRead == 0:
			return pkgerr.Errorf("bench", "region %q of the peer may not be read", x.remote.Name())
		case op == engine.Write && g&memory.PeerWrite == 0:
			return pkgerr.Errorf("bench", "region %q of the peer may not be written", x.remote.Name())
		}
	}
	if r.o.Check && g != memory.PeerRead|memory.PeerWrite {
		return pkgerr.Errorf("bench", "verifying needs to read and write region %q of the peer, which does not allow both", x.remote.Name())
	}
	return nil
}

// checkLayouts refuses what does not fit into memory, before anything is measured.
func (r *run) checkLayouts() error {
	for _, size := range r.o.Sizes {
		if _, err := r.layout(size); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) layout(size int64) (layout, error) {
	return newLayout(r.memory, size, r.o.Threads*r.o.InFlight, r.o.batchFor(size))
}

// close closes everything that was opened.
func (r *run) close() error {
	var errs []error
	for _, e := range []*end{r.verifier, r.end} {
		if e != nil {
			errs = append(errs, e.engine.Close())
		}
	}
	if r.copyTo != nil {
		errs = append(errs, r.copyTo.Free())
	}
	return errors.Join(errs...)
}

// restrict suspends every lane that was not asked for, and finds the lane of a fault.
func (x *end) restrict(names []string, count int, fault *FaultPlan) error {
	plan, err := x.peer.Explain(x.local.Location(), x.remote.Location())
	if err != nil {
		return err
	}
	byTransport := map[string][]string{}
	var all []string
	for _, route := range plan.Routes {
		for _, g := range route.Groups {
			for _, l := range g.Lanes {
				byTransport[string(g.Transport)] = append(byTransport[string(g.Transport)], l.Lane) // best first
				all = append(all, l.Lane)
			}
		}
	}
	if fault != nil {
		if fault.Lane, err = findLane(all, fault.Lane); err != nil {
			return err
		}
	}
	keep := map[string]bool{}
	for i, n := range names {
		if names[i], err = findLane(all, n); err != nil {
			return err
		}
		keep[names[i]] = true
	}
	for _, lanes := range byTransport {
		for i, lane := range lanes {
			if len(names) > 0 && !keep[lane] || count > 0 && i >= count {
				if err := x.engine.Suspend(lane); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// findLane finds a lane by its name, or by its local port if only one lane has it.
func findLane(lanes []string, name string) (string, error) {
	if slices.Contains(lanes, name) {
		return name, nil
	}
	var found []string
	for _, l := range lanes {
		local, _, ok := strings.Cut(l, " > ")
		_, port, _ := strings.Cut(local, " ") // "rdma mlx5_0": of a transport with ports of its own
		if ok && (local == name || port == name) && !slices.Contains(found, l) {
			found = append(found, l)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	slices.Sort(lanes)
	return "", pkgerr.Errorf("bench", "%w", &UnknownLaneError{Name: name, Lanes: slices.Compact(lanes)})
}

// describe says what a group of measurements is about.
func describe(op string, size int64, what string) string {
	return fmt.Sprintf("%s %s, %s", op, units.Bytes(size), what)
}

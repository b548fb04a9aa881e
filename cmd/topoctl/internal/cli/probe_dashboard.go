package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/measure/local"
	"github.com/topoctl/topoctl/internal/measure/plan"
	proberun "github.com/topoctl/topoctl/internal/measure/run"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/tui"
)

// probeTarget is where pairs are. Its calls come one at a time.
type probeTarget interface {
	// pairs lists them. An error beside them says what is missing.
	pairs(ctx context.Context) (*plan.Pairs, error)
	// prober gives who measures them, and what to do when that is over.
	prober(ctx context.Context) (proberun.Prober, func() error, error)
	// hosts are as they are now, until that is over; nil: those of the plan.
	hosts() func() []probe.Host
}

// newDashboardProber gives the prober of the dashboard, and what to close after it: it measures between the
// hosts that flags name, else what this host has. Where nothing can be measured, as notLive may say,
// there is none, and why says so. An error is one of the flags. Nobody is connected to, and nothing is
// opened, before the prober is asked for pairs.
func newDashboardProber(ctx context.Context, in *Host, hosts agentFlags, notLive string) (p tui.Prober, closer io.Closer, why string, err error) {
	m := measuring{Host: quietHost(in), spec: local.DefaultSpec(), rules: probe.DefaultRules(), flags: measureFlags{schedule: plan.ByLink}}
	ports := portFlags{transport: bench.Auto, memory: plan.OnCPU}
	switch {
	case hosts.file == "-" || hosts.credentials.Files.Token == "-":
		return nil, nil, "", errors.New("--hosts and --token-file cannot be standard input, from which the dashboard reads keys")
	case notLive != "":
		return nil, nil, notLive, nil
	case in.Globals.Described():
		return nil, nil, "only the running host can be measured", nil
	}
	var where probeTarget = &localTarget{o: probeLocalOptions{measuring: m, kinds: pairKinds, ports: ports}}
	if hosts.given() { // warnings go to in, whose streams are ours until the dashboard begins
		if where, err = newFleetTarget(ctx, probeFabricOptions{measuring: m, ports: ports, rails: plan.RailsAll, hosts: hosts}, in.Streams.Err); err != nil {
			return nil, nil, "", err
		}
	}
	x := &dashboardProber{m: m, target: where}
	x.closing, x.stop = context.WithCancel(context.Background())
	return x, x, "", nil
}

// dashboardProber measures for the dashboard. Its methods may be called by many goroutines.
type dashboardProber struct {
	m       measuring
	closing context.Context
	stop    context.CancelFunc

	busy   sync.Mutex // the target
	target probeTarget
	closed bool

	mu  sync.Mutex
	all *plan.Pairs // nil: not asked yet
}

var errBusy = errors.New("another probe is running: wait for it or stop it")

// hold takes hold of the target until release is called. ctx ends with the prober.
func (x *dashboardProber) hold(ctx context.Context) (held context.Context, release func(), err error) {
	if !x.busy.TryLock() {
		return nil, nil, errBusy
	}
	if x.closed {
		x.busy.Unlock()
		return nil, nil, errors.New("the prober is closed")
	}
	held, cancel := context.WithCancel(ctx)
	after := context.AfterFunc(x.closing, cancel)
	return held, func() {
		after()
		cancel()
		x.busy.Unlock()
	}, nil
}

// Pairs says what can be measured, those that are waived included. An error beside them
// says what is missing.
func (x *dashboardProber) Pairs(ctx context.Context) ([]probe.Pair, error) {
	ctx, release, err := x.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	all, err := x.target.pairs(ctx)
	if all == nil {
		return nil, advised(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = all
	return slices.Clone(all.Pairs), advised(err)
}

// advised is an error with its advice in the same line.
func advised(err error) error {
	if hint := Hint(err); hint != "" {
		return fmt.Errorf("%w: %s", err, hint)
	}
	return err
}

// Plan says what measuring these pairs takes.
func (x *dashboardProber) Plan(pairs []string) (probe.Plan, error) {
	p, err := x.plan(pairs)
	if err != nil {
		return probe.Plan{}, err
	}
	return p.Summary(), nil
}

// plan lays out the pairs of some IDs.
func (x *dashboardProber) plan(ids []string) (*plan.Plan, error) {
	x.mu.Lock()
	all := x.all
	x.mu.Unlock()
	if all == nil {
		return nil, errors.New("the pairs are not known yet")
	}
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	own := *all
	own.Pairs = slices.DeleteFunc(slices.Clone(all.Pairs), func(p probe.Pair) bool { return !wanted[p.ID] })
	if len(own.Pairs) < len(wanted) || len(own.Pairs) == 0 {
		return nil, fmt.Errorf("%d of %s still exist: list them again", len(own.Pairs), text.Plural(len(wanted), "pair"))
	}
	if len(own.Pairs) < len(all.Pairs) { // what there are no pairs of is no news of these
		own.Rejected = nil
	}
	return x.m.layout(&own)
}

// Run measures pairs. It returns soon after ctx ended, with nil: what was measured is told.
func (x *dashboardProber) Run(ctx context.Context, pairs []string, tell func(*probe.Event)) error {
	held, release, err := x.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	p, err := x.plan(pairs)
	if err != nil {
		return err
	}
	prober, done, err := x.target.prober(held)
	if err != nil {
		return advised(err)
	}
	o := x.m.options(p, prober, x.target.hosts())
	o.Event = tell
	_, err = proberun.Run(held, o)
	return errors.Join(unlessCanceled(err), done())
}

// Close stops what runs, and waits until it has given all back.
func (x *dashboardProber) Close() error {
	x.stop()
	x.busy.Lock()
	defer x.busy.Unlock()
	x.closed = true
	return nil
}

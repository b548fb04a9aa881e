package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/measure"
	"github.com/topoctl/topoctl/probe/plan"
	"github.com/topoctl/topoctl/tui"
)

// openProber is a prober, and what it holds.
type openProber interface {
	measure.Prober
	io.Closer
}

// newDashboardProber gives the prober of the dashboard, and what to close after it: it measures between the
// hosts that flags name, else what this host has. Where nothing can be measured, as notLive may say,
// there is none, and why says so. An error is one of the flags. Nobody is connected to, and nothing is
// opened, before the prober is asked for pairs.
func newDashboardProber(ctx context.Context, in *Host, hosts agentFlags, notLive string) (p tui.Prober, closer io.Closer, why string, err error) {
	m := measuring{Host: quietHost(in), spec: probe.DefaultSpec(), rules: probe.DefaultRules()}
	switch {
	case hosts.file == "-" || hosts.credentials.Files.Token == "-":
		return nil, nil, "", errors.New("--hosts and --token-file cannot be standard input, from which the dashboard reads keys")
	case notLive != "":
		return nil, nil, notLive, nil
	case in.Globals.Described():
		return nil, nil, "only the running host can be measured", nil
	}
	x := &dashboardProber{m: m, open: m.openLocal}
	if hosts.given() { // warnings go to in, whose streams are ours until the dashboard begins
		if x.open, err = hosts.opener(ctx, m.Host, in.Streams.Err); err != nil {
			return nil, nil, "", err
		}
	}
	x.closing, x.stop = context.WithCancel(context.Background())
	return x, x, "", nil
}

// openLocal gives a prober of this host as it is now.
func (o *measuring) openLocal(ctx context.Context) (openProber, error) {
	t, err := o.Find(ctx)
	if err != nil {
		return nil, err
	}
	return o.localProber(t, plan.LocalOptions{}, new(RDMA).Factories(bench.Auto))
}

// opener reads the flags, and gives what opens their agents. An agent takes orders of one controller at a time, and
// others want to measure beside a dashboard that is left open: each use opens them anew.
func (h *agentFlags) opener(ctx context.Context, in *Host, warn io.Writer) (func(context.Context) (openProber, error), error) {
	fabric := probeFabricOptions{measuring: measuring{Host: in}, hosts: *h}
	to, _, err := fabric.listHosts(ctx)
	if err != nil {
		return nil, err
	}
	if len(to) < 2 {
		return nil, withHint(fmt.Errorf("%s: want two or more", text.Plural(len(to), "host")), "to include this host, run an agent on it")
	}
	loud := *in
	loud.Streams.Err = warn
	credentials, err := h.credentials.Read(ctx, &loud, nil)
	return func(ctx context.Context) (openProber, error) {
		fleet, err := measure.Hosts(ctx, measure.HostsOptions{Hosts: to, Credentials: credentials})
		if err != nil {
			return nil, openHint(pkgerr.Plain(err), false)
		}
		return fleet, nil
	}, err
}

// dashboardProber measures for the dashboard. Its methods may be called by many goroutines.
type dashboardProber struct {
	m       measuring
	closing context.Context
	stop    context.CancelFunc

	open   func(context.Context) (openProber, error)
	busy   sync.Mutex // what open opens
	closed bool

	mu  sync.Mutex
	all *plan.Pairs // nil: not asked yet
}

var errBusy = errors.New("another probe is running: wait for it or stop it")

// hold takes hold of what measures until release is called. ctx ends with the prober.
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
	prober, err := x.open(ctx)
	if err != nil {
		return nil, advised(err)
	}
	all, err := prober.Pairs(ctx)
	err = errors.Join(err, prober.Close())
	if all == nil {
		return nil, advised(planHint(err))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = all
	return slices.Clone(all.Pairs), advised(err)
}

// advised is an error as people read it, with its advice in the same line.
func advised(err error) error {
	if err == nil {
		return nil
	}
	err = pkgerr.Plain(err)
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
	p, err := x.m.layout(all.Select(ids))
	return p, advised(err)
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
	prober, err := x.open(held)
	if err != nil {
		return advised(err)
	}
	o := x.m.options(p)
	o.Event = tell
	_, err = measure.Run(held, prober, o)
	return errors.Join(unlessCanceled(err), advised(prober.Close()))
}

// Close stops what runs, and waits until it has given all back.
func (x *dashboardProber) Close() error {
	x.stop()
	x.busy.Lock()
	defer x.busy.Unlock()
	x.closed = true
	return nil
}

package measure

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/hostlist"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/plan"
)

// HostsOptions say which hosts are measured, and how their agents are reached.
type HostsOptions struct {
	Hosts []probe.Host       // their names and the addresses of their agents (HOST:PORT)
	Pairs plan.FabricOptions // which pairs are measured; the zero value: all
	// Credentials are what this controller shows to the agents, and demands of them; nil: none.
	Credentials func() *trust.Credentials
	// DialTime is how long one agent may take to answer; default 10 s, 30 s if it is
	// started first.
	DialTime time.Duration
	// Launch starts the agents, nil: they run.
	Launch *Launch
	// Registry finds the agents by the names of Hosts; nil: by their addresses.
	Registry registry.Registry

	giveUp time.Duration // that an agent may be unreachable before it is lost; default 5 s
}

// Agent is what is known of a host and its agent. Topology is nil where Error is not "".
type Agent struct {
	probe.Host
	Topology *topo.Topology
	// Transports are those that it can measure, Unavailable says why others are missing.
	Transports  []string
	Unavailable []string
	Limits      Limits
	// NoRDMA says why the pairs of a host with RDMA devices are measured over TCP, unless another transport is
	// asked for; "": they are not.
	NoRDMA string
}

// Fleet is a Prober of the ports of hosts with each other, by the agents on them. An agent takes orders of one Fleet at
// a time. Its methods may be called by many goroutines.
type Fleet struct {
	pairs  plan.FabricOptions
	engine *engine.Engine
	lease  string
	giveUp time.Duration
	agents []*agent
	by     map[string]*agent

	rounds  sync.Mutex // one at a time
	last    int64      // the number of the last one
	cancel  context.CancelFunc
	keeping sync.WaitGroup
	once    sync.Once
	closed  error
}

// agent is the agent of one host as the controller sees it.
type agent struct {
	name     string
	address  string
	lease    string
	peer     *engine.Peer   // nil: never reached
	launched *launchedAgent // nil: it was running

	endpoints    []endpoint
	keepInterval time.Duration // that its lease is kept

	mu   sync.Mutex
	host Agent
	err  error // why it takes no part (any more)
}

// MaxHosts is how many hosts one run measures between, at most.
const MaxHosts = 256

// defaultPort is where agents listen by default.
const defaultPort = "7411"

const (
	defaultDial   = 10 * time.Second
	defaultLaunch = 30 * time.Second
	defaultGiveUp = 5 * time.Second
	minLease      = 100 * time.Millisecond
	maxLease      = time.Hour
)

// Hosts opens all agents at once: those that "topoctl agent --serve-probes" starts, or of programs that have a Server. An agent that cannot be reached costs only its own pairs (Host.Error); it
// is an error if none can be reached, or if two of them are the same agent. Call Close in the end.
func Hosts(ctx context.Context, o HostsOptions) (*Fleet, error) {
	if err := checkHosts(o.Hosts, o.Registry != nil); err != nil {
		return nil, err
	}
	if o.Launch != nil {
		o.DialTime = cmp.Or(o.DialTime, defaultLaunch)
	}
	o.DialTime, o.giveUp = cmp.Or(o.DialTime, defaultDial), cmp.Or(o.giveUp, defaultGiveUp)
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return nil, pkgerr.Errorf("measure", "%w", err)
	}
	e, err := engine.New(ctx, engine.Options{Security: engine.Security{Credentials: o.Credentials}, Transports: []engine.TransportFactory{engine.TCP()}, GiveUp: o.giveUp, Registry: o.Registry})
	if err != nil {
		return nil, pkgerr.Errorf("measure", "%w", err)
	}
	f := &Fleet{pairs: o.Pairs, engine: e, lease: hex.EncodeToString(raw), giveUp: o.giveUp, by: map[string]*agent{}}
	for _, h := range o.Hosts {
		a := &agent{name: h.Name, address: h.Address, lease: f.lease, host: Agent{Host: probe.Host{Name: h.Name, Address: h.Address}}}
		f.agents = append(f.agents, a)
		f.by[h.Name] = a
	}
	keep, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	inParallel(f.agents, func(a *agent) { a.open(ctx, f, &o) })
	if err := f.check(ctx); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for _, a := range f.agents {
		if a.lost() == nil {
			f.keeping.Go(func() { a.keepLease(keep) })
		}
	}
	return f, nil
}

// checkHosts refuses lists that cannot be of different agents. Two that are found by name may have an address in
// common, such as that of a bridge.
func checkHosts(hosts []probe.Host, byName bool) error {
	if len(hosts) == 0 || len(hosts) > MaxHosts {
		return pkgerr.Errorf("measure", "%d hosts: want 1 to %d", len(hosts), MaxHosts)
	}
	names, addresses := map[string]bool{}, map[string]string{}
	for _, h := range hosts {
		if err := hostlist.CheckName(h.Name); err != nil {
			return pkgerr.Errorf("measure", "host: %w", err)
		}
		if names[h.Name] {
			return pkgerr.Errorf("measure", "two hosts are called %q", h.Name)
		}
		if other, ok := addresses[h.Address]; ok && !byName {
			return pkgerr.Errorf("measure", "hosts %q and %q are both at %s", other, h.Name, h.Address)
		}
		names[h.Name], addresses[h.Address] = true, h.Name
	}
	return nil
}

// inParallel runs f for all elements at once, and waits.
func inParallel[T any](list []T, f func(T)) {
	var running sync.WaitGroup
	for _, x := range list {
		running.Go(func() { f(x) })
	}
	running.Wait()
}

// check says whether any agent can be used.
func (f *Fleet) check(ctx context.Context) error {
	if ctx.Err() != nil {
		return pkgerr.Errorf("measure", "opening the agents: %w", context.Cause(ctx))
	}
	epochs := map[uint64]*agent{}
	var errs []error
	for _, a := range f.agents {
		if a.peer != nil {
			if other := epochs[a.peer.Epoch()]; other != nil {
				return pkgerr.Errorf("measure", "%s (%s) and %s (%s) are the same agent: each host needs its own", other.name, other.address, a.name, a.address)
			}
			epochs[a.peer.Epoch()] = a
		}
		if err := a.lost(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == len(f.agents) {
		return pkgerr.Errorf("measure", "no agent can be used: %w", errors.Join(errs...))
	}
	return nil
}

// open reaches an agent, asks what it is, and acquires its lease.
func (a *agent) open(ctx context.Context, f *Fleet, o *HostsOptions) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.DialTime, fmt.Errorf("no answer within %v", o.DialTime))
	defer cancel()
	if err := a.reach(ctx, f, o); err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		a.fail(err)
	}
}

func (a *agent) reach(ctx context.Context, f *Fleet, o *HostsOptions) error {
	if o.Launch != nil {
		var err error
		if a.launched, err = o.Launch.start(ctx, a.address, o.Credentials); err != nil {
			return err
		}
		a.address = a.launched.address
	}
	at := a.address
	if o.Registry != nil {
		at = a.name
	}
	var err error
	if a.peer, err = f.engine.Open(ctx, at); err != nil {
		return err
	}
	if o.Registry != nil {
		a.address = a.peer.Address().String()
	}
	if a.launched != nil && a.peer.Epoch() != a.launched.epoch {
		return fmt.Errorf("the agent at %s is not the one that was started", a.address)
	}
	said, err := a.call(ctx, &request{Do: doDescribe})
	if err != nil {
		return err
	}
	if err := a.setDescription(said.Agent); err != nil {
		return fmt.Errorf("its description: %w", err)
	}
	said, err = a.call(ctx, &request{Do: doLease, Controller: f.engine.Name()})
	if err != nil {
		return err
	}
	lease := time.Duration(said.LeaseNS)
	if lease < minLease || lease > maxLease {
		return fmt.Errorf("a lease of %v: want %v to %v", lease, minLease, maxLease)
	}
	a.keepInterval = min(keepTime, lease/4)
	return nil
}

// setDescription checks and stores what an agent says about itself.
func (a *agent) setDescription(d *description) error {
	switch {
	case d == nil:
		return errors.New("nothing")
	case len(d.Transports) > 16 || len(d.Unavailable) > 16 || len(d.Endpoints) > 4096:
		return fmt.Errorf("%d transports, %d missing ones, %d endpoints", len(d.Transports), len(d.Unavailable), len(d.Endpoints))
	case d.Limits.BytesPerSec < 0 || d.Limits.Duration <= 0 || d.Limits.MemoryBytes < 0:
		return fmt.Errorf("limits %+v", d.Limits)
	}
	h := Agent{Host: probe.Host{Name: a.name, Address: a.address}, Limits: d.Limits, Topology: &topo.Topology{}}
	for _, t := range d.Transports {
		if err := checkText("transport", t); err != nil {
			return err
		}
		h.Transports = append(h.Transports, t)
	}
	for _, u := range d.Unavailable {
		h.Unavailable = append(h.Unavailable, clip(u, maxText))
	}
	for _, e := range d.Endpoints {
		if _, err := hostlist.WithPort(e.Address, defaultPort); err != nil {
			return err
		}
		a.endpoints = append(a.endpoints, e)
	}
	if len(d.Topology) > 0 {
		t, err := topo.Decode(d.Topology)
		if err != nil {
			return err
		}
		h.Topology = t
		h.Fingerprint = t.Fingerprint()
	}
	if h.Topology.Derived == nil {
		h.Topology.Derive()
	}
	h.NoRDMA = h.noRDMA()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.host = h
	return nil
}

// noRDMA says why RDMA devices of the host cannot be used, "" if they can or if it has none.
func (a *Agent) noRDMA() string {
	if slices.Contains(a.Transports, probe.RDMA) {
		return ""
	}
	if h, err := pathsel.New(a.Topology, pathsel.Options{}); err != nil || h.Transport() != pathsel.RDMA {
		return ""
	}
	why := "its agent does not offer it"
	if len(a.Unavailable) > 0 {
		why = strings.Join(a.Unavailable, "; ")
	}
	return fmt.Sprintf("%s has RDMA devices that cannot be used (%s); its pairs are measured over TCP", a.Name, why)
}

// fail excludes a host for the rest of the run; the first reason stays.
func (a *agent) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = fmt.Errorf("%s: %w", a.name, err)
		a.host.Error = clip(err.Error(), maxErrorText)
	}
}

// lost is the reason why a host takes no part, nil if it does.
func (a *agent) lost() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// keepLease renews the lease in intervals, and notices when the agent is gone.
func (a *agent) keepLease(ctx context.Context) {
	tick := time.NewTicker(a.keepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.peer.Done():
			a.fail(a.peer.Err())
			return
		case <-tick.C:
		}
		limited, cancel := context.WithTimeout(ctx, callTime)
		_, err := a.call(limited, &request{Do: doLease})
		cancel()
		var refused *engine.RemoteError
		if errors.As(err, &refused) && ctx.Err() == nil {
			a.fail(err)
			return
		}
	}
}

const (
	keepTime = 2 * time.Second
	// callTime bounds a call that an agent answers at once.
	callTime = 10 * time.Second
)

// Agents lists the agents in the order of HostsOptions.Hosts, as they are now.
func (f *Fleet) Agents() []Agent {
	out := make([]Agent, len(f.agents))
	for i, a := range f.agents {
		out[i] = a.known()
	}
	return out
}

// Hosts lists the hosts in the order of HostsOptions.Hosts, as they are now.
func (f *Fleet) Hosts() []probe.Host {
	out := make([]probe.Host, len(f.agents))
	for i, a := range f.agents {
		out[i] = a.known().Host
	}
	return out
}

// TooFewError says that fewer than two agents can be used.
type TooFewError struct{ Usable, Agents int }

func (e *TooFewError) Error() string {
	return fmt.Sprintf("%s of %d can be used: want two or more", text.Plural(e.Usable, "agent"), e.Agents)
}

// Pairs lists the pairs of ports of the hosts whose agents can be used. An error beside them names the other hosts. One
// without pairs is a TooFewError, or of plan.Fabric.
func (f *Fleet) Pairs(context.Context) (*plan.Pairs, error) {
	var hosts []plan.Host
	var lost []error
	var notes []string
	for _, a := range f.Agents() {
		if a.Error != "" {
			lost = append(lost, fmt.Errorf("%s does not take part: %s", a.Name, a.Error))
			continue
		}
		h := plan.Host{Name: a.Name, Topology: a.Topology}
		if a.NoRDMA != "" && f.pairs.Transport == pathsel.Auto {
			h.Transport = pathsel.TCP
			notes = append(notes, probe.PartialNote+a.NoRDMA)
		}
		hosts = append(hosts, h)
	}
	if len(hosts) < 2 {
		return nil, errors.Join(append([]error{&TooFewError{len(hosts), len(f.agents)}}, lost...)...)
	}
	pairs, err := plan.Fabric(hosts, f.pairs)
	if err != nil {
		return nil, err
	}
	pairs.Notes = append(pairs.Notes, notes...)
	return pairs, errors.Join(lost...)
}

// known is what is known of an agent's host now.
func (a *agent) known() Agent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.host
}

// releaseTime bounds how long an agent may take to free everything.
const releaseTime = 15 * time.Second

// Close gives the leases back and stops the agents that were started. No Round may be running.
func (f *Fleet) Close() error {
	f.once.Do(func() {
		f.cancel()
		f.keeping.Wait()
		var mu sync.Mutex
		var errs []error
		inParallel(f.agents, func(a *agent) {
			var err error
			if a.peer != nil && a.peer.Err() == nil {
				ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
				_, _ = a.call(ctx, &request{Do: doRelease}) // its lease ends by itself, too
				cancel()
				_ = a.peer.Close()
			}
			if a.launched != nil {
				err = a.launched.stop()
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, pkgerr.Errorf("measure", "%s: %w", a.name, err))
			}
		})
		f.closed = errors.Join(append(errs, f.engine.Close())...)
	})
	return f.closed
}

// call asks an agent. An agent that is gone, or whose answer is invalid, takes no part any more. Errors do
// not name the host.
func (a *agent) call(ctx context.Context, r *request) (*answer, error) {
	r.Lease = a.lease
	data, err := encodeRequest(r)
	if err != nil {
		return nil, err
	}
	got, err := a.peer.Call(ctx, data)
	var refused *engine.RemoteError
	switch {
	case errors.As(err, &refused):
		return nil, fmt.Errorf("%s is refused: %w", r.Do, &engine.RemoteError{Text: clip(refused.Text, maxErrorText)})
	case err != nil:
		if gone := a.peer.Err(); gone != nil {
			a.fail(gone)
		}
		return nil, err
	}
	var out answer
	err = decode(got, maxAnswerEntries, &out)
	switch {
	case err != nil:
		err = fmt.Errorf("%s: not a valid answer: %s", r.Do, clip(err.Error(), maxErrorText))
	case out.Schema != callSchema:
		err = fmt.Errorf("%s: an answer of schema %.40q: want %s", r.Do, out.Schema, callSchema)
	case out.Epoch != a.peer.Epoch():
		err = fmt.Errorf("%s: an answer of epoch %d, the session is with %d", r.Do, out.Epoch, a.peer.Epoch())
	default:
		return &out, nil
	}
	a.fail(err)
	return nil, err
}

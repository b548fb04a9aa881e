package tui

import (
	"cmp"
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/nvml"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/build"
	"github.com/topoctl/topoctl/internal/observe"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/record"
)

// Feed is what a dashboard shows: [Live], [Still] and [Replay] make one. It can be shown once.
type Feed struct {
	source source
	shown  atomic.Bool
	err    error // why it cannot be shown
	// open prepares the source, and gives what to close after it; nil: it needs neither.
	open func(*Feed) (io.Closer, error)

	// What Frame waits for.
	counters bool
	agents   int
	replay   string // the name of the recording that it plays, "" it plays none
}

// source delivers records until ctx ends. It calls tell from one goroutine at a time, in the
// order of time, and returns when no more will come.
type source interface {
	Run(ctx context.Context, tell func(*record.Record)) error
	// Rescan asks for a new look at the host, soon.
	Rescan()
}

// LiveOptions say which host is shown, and how often it is looked at. The zero value is this machine.
type LiveOptions struct {
	// Discover looks at the host; what it returned must not change later. nil is this machine, with
	// its GPUs and its counters.
	Discover func(context.Context) (*topo.Topology, error)
	// Sampler reads the counters of the host that Discover looks at, which must be this machine: then
	// the host is also looked at again when the kernel reports a change. The caller closes it after
	// the dashboard. nil, beside a Discover: no counters are read.
	Sampler *discover.Sampler
	// Every is the time from one look at the host to the next; 0: it is looked at again when the
	// kernel reports a change or the user asks.
	Every time.Duration
	// Interval is the time from one reading of counters and agents to the next; 0: a second.
	Interval time.Duration
	// Agents are the HTTP addresses of agents (http://HOST:PORT, HOST:PORT), whose engines are shown.
	Agents []string
	// Name is what the dashboard calls the host beside its own name; "" is "live".
	Name string
	// SyntheticLoad makes counters up, in place of a Sampler, and the dashboard says so.
	SyntheticLoad bool
}

// Live shows a host as it is now, and goes on. Nothing is asked before the dashboard runs. A wrong
// address of an agent is an ErrInvalid of Run and Frame.
func Live(o LiveOptions) *Feed {
	to := observe.Options{Start: record.Start{Tool: build.Tool(), Host: cmp.Or(o.Name, "live")}, Discover: o.Discover, Every: o.Every, Interval: o.Interval}
	f := &Feed{counters: o.SyntheticLoad || o.Sampler != nil || o.Discover == nil, agents: len(o.Agents)}
	for _, a := range o.Agents {
		address, err := observe.AgentURL(a)
		if err != nil {
			return &Feed{err: invalid("%w", pkgerr.Plain(err))}
		}
		to.Agents = append(to.Agents, address)
	}
	host := discover.Options{GPUs: nvml.New(), ToolVersion: build.Tool().Version}
	if o.Discover == nil {
		to.Discover = func(ctx context.Context) (*topo.Topology, error) {
			now := host
			now.Now = time.Now()
			return discover.Discover(ctx, now)
		}
	}
	switch {
	case o.SyntheticLoad:
		f.source = observe.Synthetic(to, 1)
	case o.Sampler != nil:
		f.source = observe.Local(to, o.Sampler)
	case o.Discover != nil:
		f.source = observe.New(to)
	default:
		f.open = func(f *Feed) (io.Closer, error) {
			s, err := discover.NewSampler(host)
			if err != nil {
				return nil, err
			}
			f.source = observe.Local(to, s)
			return s, nil
		}
	}
	return f
}

// Still shows a topology, which must not change later.
func Still(t *topo.Topology) *Feed {
	if t == nil {
		return &Feed{}
	}
	return Live(LiveOptions{Name: t.Origin, Discover: func(context.Context) (*topo.Topology, error) { return t, nil }})
}

// Replay plays a recording that a dashboard made, at some times its speed; 0 is without waiting. Its
// name is for the dashboard to show. It ends where the recording cannot be read any further, and the
// dashboard says why.
func Replay(name string, r io.Reader, speed float64) *Feed {
	return &Feed{source: observe.Replay(r, speed), replay: cmp.Or(name, "a recording")}
}

// begin prepares the feed to be shown; what it returns is to be called after it.
func (f *Feed) begin() (end func(), err error) {
	switch {
	case f.err != nil:
		return nil, f.err
	case f.source == nil && f.open == nil:
		return nil, invalid("a Feed without a host: use Live, Still or Replay")
	case f.shown.Swap(true):
		return nil, invalid("the feed was shown before: make another")
	case f.open == nil:
		return func() {}, nil
	}
	c, err := f.open(f)
	if err != nil {
		return nil, pkgerr.Errorf("tui", "%w", err)
	}
	return func() { c.Close() }, nil //nolint:errcheck // it was only read
}

// Package observe feeds the dashboard: it asks a host, its counters and agents again and
// again, each on its own, and brings what they say in the order of time. It plays
// recordings, too, and makes load up where there is no hardware.
package observe

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/record"
)

// Options say what is asked, and how often.
type Options struct {
	// Start is the first record. At is filled in where it is empty.
	Start record.Start
	// Discover looks at the host; nil: no host is looked at. What it gave is never
	// changed later.
	Discover func(ctx context.Context) (*topo.Topology, error)
	// Sample reads the counters of a host; at is the time since the feed began. nil: there
	// are none.
	Sample func(ctx context.Context, t *topo.Topology, at time.Duration) (*counters.Sample, error)
	// Watch calls changed when the host may have changed, and note with what it cannot be
	// told of and why, until ctx ends. Its calls come one at a time. nil, or while it fails:
	// the host is looked at by the clock only.
	Watch func(ctx context.Context, changed, note func(text string)) error
	// Agents are the URLs of agents, as AgentURL gives them.
	Agents   []string
	Every    time.Duration // from one look at the host to the next; 0: only when asked to
	Interval time.Duration // of counters and agents; 0: a second
	// Client asks the agents; nil: one that goes to them directly. Redirects are never
	// followed.
	Client *http.Client
}

// How long things may take.
const (
	settleTime    = 200 * time.Millisecond // changes come in bursts: the host is read after them
	minHostPause  = time.Second            // between two readings of the host
	maxRetryPause = 5 * time.Second        // between two tries of a source that fails
	agentTimeout  = 5 * time.Second
	minLateTime   = time.Second      // no call is late before
	hostLateTime  = 10 * time.Second // the same for the host: drivers may take seconds to begin
	stopTime      = 2 * time.Second  // for what still runs when the feed ends
)

// Feed brings records of a host and of agents. It can be run once.
type Feed struct {
	o      Options
	client *http.Client
	began  time.Time
	news   chan *record.Record
	done   chan struct{} // closed when Run takes no more

	rescan          chan struct{}
	lastTopologySum [32]byte // the host's source owns it
	topology        atomic.Pointer[topo.Topology]
	haveTopology    chan struct{} // closed when there is a topology
	watchNote       atomic.Pointer[string]
}

// New makes a feed. Nothing is asked before it runs.
func New(o Options) *Feed {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	return &Feed{o: o, client: AgentClient(o.Client), news: make(chan *record.Record), done: make(chan struct{}),
		rescan: make(chan struct{}, 1), haveTopology: make(chan struct{})}
}

// Local is a feed of this machine: its counters are read by a sampler, which may be nil, and it is looked at again when
// the kernel reports a change. Of o it takes all but Sample and Watch.
func Local(o Options, s *discover.Sampler) *Feed {
	if s != nil {
		o.Sample = s.Sample
	}
	o.Watch = func(ctx context.Context, changed, note func(string)) error {
		return discover.Watch(ctx, discover.WatchOptions{Note: note}, changed)
	}
	return New(o)
}

// Run asks the sources until ctx ends. tell is called by one goroutine, with records
// in the order of AtNS. A source that hangs or fails is told of, asked again, and costs
// the others nothing. When ctx ends Run waits for what it started; the
// error names calls that did not end even then.
func (f *Feed) Run(ctx context.Context, tell func(*record.Record)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.began = time.Now()
	start := f.o.Start
	if start.At == "" {
		start.At = f.began.UTC().Format(time.RFC3339)
	}
	tell(&record.Record{Schema: record.Schema, Source: record.SourceHost, Start: &start})
	sources := f.sources()
	var running sync.WaitGroup
	for _, s := range sources {
		running.Go(func() { f.poll(ctx, s) })
	}
	if f.o.Watch != nil && f.o.Discover != nil {
		running.Go(func() { f.watch(ctx) })
	}
	for last := int64(0); ; {
		select {
		case r := <-f.news:
			r.AtNS = max(r.AtNS, last)
			last = r.AtNS
			tell(r)
			continue
		case <-ctx.Done():
		}
		close(f.done)
		cancel()
		return f.wait(&running, sources)
	}
}

// wait lets what runs end, but not forever: a driver may hold a call.
func (f *Feed) wait(running *sync.WaitGroup, sources []*source) error {
	ended := make(chan struct{})
	go func() {
		running.Wait()
		for _, s := range sources {
			s.calls.Wait()
		}
		close(ended)
	}()
	late := time.NewTimer(stopTime)
	defer late.Stop()
	select {
	case <-ended:
		f.client.CloseIdleConnections()
		return nil
	case <-late.C:
	}
	var stuck []string
	for _, s := range sources {
		if s.busy.Load() {
			stuck = append(stuck, s.name)
		}
	}
	return pkgerr.Errorf("observe", "%s does not stop: its call has not returned", strings.Join(stuck, ", "))
}

// now is the time of the feed.
func (f *Feed) now() int64 { return int64(time.Since(f.began)) }

// emit hands a record over; false: the feed is over.
func (f *Feed) emit(r *record.Record) bool {
	select {
	case <-f.done: // also where somebody would still take it
		return false
	default:
	}
	select {
	case f.news <- r:
		return true
	case <-f.done:
		return false
	}
}

// Rescan asks for a new look at the host, soon.
func (f *Feed) Rescan() {
	select {
	case f.rescan <- struct{}{}:
	default: // one is asked for already
	}
}

// sources are those that the options name.
func (f *Feed) sources() []*source {
	var out []*source
	late := max(2*f.o.Interval, minLateTime)
	if f.o.Discover != nil {
		out = append(out, &source{name: record.SourceHost, every: f.o.Every, lateAfter: max(late, hostLateTime), wake: f.rescan, ask: f.lookAtHost, note: f.watchNote.Load})
	}
	if f.o.Sample != nil && f.o.Discover != nil {
		out = append(out, &source{name: record.SourceCounters, every: f.o.Interval, lateAfter: late, ask: f.readCounters, ready: f.haveTopology})
	}
	agents := slices.Clone(f.o.Agents)
	slices.Sort(agents)
	for _, u := range slices.Compact(agents) {
		out = append(out, f.agent(u, late))
	}
	return out
}

// Package collect reads the documents of many hosts for a fleet: files, folders and archives of
// them, agents over HTTP, and hosts that topoctl is run on by ssh. A host that gives none is in
// the fleet with the reason.
package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

// Source is where one host's document is.
type Source struct {
	Name string // of the host in the fleet
	From string // for people: "file n1.json", "agent http://n1:9411", "ssh n1"
	// Read gives the document, in any format that Options.Decode takes.
	Read func(context.Context) ([]byte, error)
}

// Options say how documents are collected.
type Options struct {
	Parallel int           // hosts at a time; 0 is 64
	Timeout  time.Duration // of one host, 0 none
	Until    time.Time     // when no host is waited for any more, zero for never
	// Decode gives the topology of a document; name is what errors call it.
	Decode func(ctx context.Context, name string, data []byte) (*topo.Topology, error)
	// Store keeps the documents, nil for not at all.
	Store *Store
	// Resume takes what Store has of a host instead of asking again.
	Resume bool
	// Progress is told after each host, by one goroutine at a time; it may be nil.
	Progress func(Progress)
}

// Progress is how far a collection is. How many hosts there are is not known of archives before they end.
type Progress struct {
	Done, NotReached, Resumed int
	Last                      string // the host that was done last
}

const defaultParallel = 64

// Run collects all sources. The hosts come in no order, which fleet.Build does not mind. The error is for what ends the
// collection: ctx, two hosts of one name, a document that cannot be stored. What was stored by then stays, so that a
// collection can be resumed.
func Run(ctx context.Context, sources iter.Seq2[Source, error], o Options) ([]fleet.Host, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := collection{o: o, work: make(chan Source), cancel: cancel, decoding: make(chan struct{}, runtime.GOMAXPROCS(0))}
	if c.o.Parallel <= 0 {
		c.o.Parallel = defaultParallel
	}
	var workers sync.WaitGroup
	for range c.o.Parallel {
		workers.Go(func() {
			for s := range c.work {
				c.take(ctx, s)
			}
		})
	}
	err := c.feed(ctx, sources)
	close(c.work)
	workers.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, pkgerr.Errorf("collect", "%w", err)
	}
	return c.hosts, nil
}

// collection is one run.
type collection struct {
	o      Options
	work   chan Source
	cancel context.CancelCauseFunc
	// decoding has a place for each document that is being decoded: that takes twenty times its
	// size for a moment.
	decoding chan struct{}

	mu       sync.Mutex
	hosts    []fleet.Host
	progress Progress
}

// feed hands the sources to the workers. One whose name no host of the fleet can have costs no other: it is not read.
func (c *collection) feed(ctx context.Context, sources iter.Seq2[Source, error]) error {
	seen, again := map[string]string{}, map[string]int{}
	for s, err := range sources {
		if err != nil {
			return err
		}
		wrong := fleet.CheckName(s.Name)
		if other, ok := seen[s.Name]; ok {
			wrong = fmt.Errorf("its name is that of %s: give it another", other)
		}
		if wrong != nil {
			const most = 200 // bytes, so that the number has room
			name := text.Printable(s.Name)
			name = strings.ToValidUTF8(name[:min(len(name), most)], "")
			for ok := true; ok; _, ok = seen[s.Name] {
				again[name]++
				s.Name = fmt.Sprintf("%s#%d", name, again[name]+1)
			}
			s.Read = func(context.Context) ([]byte, error) { return nil, wrong }
		}
		if len(seen) == fleet.MaxHosts {
			return fmt.Errorf("more than %d hosts", fleet.MaxHosts)
		}
		seen[s.Name] = s.From
		select {
		case c.work <- s:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// take collects one host.
func (c *collection) take(ctx context.Context, s Source) {
	h, resumed, err := c.read(ctx, s)
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, errStore):
		c.cancel(err)
		return
	case err != nil:
		h = &fleet.Host{Status: fleet.NotReached, Reason: text.Printable(strings.TrimPrefix(pkgerr.Message(err), s.From+": "))}
	}
	h.Host, h.Source = s.Name, s.From
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hosts = append(c.hosts, *h)
	c.progress.Done++
	c.progress.Last = s.Name
	if err != nil {
		c.progress.NotReached++
	}
	if resumed {
		c.progress.Resumed++
	}
	if c.o.Progress != nil {
		c.o.Progress(c.progress)
	}
}

// errStore is in the chain of errors that end the collection: there is no room for its result.
var errStore = errors.New("store")

// read gives what a fleet keeps of a host.
func (c *collection) read(ctx context.Context, s Source) (h *fleet.Host, resumed bool, err error) {
	if c.o.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, c.o.Timeout, fmt.Errorf("no answer within %s", c.o.Timeout))
		defer stop()
	}
	if !c.o.Until.IsZero() {
		if !time.Now().Before(c.o.Until) {
			return nil, false, errors.New("not asked: the time was over")
		}
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, c.o.Until, errors.New("no answer in time"))
		defer stop()
	}
	if c.o.Store != nil && c.o.Resume {
		if data, path, sum, err := c.o.Store.read(s.Name); err == nil {
			if h, _, err = c.summarize(ctx, s, data); err == nil {
				h.Document, h.SHA256 = path, sum
				return h, true, nil
			} // what is damaged is collected again
		}
	}
	data, err := s.Read(ctx)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = cause
		}
		return nil, false, err
	}
	h, data, err = c.summarize(ctx, s, data)
	if err == nil && c.o.Store != nil {
		h.Document, h.SHA256, err = c.o.Store.keep(s.Name, data)
	}
	return h, false, err
}

// summarize gives what a fleet keeps of a host, and what is stored: its topology as a document.
func (c *collection) summarize(ctx context.Context, s Source, data []byte) (*fleet.Host, []byte, error) {
	select {
	case c.decoding <- struct{}{}:
		defer func() { <-c.decoding }()
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	t, err := c.o.Decode(ctx, s.From, data)
	if err != nil {
		return nil, nil, err
	}
	if c.o.Store != nil && !isDocument(data) { // a capture, or another tool's file
		if data, err = t.Encode(); err != nil {
			return nil, nil, err
		}
	}
	h, err := fleet.Summarize(s.Name, t)
	return h, data, err
}

// isDocument says whether data is a topology document as it is.
func isDocument(data []byte) bool {
	return topo.Detect(data) && bytes.Contains(data[:min(len(data), 4<<10)], []byte(`"topoctl.topology/`))
}

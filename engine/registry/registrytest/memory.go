package registrytest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Memory keeps records within one process: for engines that share it, and for
// tests of what registries do at worst. Each engine has a client of its own. No
// goroutine renews leases: Tick does, by the clock that it was given.
type Memory struct {
	ttl time.Duration
	now func() time.Time

	mu      sync.Mutex
	entries map[string]*entry // by name
	changed chan struct{}     // closed with the next change of any
}

// entry is a record from its first publication until it is gone.
type entry struct {
	record  registry.Record
	lease   *memoryLease // whose it is
	version int          // counts changes
	gone    bool
	changed chan struct{} // closed with the next change
}

// NewMemory makes an empty registry whose leases last for ttl when they are not
// renewed; 0: for ever. now is the clock, nil time.Now.
func NewMemory(ttl time.Duration, now func() time.Time) *Memory {
	if now == nil {
		now = time.Now
	}
	return &Memory{ttl: ttl, now: now, entries: map[string]*entry{}, changed: make(chan struct{})}
}

// Client is a registry over the records of m.
func (m *Memory) Client() *MemoryClient {
	return &MemoryClient{m: m, closed: make(chan struct{})}
}

// Tick renews the leases of all clients that are not cut off, and ends those
// that have run out.
func (m *Memory) Tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for _, e := range m.entries {
		l := e.lease
		switch {
		case m.ttl == 0:
		case !l.client.cut && now.Before(l.until):
			l.until = now.Add(m.ttl)
		case !now.Before(l.until):
			m.remove(e)
			close(l.lost)
		}
	}
}

// tell wakes the watchers of an entry, and those of all.
func (m *Memory) tell(e *entry) {
	e.version++
	close(e.changed)
	e.changed = make(chan struct{})
	close(m.changed)
	m.changed = make(chan struct{})
}

// remove takes an entry out.
func (m *Memory) remove(e *entry) {
	e.gone = true
	e.lease.over = true
	delete(m.entries, e.record.Name)
	m.tell(e)
}

// MemoryClient is one engine's Registry over a Memory.
type MemoryClient struct {
	m      *Memory
	cut    bool
	closed chan struct{}
	once   sync.Once
}

var (
	_ registry.Registry = (*MemoryClient)(nil)
	_ registry.Lister   = (*MemoryClient)(nil)
)

// Cut takes the client off the network, or back: while it is cut off its leases
// are not renewed.
func (c *MemoryClient) Cut(off bool) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.cut = off
}

// enter locks the registry for a call, unless that cannot be.
func (c *MemoryClient) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.m.mu.Lock()
	select {
	case <-c.closed:
		c.m.mu.Unlock()
		return registry.ErrClosed
	default:
		return nil
	}
}

// Lookup implements Registry.
func (c *MemoryClient) Lookup(ctx context.Context, name string) (registry.Record, error) {
	if err := c.enter(ctx); err != nil {
		return registry.Record{}, err
	}
	defer c.m.mu.Unlock()
	e := c.m.entries[name]
	if e == nil {
		return registry.Record{}, pkgerr.Errorf("registrytest", "peer %q: %w", peerdoc.Clip(name), registry.ErrNotFound)
	}
	return clone(e.record), nil
}

// Publish implements Registry.
func (c *MemoryClient) Publish(ctx context.Context, r registry.Record) (registry.Lease, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	defer c.m.mu.Unlock()
	l := &memoryLease{client: c, lost: make(chan struct{}), until: c.m.now().Add(c.m.ttl)}
	e := c.m.entries[r.Name]
	if e == nil {
		l.entry = &entry{record: clone(r), lease: l, changed: make(chan struct{})}
		c.m.entries[r.Name] = l.entry
		c.m.tell(l.entry)
		return l, nil
	}
	if registry.Precedes(e.record.Epoch, r.Epoch, time.Now()) {
		return nil, pkgerr.Errorf("registrytest", "record of %q with epoch %d, there is %d: %w", r.Name, r.Epoch, e.record.Epoch, registry.ErrOldEpoch)
	}
	e.lease.over = true
	if r.Epoch != e.record.Epoch {
		close(e.lease.lost)
	}
	e.record, e.lease, l.entry = clone(r), l, e
	c.m.tell(e)
	return l, nil
}

// Watch implements Registry.
func (c *MemoryClient) Watch(ctx context.Context, name string, changed func(r registry.Record, gone bool)) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	e, told := c.m.entries[name], -1
	if e == nil {
		c.m.mu.Unlock()
		return pkgerr.Errorf("registrytest", "watch of %q: %w", peerdoc.Clip(name), registry.ErrNotFound)
	}
	for {
		r, version, gone, next := clone(e.record), e.version, e.gone, e.changed
		c.m.mu.Unlock()
		if version != told {
			changed(r, gone)
			told = version
		}
		if gone {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.closed:
			return registry.ErrClosed
		case <-next:
		}
		c.m.mu.Lock()
	}
}

// List implements Lister.
func (c *MemoryClient) List(ctx context.Context) (registry.Listing, error) {
	if err := c.enter(ctx); err != nil {
		return registry.Listing{}, err
	}
	defer c.m.mu.Unlock()
	return c.m.list(), nil
}

// list is what there is; the mutex is held.
func (m *Memory) list() registry.Listing {
	var l registry.Listing
	for _, name := range slices.Sorted(maps.Keys(m.entries)) {
		l.Records = append(l.Records, clone(m.entries[name].record))
	}
	return l
}

// WatchAll implements Lister.
func (c *MemoryClient) WatchAll(ctx context.Context, changed func(registry.Listing)) error {
	for {
		if err := c.enter(ctx); err != nil {
			return err
		}
		l, next := c.m.list(), c.m.changed
		c.m.mu.Unlock()
		changed(l)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.closed:
			return registry.ErrClosed
		case <-next:
		}
	}
}

// Close implements Registry.
func (c *MemoryClient) Close() error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.once.Do(func() { close(c.closed) })
	for _, e := range c.m.entries {
		if e.lease.client == c {
			c.m.remove(e)
		}
	}
	return nil
}

// memoryLease is a lease on an entry of its client's.
type memoryLease struct {
	client *MemoryClient
	lost   chan struct{}
	until  time.Time
	entry  *entry
	over   bool // the record is not this lease's any more
}

func (l *memoryLease) Lost() <-chan struct{} { return l.lost }

func (l *memoryLease) Close() error {
	m := l.client.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if !l.over {
		m.remove(l.entry)
	}
	return nil
}

func clone(r registry.Record) registry.Record {
	r.Addresses, r.Serves = slices.Clone(r.Addresses), slices.Clone(r.Serves)
	return r
}

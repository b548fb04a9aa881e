// Package registryproc is a registry that another process keeps: it runs topoctl-registry-SCHEME as a
// child, starts it again when it ends, and publishes again then what was published.
package registryproc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
	wire "github.com/topoctl/topoctl/internal/base/engine/registrywire"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// Options say which registry.
type Options struct {
	URL     string // SCHEME://...
	Program string // "" finds it by the scheme
	Logger  *slog.Logger
	Getenv  func(string) string // of what finds the program; nil: os.Getenv
}

// The pause before a program that has ended is started again grows from minPause to maxPause.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	lasting  = 30 * time.Second // a run that was as long begins with minPause again
	// answerTime bounds calls whose context has no deadline.
	answerTime = 15 * time.Second
)

// proc is a registry.Registry and a registry.Lister.
type proc struct {
	o       Options
	program string
	log     *slog.Logger
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	once    sync.Once

	mu     sync.Mutex
	child  *child        // nil while there is none
	change chan struct{} // closed when child changes
	leases map[*lease]bool
	failed error // why there is no child
	closed error // of stopping the last one; read after running
}

// Open starts the program and opens the registry. Closing it removes what was published; so does the end of
// this process, however it ends.
func Open(ctx context.Context, o Options) (registry.Registry, error) {
	p := &proc{o: o, program: o.Program, log: o.Logger, change: make(chan struct{}), leases: map[*lease]bool{}}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	scheme, err := Scheme(o.URL)
	if err == nil && p.program == "" {
		getenv := o.Getenv
		if getenv == nil {
			getenv = os.Getenv
		}
		p.program, err = Find(scheme, getenv)
	}
	if err != nil {
		return nil, pkgerr.Errorf("registry", "%w", err)
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	c, err := start(ctx, p.program, o.URL, p.log, &p.running)
	if err != nil {
		p.cancel()
		p.running.Wait()
		return nil, pkgerr.Errorf("registry", "%w", err)
	}
	p.child = c
	p.running.Go(func() { p.keep(c) })
	return p, nil
}

// keep starts the program again whenever it ends.
func (p *proc) keep(c *child) {
	pause, began := minPause, time.Now()
	for {
		if c != nil {
			select {
			case <-c.gone:
			case <-p.ctx.Done():
				p.closed = c.stop()
				return
			}
			p.log.Warn("registry: its program has ended: starting it again", "program", p.program)
			p.set(nil, errChildGone)
			if time.Since(began) > lasting {
				pause = minPause
			}
		}
		t := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-t.C:
		case <-p.ctx.Done():
			t.Stop()
			return
		}
		pause, began = min(pause*2, maxPause), time.Now()
		var err error
		if c, err = start(p.ctx, p.program, p.o.URL, p.log, &p.running); err != nil {
			c = nil
			p.set(nil, err)
			p.log.Warn("registry: its program does not start", "program", p.program, "error", err)
			continue
		}
		p.log.Info("registry: its program runs again", "program", p.program, "version", c.said)
		p.set(c, nil)
		p.publishAgain(c)
	}
}

func (p *proc) set(c *child, failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child, p.failed = c, failed
	close(p.change)
	p.change = make(chan struct{})
}

// current waits for a program that runs.
func (p *proc) current(ctx context.Context) (*child, error) {
	for {
		p.mu.Lock()
		c, change, failed := p.child, p.change, p.failed
		p.mu.Unlock()
		if p.ctx.Err() != nil {
			return nil, registry.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if c != nil {
			select {
			case <-c.gone: // keep is about to see it
			default:
				return c, nil
			}
		}
		select {
		case <-change:
		case <-ctx.Done():
			if failed != nil {
				return nil, fmt.Errorf("%w: %w: %w", registry.ErrUnavailable, failed, ctx.Err())
			}
			return nil, ctx.Err()
		case <-p.ctx.Done():
		}
	}
}

// try asks the program that runs, and the next one where it ends before it has answered.
func (p *proc) try(ctx context.Context, ask func(context.Context, *child) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(registry.ErrClosed) })()
	for {
		c, err := p.current(ctx)
		if err != nil {
			if p.ctx.Err() != nil {
				return registry.ErrClosed
			}
			return err
		}
		if err = ask(ctx, c); !errors.Is(err, errChildGone) {
			if p.ctx.Err() != nil {
				return registry.ErrClosed
			}
			return err
		}
	}
}

// bounded gives a call that would wait for ever a limit.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("%w: no answer of its program in %v", registry.ErrUnavailable, answerTime))
}

// Lookup implements registry.Registry.
func (p *proc) Lookup(ctx context.Context, name string) (out registry.Record, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err = p.try(ctx, func(ctx context.Context, c *child) error {
		var found *registry.Record
		var mu sync.Mutex
		err := c.call(ctx, &wire.Request{Do: wire.Lookup, Name: name}, func(a *wire.Answer) {
			if a.Record != nil {
				mu.Lock()
				defer mu.Unlock()
				found = a.Record
			}
		})
		mu.Lock()
		defer mu.Unlock()
		if err == nil && (found == nil || found.Name != name) {
			err = fmt.Errorf("%w: its program answers without the record of %q", registry.ErrUnavailable, name)
		}
		if err == nil {
			out = *found
		}
		return err
	})
	return out, err
}

// lease is what was published, until it is lost or closed.
type lease struct {
	p      *proc
	record registry.Record
	lost   chan struct{}

	// By the registry's mutex:
	child *child // that has it, by id; nil: none at present
	id    uint64
	over  bool
}

// Publish implements registry.Registry.
func (p *proc) Publish(ctx context.Context, r registry.Record) (registry.Lease, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	r.Addresses, r.Serves = slices.Clone(r.Addresses), slices.Clone(r.Serves)
	l := &lease{p: p, record: r, lost: make(chan struct{})}
	if err := p.try(ctx, func(ctx context.Context, c *child) error { return l.publish(ctx, c) }); err != nil {
		return nil, err
	}
	return l, nil
}

// publish has a program publish the record; from then on it is among the leases.
func (l *lease) publish(ctx context.Context, c *child) error {
	answer := make(chan error, 1)
	said := false // by the reader only
	q := &wire.Request{Do: wire.Publish, Record: &l.record}
	if deadline, ok := ctx.Deadline(); ok {
		q.TimeoutNS = max(int64(time.Until(deadline)), 1)
	}
	var id uint64
	known := make(chan struct{}) // closed when id is
	id, err := c.begin(ctx, q, func(a *wire.Answer) {
		switch {
		case a.Done && !said:
			said = true
			<-known
			l.taken(c, id)
			answer <- nil
		case a.Lost && said:
			l.lose(c)
		case a.End && !said:
			answer <- cmp.Or(a.Error.Err(), fmt.Errorf("%w: its program has published nothing", registry.ErrUnavailable))
		case a.End && a.Error != nil:
			l.lose(c)
		}
	})
	close(known)
	if err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-c.gone:
		select {
		case err := <-answer: // published, and gone since: it is published again
			return err
		default:
			return errChildGone
		}
	case <-ctx.Done():
		c.forget(id)
		return context.Cause(ctx)
	}
}

// taken puts a lease in the place of those of its name.
func (l *lease) taken(c *child, id uint64) {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	l.child, l.id = c, id
	if l.over {
		return // closed meanwhile: Close has waited for nothing, release follows
	}
	for other := range p.leases {
		if other != l && other.record.Name == l.record.Name && other.record.Epoch == l.record.Epoch {
			other.over = true // it ends without being lost
			delete(p.leases, other)
			if other.child == c {
				c.forget(other.id)
			}
		}
	}
	p.leases[l] = true
}

// lose ends a lease that the program c lost.
func (l *lease) lose(c *child) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if !l.over && l.child == c {
		l.over = true
		delete(l.p.leases, l)
		close(l.lost)
	}
}

// publishAgain publishes what a program before c had.
func (p *proc) publishAgain(c *child) {
	p.mu.Lock()
	all := slices.Collect(maps.Keys(p.leases))
	p.mu.Unlock()
	for _, l := range all {
		p.running.Go(func() {
			for {
				ctx, cancel := bounded(p.ctx)
				err := l.publish(ctx, c)
				cancel()
				p.mu.Lock()
				over := l.over
				p.mu.Unlock()
				switch {
				case over && err == nil:
					if err := l.release(); err != nil {
						p.log.Warn("registry: giving up a record", "engine", l.record.Name, "error", err)
					}
					return
				case err == nil, over, errors.Is(err, errChildGone), p.ctx.Err() != nil:
					return
				case !errors.Is(err, registry.ErrUnavailable):
					p.log.Error("registry: the record cannot be published again", "engine", l.record.Name, "error", err)
					p.mu.Lock()
					l.child = c
					p.mu.Unlock()
					l.lose(c)
					return
				}
				t := time.NewTimer(time.Second)
				select {
				case <-t.C:
				case <-c.gone:
				case <-p.ctx.Done():
				}
				t.Stop()
			}
		})
	}
}

// Lost implements registry.Lease.
func (l *lease) Lost() <-chan struct{} { return l.lost }

// Close implements registry.Lease.
func (l *lease) Close() error {
	l.p.mu.Lock()
	over := l.over || l.p.ctx.Err() != nil
	l.over = true
	delete(l.p.leases, l)
	l.p.mu.Unlock()
	if over {
		return nil
	}
	return l.release()
}

// release tells the program that the record is not wanted any more. Where that has ended, the
// record ends by itself.
func (l *lease) release() error {
	l.p.mu.Lock()
	c, id := l.child, l.id
	l.p.mu.Unlock()
	ctx, cancel := bounded(l.p.ctx)
	defer cancel()
	err := c.call(ctx, &wire.Request{Do: wire.Release, Of: id}, nil)
	if errors.Is(err, errChildGone) || l.p.ctx.Err() != nil {
		err = nil // no one has the record any more
	}
	return err
}

// mailbox has what a reader has put there and a watcher takes out.
type mailbox[T any] struct {
	mu   sync.Mutex
	what T
	full bool
	news chan struct{} // has a token while full
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{news: make(chan struct{}, 1)} }

func (m *mailbox[T]) put(what T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.what, m.full = what, true
	select {
	case m.news <- struct{}{}:
	default:
	}
}

func (m *mailbox[T]) take() (what T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.news:
	default:
	}
	what, ok = m.what, m.full
	m.full = false
	return what, ok
}

// follow calls take in the caller's goroutine whenever there is news, until the answer ends.
func follow[T any](ctx context.Context, c *child, q *wire.Request, box *mailbox[T], event func(*wire.Answer), take func(T)) error {
	end := make(chan error, 1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { end <- c.call(ctx, q, event) }()
	for {
		select {
		case <-box.news:
			if what, ok := box.take(); ok {
				take(what)
			}
		case err := <-end:
			if what, ok := box.take(); ok {
				take(what)
			}
			return err
		}
	}
}

// Watch implements registry.Registry.
func (p *proc) Watch(ctx context.Context, name string, changed func(r registry.Record, gone bool)) error {
	type news struct {
		record registry.Record
		gone   bool
	}
	var last *registry.Record
	gone := false
	err := p.try(ctx, func(ctx context.Context, c *child) error {
		box := newMailbox[news]()
		err := follow(ctx, c, &wire.Request{Do: wire.Watch, Name: name}, box, func(a *wire.Answer) {
			if a.Record != nil && a.Record.Name == name {
				box.put(news{*a.Record, a.Gone})
			}
		}, func(n news) {
			if n.gone || last == nil || !last.Equal(&n.record) {
				last, gone = &n.record, n.gone
				changed(n.record, n.gone)
			}
		})
		if errors.Is(err, registry.ErrNotFound) && last != nil && !gone { // another program than the one that had it
			gone = true
			changed(*last, true)
			return nil
		}
		if errors.Is(err, registry.ErrUnavailable) && last != nil {
			return p.later(ctx)
		}
		return err
	})
	return err
}

// later is errChildGone after a while: what was asked is asked again.
func (p *proc) later(ctx context.Context) error {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-t.C:
		return errChildGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listing collects a listing from answers.
type listing struct {
	records map[string]registry.Record
	bad     []registry.BadRecord
}

// add takes a line of an answer in; true: the listing is complete.
func (l *listing) add(a *wire.Answer) bool {
	switch {
	case a.Record != nil && (len(l.records) < wire.MaxRecords || l.records[a.Record.Name].Name != ""):
		l.records[a.Record.Name] = *a.Record
	case a.Gone:
		delete(l.records, a.Name)
	case a.Bad != nil && len(l.bad) < wire.MaxRecords:
		l.bad = append(l.bad, *a.Bad)
	}
	return a.Synced
}

// all is the listing; bad records come again with the next one.
func (l *listing) all() registry.Listing {
	out := registry.Listing{Bad: l.bad}
	for _, name := range slices.Sorted(maps.Keys(l.records)) {
		r := l.records[name]
		r.Addresses, r.Serves = slices.Clone(r.Addresses), slices.Clone(r.Serves)
		out.Records = append(out.Records, r)
	}
	l.bad = nil
	return out
}

// List implements registry.Lister.
func (p *proc) List(ctx context.Context) (out registry.Listing, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err = p.try(ctx, func(ctx context.Context, c *child) error {
		box := newMailbox[registry.Listing]()
		l := listing{records: map[string]registry.Record{}}
		return follow(ctx, c, &wire.Request{Do: wire.List}, box, func(a *wire.Answer) {
			if l.add(a) {
				box.put(l.all())
			}
		}, func(now registry.Listing) { out = now })
	})
	return out, err
}

// WatchAll implements registry.Lister.
func (p *proc) WatchAll(ctx context.Context, changed func(registry.Listing)) error {
	told := false
	return p.try(ctx, func(ctx context.Context, c *child) error {
		box := newMailbox[registry.Listing]()
		l := listing{records: map[string]registry.Record{}}
		err := follow(ctx, c, &wire.Request{Do: wire.WatchAll}, box, func(a *wire.Answer) {
			if l.add(a) {
				box.put(l.all())
			}
		}, func(now registry.Listing) { told = true; changed(now) })
		if errors.Is(err, registry.ErrUnavailable) && told {
			return p.later(ctx)
		}
		return err
	})
}

// Close implements registry.Registry.
func (p *proc) Close() (err error) {
	p.once.Do(func() {
		p.mu.Lock()
		for l := range p.leases {
			l.over = true
		}
		clear(p.leases)
		p.mu.Unlock()
		p.cancel()
		p.running.Wait()
		if p.closed != nil {
			err = pkgerr.Errorf("registry", "close: %w", p.closed)
		}
	})
	return err
}

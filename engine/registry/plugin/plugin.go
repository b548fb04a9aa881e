// Package plugin makes a program of a registry, topoctl-registry-SCHEME, which topoctl's command, its
// agent and the Python package run where they are given --registry SCHEME://...: so that none of them has
// the client of a registry's server in it. The program reads requests from standard input and answers on
// standard output; docs/registry.md specifies the lines, for programs in other languages.
package plugin

import (
	"context"
	"errors"
	"io"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
	wire "github.com/topoctl/topoctl/internal/base/engine/registrywire"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// Opener opens the registry of a URL. alive says whether the process that uses the registry runs: while it
// is false, records must not be renewed.
type Opener func(ctx context.Context, url string, alive func() bool) (registry.Registry, error)

// maxRequests is how many requests may be under way.
const maxRequests = 1 << 14

// server serves one process.
type server struct {
	open Opener
	seen atomic.Int64 // when the last line came, on the clock of began
	ctx  context.Context
	run  sync.WaitGroup

	writing sync.Mutex
	out     io.Writer

	mu       sync.Mutex
	registry registry.Registry
	requests map[uint64]context.CancelFunc
	leases   map[uint64]registry.Lease
}

var began = time.Now()

// Serve answers requests until in ends, which is when the other process does, or ctx; then it closes the
// registry, which removes what was published. It ignores SIGPIPE from then on. program is the name and version for people.
func Serve(ctx context.Context, in io.Reader, out io.Writer, program string, open Opener) error {
	// A process that is killed reads no answers: its records are removed all the same.
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{open: open, ctx: ctx, out: out, requests: map[uint64]context.CancelFunc{}, leases: map[uint64]registry.Lease{}}
	s.seen.Store(int64(time.Since(began)))
	s.send(&wire.Answer{Protocol: wire.Protocol, Program: program})
	lines := make(chan error, 1)
	go func() { // where ctx ends first, it ends with the process: nothing ends a read of standard input
		lines <- wire.Lines(in, s.line)
	}()
	var err error
	select {
	case err = <-lines:
	case <-ctx.Done():
	}
	cancel()
	s.mu.Lock()
	r := s.registry
	s.mu.Unlock()
	if r != nil {
		err = errors.Join(err, r.Close())
	}
	s.run.Wait()
	if err != nil {
		return pkgerr.Errorf("plugin", "%w", err)
	}
	return nil
}

// alive says whether the other process runs.
func (s *server) alive() bool {
	return time.Since(began)-time.Duration(s.seen.Load()) < wire.AliveTime
}

func (s *server) send(a *wire.Answer) {
	line, err := wire.Encode(a)
	if err != nil {
		line, _ = wire.Encode(&wire.Answer{ID: a.ID, End: true, Error: wire.ErrorOf(err)})
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	_, _ = s.out.Write(line) // no one is there: the end of its lines says so
}

// line takes a request in.
func (s *server) line(line []byte) error {
	s.seen.Store(int64(time.Since(began)))
	q, err := wire.DecodeRequest(line)
	if err != nil {
		return err
	}
	switch q.Do {
	case wire.Alive:
		s.send(&wire.Answer{Alive: true})
		return nil
	case wire.Cancel:
		s.mu.Lock()
		if cancel := s.requests[q.Of]; cancel != nil {
			cancel()
		}
		s.mu.Unlock()
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.requests[q.ID]; q.ID == 0 || again || len(s.requests) >= maxRequests || s.ctx.Err() != nil {
		s.run.Go(func() { s.end(q.ID, errors.New("an ID of 0 or one that is in use, too many requests, or the end")) })
		return nil
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.requests[q.ID] = cancel
	s.run.Go(func() {
		defer func() {
			cancel()
			s.mu.Lock()
			delete(s.requests, q.ID)
			s.mu.Unlock()
		}()
		s.end(q.ID, s.answer(ctx, q))
	})
	return nil
}

func (s *server) end(id uint64, err error) {
	s.send(&wire.Answer{ID: id, End: true, Error: wire.ErrorOf(err)})
}

// answer does what a request asks for; the end of the answer follows.
func (s *server) answer(ctx context.Context, q *wire.Request) error {
	limited := ctx
	if q.TimeoutNS > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, time.Duration(q.TimeoutNS))
		defer cancel()
	}
	if q.Do == wire.Open {
		return s.begin(limited, q.URL)
	}
	s.mu.Lock()
	r := s.registry
	s.mu.Unlock()
	if r == nil {
		return errors.New("no registry is open")
	}
	switch q.Do {
	case wire.Lookup:
		rec, err := r.Lookup(limited, q.Name)
		if err == nil {
			s.record(q.ID, &rec)
		}
		return err
	case wire.Watch:
		return r.Watch(ctx, q.Name, func(rec registry.Record, gone bool) {
			s.send(&wire.Answer{ID: q.ID, Record: &rec, StaleNS: int64(rec.Stale), Gone: gone})
		})
	case wire.List, wire.WatchAll:
		return s.list(limited, ctx, q, r)
	case wire.Publish:
		return s.publish(limited, ctx, q, r)
	case wire.Release:
		s.mu.Lock()
		l, cancel := s.leases[q.Of], s.requests[q.Of]
		s.mu.Unlock()
		if l == nil {
			return nil
		}
		defer cancel()
		return l.Close()
	case wire.Close:
		return r.Close()
	}
	return errors.New("an unknown request: this program is older than the one that runs it")
}

func (s *server) begin(ctx context.Context, url string) error {
	r, err := s.open(ctx, url, s.alive)
	if err != nil {
		return err
	}
	s.mu.Lock()
	again := s.registry != nil
	if !again {
		s.registry = r
	}
	s.mu.Unlock()
	if again {
		return errors.Join(errors.New("a registry is open already"), r.Close())
	}
	if s.ctx.Err() != nil { // Serve may have looked before
		return r.Close()
	}
	return nil
}

func (s *server) record(id uint64, rec *registry.Record) {
	s.send(&wire.Answer{ID: id, Record: rec, StaleNS: int64(rec.Stale)})
}

// publish publishes a record and says what becomes of it, until it is released.
func (s *server) publish(limited, ctx context.Context, q *wire.Request, r registry.Registry) error {
	if q.Record == nil {
		return errors.New("no record")
	}
	l, err := r.Publish(limited, *q.Record)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.leases[q.ID] = l
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.leases, q.ID)
		s.mu.Unlock()
	}()
	s.send(&wire.Answer{ID: q.ID, Done: true})
	select {
	case <-l.Lost():
		s.send(&wire.Answer{ID: q.ID, Lost: true})
		return nil
	case <-ctx.Done():
		if s.ctx.Err() != nil {
			return nil // Serve closes the registry
		}
		return l.Close()
	}
}

// list tells of all records, and of WatchAll what changes.
func (s *server) list(limited, ctx context.Context, q *wire.Request, r registry.Registry) error {
	lister, ok := r.(registry.Lister)
	if !ok {
		return registry.ErrNoWatch
	}
	var before map[string]registry.Record
	tell := func(l registry.Listing) {
		now := make(map[string]registry.Record, len(l.Records))
		for _, rec := range l.Records {
			if len(now) == wire.MaxRecords {
				break
			}
			now[rec.Name] = rec
			if had, ok := before[rec.Name]; !ok || !had.Equal(&rec) || had.Stale != rec.Stale {
				s.record(q.ID, &rec)
			}
		}
		for name := range before {
			if _, ok := now[name]; !ok {
				s.send(&wire.Answer{ID: q.ID, Name: name, Gone: true})
			}
		}
		for i := range l.Bad[:min(len(l.Bad), wire.MaxRecords)] {
			s.send(&wire.Answer{ID: q.ID, Bad: &l.Bad[i]})
		}
		before = now
		s.send(&wire.Answer{ID: q.ID, Synced: true})
	}
	if q.Do == wire.WatchAll {
		return lister.WatchAll(ctx, tell)
	}
	l, err := lister.List(limited)
	if err == nil {
		tell(l)
	}
	return err
}

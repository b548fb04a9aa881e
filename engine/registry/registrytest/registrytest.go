// Package registrytest holds implementations of registry.Registry to their
// contract.
package registrytest

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
)

// Suite says how to test an implementation and what it lacks.
type Suite struct {
	// Open makes a registry that the test closes. Those of one test see each other's
	// records.
	Open func(t *testing.T) registry.Registry
	// Name gives names of engines that this registry takes, a different one for each
	// number, none of them published.
	Name func(i int) string
	// Keyless registries find every name that makes sense and keep no records (P2P).
	Keyless bool
	// NoWatch registries return ErrNoWatch.
	NoWatch bool
	// BadNames are never found.
	BadNames []string
	// Lose makes the leases of a registry run out: nil where that cannot be done.
	Lose func(t *testing.T, r registry.Registry)
}

// patience bounds what must happen at some time.
const patience = 30 * time.Second

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	t.Run("lookup", s.lookup)
	t.Run("context", s.context)
	t.Run("refused records", s.refused)
	t.Run("close", s.close)
	t.Run("leases", s.leases)
	if s.NoWatch {
		t.Run("no watch", s.noWatch)
	}
	if s.Keyless {
		return
	}
	t.Run("epochs", s.epochs)
	t.Run("epochs ahead", s.epochsAhead)
	t.Run("many publishers", s.many)
	if s.Lose != nil {
		t.Run("lost lease", s.lost)
	}
	t.Run("list", s.list)
	if !s.NoWatch {
		t.Run("watch", s.watch)
		t.Run("watch ends", s.watchEnds)
		t.Run("watch of a restart", s.watchRestart)
	}
}

func (s Suite) open(t *testing.T) registry.Registry {
	t.Helper()
	r := s.Open(t)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

func (s Suite) record(i int, epoch uint64) registry.Record {
	return registry.Record{Name: s.Name(i), Epoch: epoch, Fingerprint: "f", Serves: []string{"probe", "region:kv"},
		Addresses: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:7411"), netip.MustParseAddrPort("[2001:db8::1]:7411")}}
}

// publish must succeed.
func (s Suite) publish(t *testing.T, r registry.Registry, rec registry.Record) registry.Lease {
	t.Helper()
	l, err := r.Publish(t.Context(), rec)
	if err != nil {
		t.Fatalf("publish %+v: %v", rec, err)
	}
	return l
}

func equal(a, b registry.Record) bool { return a.Equal(&b) }

// finds says what a registry finds under a name, nil for nothing.
func finds(t *testing.T, r registry.Registry, name string) *registry.Record {
	t.Helper()
	rec, err := r.Lookup(t.Context(), name)
	if errors.Is(err, registry.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatalf("lookup %q: %v", name, err)
	}
	return &rec
}

func (s Suite) lookup(t *testing.T) {
	r, other := s.open(t), s.open(t)
	for _, bad := range append([]string{""}, s.BadNames...) {
		if rec, err := r.Lookup(t.Context(), bad); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%q: %+v, %v: want ErrNotFound", bad, rec, err)
		}
	}
	if s.Keyless {
		if rec := finds(t, r, s.Name(0)); rec == nil || rec.Name != s.Name(0) || len(rec.Addresses) == 0 {
			t.Errorf("%q: %+v", s.Name(0), rec)
		}
		return
	}
	if rec := finds(t, r, s.Name(0)); rec != nil {
		t.Errorf("nobody published %+v", rec)
	}
	want := s.record(0, 7)
	l := s.publish(t, r, want)
	want.Addresses = slices.Clone(want.Addresses)
	for _, from := range []registry.Registry{r, other} {
		rec := finds(t, from, want.Name)
		if rec == nil || !equal(*rec, want) {
			t.Fatalf("found %+v, want %+v", rec, want)
		}
		rec.Addresses[0] = netip.AddrPort{} // the caller's own
	}
	if rec := finds(t, other, want.Name); rec == nil || !equal(*rec, want) {
		t.Errorf("a caller's change is in the record: %+v", rec)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if rec := finds(t, other, want.Name); rec != nil {
		t.Errorf("taken back, and still there: %+v", rec)
	}
}

func (s Suite) context(t *testing.T) {
	r := s.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Lookup(ctx, s.Name(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("lookup: %v", err)
	}
	if _, err := r.Publish(ctx, s.record(0, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("publish: %v", err)
	}
	if !s.Keyless {
		if rec := finds(t, r, s.Name(0)); rec != nil {
			t.Errorf("published after all: %+v", rec)
		}
	}
}

func (s Suite) refused(t *testing.T) {
	r := s.open(t)
	for name, change := range map[string]func(r *registry.Record){
		"no name":          func(r *registry.Record) { r.Name = "" },
		"odd name":         func(r *registry.Record) { r.Name = "a\nb" },
		"no epoch":         func(r *registry.Record) { r.Epoch = 0 },
		"no address":       func(r *registry.Record) { r.Addresses = nil },
		"wildcard address": func(r *registry.Record) { r.Addresses[0] = netip.MustParseAddrPort("0.0.0.0:7411") },
		"serves nothing":   func(r *registry.Record) { r.Serves = []string{""} },
		"serves too much":  func(r *registry.Record) { r.Serves = make([]string, 65) },
		"no port":          func(r *registry.Record) { r.Addresses[0] = netip.MustParseAddrPort("10.0.0.1:0") },
	} {
		rec := s.record(0, 1)
		change(&rec)
		if _, err := r.Publish(t.Context(), rec); err == nil {
			t.Errorf("%s: published", name)
		}
	}
}

func (s Suite) close(t *testing.T) {
	r, other := s.open(t), s.open(t)
	l := s.publish(t, r, s.record(0, 1))
	for range 2 {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if _, err := r.Lookup(t.Context(), s.Name(0)); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("lookup after close: %v", err)
	}
	if _, err := r.Publish(t.Context(), s.record(1, 1)); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("publish after close: %v", err)
	}
	if err := r.Watch(t.Context(), s.Name(0), func(registry.Record, bool) {}); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("watch after close: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("lease after close: %v", err)
	}
	if isLost(l) {
		t.Error("a lease that we gave up ourselves is lost")
	}
	if !s.Keyless {
		if rec := finds(t, other, s.Name(0)); rec != nil {
			t.Errorf("its registry is closed, and it is still there: %+v", rec)
		}
	}
}

func isLost(l registry.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

func (s Suite) leases(t *testing.T) {
	r := s.open(t)
	first := s.publish(t, r, s.record(0, 3))
	if isLost(first) {
		t.Error("lost at once")
	}
	next := s.record(0, 3)
	next.Fingerprint = "g"
	second := s.publish(t, r, next) // the engine's next word
	for range 2 {
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}
	if isLost(first) || isLost(second) {
		t.Error("an update is no loss")
	}
	if !s.Keyless {
		if rec := finds(t, r, s.Name(0)); rec == nil || !equal(*rec, next) {
			t.Errorf("after the earlier lease was closed: %+v, want %+v", rec, next)
		}
	}
	for range 2 {
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	}
	third := s.publish(t, r, s.record(0, 1)) // nothing is there any more that is later
	if err := third.Close(); err != nil {
		t.Error(err)
	}
}

func (s Suite) noWatch(t *testing.T) {
	called := false
	err := s.open(t).Watch(t.Context(), s.Name(0), func(registry.Record, bool) { called = true })
	if !errors.Is(err, registry.ErrNoWatch) || called {
		t.Errorf("%v, called %v: want ErrNoWatch", err, called)
	}
}

func (s Suite) epochs(t *testing.T) {
	r, other := s.open(t), s.open(t)
	old := s.publish(t, r, s.record(0, 5))
	if _, err := other.Publish(t.Context(), s.record(0, 4)); !errors.Is(err, registry.ErrOldEpoch) {
		t.Errorf("a lower epoch: %v, want ErrOldEpoch", err)
	}
	if rec := finds(t, other, s.Name(0)); rec == nil || rec.Epoch != 5 || isLost(old) {
		t.Errorf("after a lower epoch: %+v, lost %v", rec, isLost(old))
	}
	restarted := s.publish(t, other, s.record(0, 6))
	select {
	case <-old.Lost():
	case <-time.After(patience):
		t.Error("a higher epoch has the name, and the lease is not lost")
	}
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	if rec := finds(t, r, s.Name(0)); rec == nil || rec.Epoch != 6 || isLost(restarted) {
		t.Errorf("after the old lease was closed: %+v, lost %v", rec, isLost(restarted))
	}
}

// A record of a time that has not come, by a clock that was wrong or by hand, keeps no engine from its name.
func (s Suite) epochsAhead(t *testing.T) {
	r, other := s.open(t), s.open(t)
	for i, ahead := range []uint64{math.MaxUint64, registry.NewEpoch(time.Now().Add(24 * time.Hour))} {
		bad := s.publish(t, r, s.record(i, ahead))
		now := registry.NewEpoch(time.Now())
		good := s.publish(t, other, s.record(i, now))
		select {
		case <-bad.Lost():
		case <-time.After(patience):
			t.Errorf("epoch %d: it stays", ahead)
		}
		if _, err := r.Publish(t.Context(), s.record(i, ahead)); !errors.Is(err, registry.ErrOldEpoch) {
			t.Errorf("epoch %d, again: %v, want ErrOldEpoch", ahead, err)
		}
		if rec := finds(t, r, s.Name(i)); rec == nil || rec.Epoch != now || isLost(good) {
			t.Errorf("epoch %d: %+v, lost %v", ahead, rec, isLost(good))
		}
	}
}

// Of engines that publish one name at once the highest epoch stays.
func (s Suite) many(t *testing.T) {
	const publishers = 16
	var wg sync.WaitGroup
	for i := range publishers {
		r := s.open(t)
		wg.Go(func() {
			_, err := r.Publish(t.Context(), s.record(0, uint64(i+1)))
			if err != nil && !errors.Is(err, registry.ErrOldEpoch) {
				t.Error(err)
			}
			if _, err := r.Publish(t.Context(), s.record(i+1, 1)); err != nil {
				t.Error(err)
			}
			finds(t, r, s.Name((i*7)%publishers))
		})
	}
	wg.Wait()
	r := s.open(t)
	if rec := finds(t, r, s.Name(0)); rec == nil || rec.Epoch != publishers {
		t.Errorf("%+v, want epoch %d", rec, publishers)
	}
	for i := range publishers {
		if finds(t, r, s.Name(i+1)) == nil {
			t.Errorf("%s is not there", s.Name(i+1))
		}
	}
}

func (s Suite) lost(t *testing.T) {
	r, other := s.open(t), s.open(t)
	l, kept := s.publish(t, r, s.record(0, 9)), s.publish(t, other, s.record(1, 9))
	s.Lose(t, r)
	select {
	case <-l.Lost():
	case <-time.After(patience):
		t.Fatal("the lease has run out and is not lost")
	}
	if rec := finds(t, other, s.Name(0)); rec != nil {
		t.Errorf("the lease has run out: %+v", rec)
	}
	if rec := finds(t, other, s.Name(1)); rec == nil || isLost(kept) {
		t.Errorf("somebody else's lease: %+v, lost %v", rec, isLost(kept))
	}
	if err := l.Close(); err != nil {
		t.Errorf("close of a lost lease: %v", err)
	}
	s.publish(t, other, s.record(0, 1)) // the name is free
}

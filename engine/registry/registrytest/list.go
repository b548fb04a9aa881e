package registrytest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
)

// lister is a registry that lists, nil for one that does not.
func (s Suite) lister(t *testing.T, r registry.Registry) registry.Lister {
	t.Helper()
	l, ok := r.(registry.Lister)
	if !ok {
		t.Skip("this registry does not list")
	}
	return l
}

// listed says whether a listing has these records and no others.
func listed(l registry.Listing, want ...registry.Record) bool {
	if len(l.Records) != len(want) || len(l.Bad) > 0 {
		return false
	}
	for i := range want {
		if !equal(l.Records[i], want[i]) {
			return false
		}
	}
	return true
}

// Names of the suite are in the order of their numbers where those have one digit.
func (s Suite) list(t *testing.T) {
	r, other := s.open(t), s.open(t)
	lister := s.lister(t, other)
	if l, err := lister.List(t.Context()); err != nil || !listed(l) {
		t.Fatalf("%+v, %v: want nothing", l, err)
	}
	s.publish(t, r, s.record(1, 7))
	s.publish(t, r, s.record(0, 7))
	if l, err := lister.List(t.Context()); err != nil || !listed(l, s.record(0, 7), s.record(1, 7)) {
		t.Errorf("%+v, %v", l, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes, end := make(chan registry.Listing, 64), make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		end <- lister.WatchAll(ctx, func(l registry.Listing) { changes <- l })
	}()
	defer func() { cancel(); <-done }()
	until := func(what string, want ...registry.Record) {
		t.Helper()
		deadline := time.After(patience)
		var last registry.Listing
		for {
			select {
			case last = <-changes:
				if listed(last, want...) {
					return
				}
			case err := <-end:
				t.Fatalf("%s: the watch has ended: %v", what, err)
			case <-deadline:
				t.Fatalf("%s: the last listing is %+v", what, last)
			}
		}
	}
	until("as it is", s.record(0, 7), s.record(1, 7))
	l := s.publish(t, other, s.record(2, 1))
	until("one more", s.record(0, 7), s.record(1, 7), s.record(2, 1))
	s.publish(t, other, s.record(0, 8))
	until("a later epoch", s.record(0, 8), s.record(1, 7), s.record(2, 1))
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	until("one less", s.record(0, 8), s.record(1, 7))
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	until("its registry is closed", s.record(0, 8))
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-end:
		if !errors.Is(err, registry.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	case <-time.After(patience):
		t.Error("the registry is closed, and the watch goes on")
	}
	if _, err := lister.List(t.Context()); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

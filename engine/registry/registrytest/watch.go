package registrytest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
)

// change is one call of a watch.
type change struct {
	r    registry.Record
	gone bool
}

// watching is a watch that runs.
type watching struct {
	changes chan change
	end     chan error
	cancel  context.CancelFunc
}

func watch(t *testing.T, r registry.Registry, name string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{changes: make(chan change, 64), end: make(chan error, 1), cancel: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.end <- r.Watch(ctx, name, func(r registry.Record, gone bool) { w.changes <- change{r, gone} })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

// until waits for a change that is as wanted; those before it are skipped, as
// only the last is certain.
func (w *watching) until(t *testing.T, what string, wanted func(c change) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case c := <-w.changes:
			if wanted(c) {
				return
			}
		case <-deadline:
			t.Fatalf("no change: %s", what)
		}
	}
}

func (w *watching) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.end:
		return err
	case <-time.After(patience):
		t.Fatal("the watch does not end")
		return nil
	}
}

func (s Suite) watch(t *testing.T) {
	r, other := s.open(t), s.open(t)
	if err := other.Watch(t.Context(), s.Name(0), func(registry.Record, bool) {}); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("watch of nobody: %v", err)
	}
	s.publish(t, r, s.record(0, 2))
	w := watch(t, other, s.Name(0))
	w.until(t, "the record as it is", func(c change) bool { return equal(c.r, s.record(0, 2)) && !c.gone })
	next := s.record(0, 2)
	next.Fingerprint = "g"
	l := s.publish(t, r, next)
	w.until(t, "an update", func(c change) bool { return equal(c.r, next) && !c.gone })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	w.until(t, "gone", func(c change) bool { return equal(c.r, next) && c.gone })
	if err := w.ended(t); err != nil {
		t.Errorf("the record is gone: %v", err)
	}
	select {
	case c := <-w.changes:
		t.Errorf("after the end: %+v", c)
	default:
	}
}

func (s Suite) watchEnds(t *testing.T) {
	r, other, closing := s.open(t), s.open(t), s.open(t)
	s.publish(t, r, s.record(0, 2))
	canceled, closed := watch(t, other, s.Name(0)), watch(t, closing, s.Name(0))
	for _, w := range []*watching{canceled, closed} {
		w.until(t, "the record as it is", func(c change) bool { return !c.gone })
	}
	canceled.cancel()
	if err := canceled.ended(t); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx ended: %v", err)
	}
	if err := closing.Close(); err != nil {
		t.Error(err)
	}
	if err := closed.ended(t); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("registry closed: %v", err)
	}
}

// A watch sees an engine restart as a change, and the loss of its lease as the
// end.
func (s Suite) watchRestart(t *testing.T) {
	r, restarted, other := s.open(t), s.open(t), s.open(t)
	s.publish(t, r, s.record(0, 2))
	w := watch(t, other, s.Name(0))
	w.until(t, "the record as it is", func(c change) bool { return c.r.Epoch == 2 })
	s.publish(t, restarted, s.record(0, 3))
	w.until(t, "the later epoch", func(c change) bool { return c.r.Epoch == 3 && !c.gone })
	if s.Lose == nil {
		return
	}
	s.Lose(t, restarted)
	w.until(t, "lost", func(c change) bool { return c.r.Epoch == 3 && c.gone })
	if err := w.ended(t); err != nil {
		t.Errorf("the lease is lost: %v", err)
	}
}

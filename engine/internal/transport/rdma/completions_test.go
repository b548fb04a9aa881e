//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// led is a connection whose requests end waiters.
type led struct {
	*world
	conn  *conn
	lost  chan error
	mu    sync.Mutex
	waits map[*transport.Request]*waiter
	make  func() *transport.Request
}

func newLed(t *testing.T) *led {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, Watch: time.Hour})
	l := &led{world: w, waits: map[*transport.Request]*waiter{}, lost: make(chan error, 1)}
	here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
	remote := w.b.remote(there)
	l.make = func() *transport.Request { return requestOf(transport.Write, span(here, 0, remote, 0, 64)) }
	_, d := w.request()
	d.Remote = w.b.Offers()[0]
	d.Events.Lost = func(_ transport.Conn, err error) { l.lost <- err }
	d.Events.Done = func(_ transport.Conn, list []transport.Completion) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, c := range list {
			l.waits[c.Request].end()
		}
	}
	c, err := w.a.Dial(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	l.conn = c.(*conn)
	return l
}

// post posts one request; brief waiters poll before they sleep.
func (l *led) post(awaited, brief bool) *waiter {
	l.t.Helper()
	w, r := &waiter{brief: brief}, l.make()
	r.Awaited = awaited
	l.mu.Lock()
	l.waits[r] = w
	l.mu.Unlock()
	if n, _ := l.conn.Post([]*transport.Request{r}, nil); n != 1 {
		l.t.Fatal("the request was not taken")
	}
	return w
}

// poll has a waiter lead in another goroutine; the channel is closed when it is back.
func (l *led) poll(w *waiter) chan struct{} {
	back := make(chan struct{})
	go func() {
		defer close(back)
		l.conn.Poll(w)
	}()
	return back
}

func (l *led) reads(by uint32) func() bool {
	return func() bool { return l.conn.dev.by.Load() == by }
}

func (w *waiter) asleep() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wake != nil
}

// Who waits takes the completion and goes on, and the poller sleeps through it.
func TestWaiterLeads(t *testing.T) {
	l := newLed(t)
	for i := range 100 {
		l.f.Stall("a0", true)
		w := l.post(i > 0, i%2 == 0)
		back := l.poll(w)
		eventually(t, "the waiter does not sleep", w.asleep)
		if !l.reads(byLeader)() {
			t.Fatal("the waiter does not lead")
		}
		l.conn.dev.turn.Lock() // nobody but the leader may get past this
		l.f.Stall("a0", false)
		eventually(t, "the completion does not wake the leader", func() bool { return !w.asleep() })
		l.conn.dev.turn.Unlock()
		<-back
		if !w.Over() || !l.reads(byNobody)() {
			t.Fatal("the wait is over, and somebody reads although nothing is posted")
		}
	}
}

// What nobody waits for is read by the poller, whoever led before.
func TestPollerReadsAgain(t *testing.T) {
	l := newLed(t)
	for range 100 {
		first := l.post(true, true)
		l.conn.Poll(first)
		alone := l.post(false, false)
		eventually(t, "nobody reads what was posted after a leader", alone.Over)
		// A leader that leaves while something is in flight hands it over.
		l.f.Stall("a0", true)
		alone, led := l.post(false, false), &waiter{}
		back := l.poll(led)
		eventually(t, "the waiter does not sleep", led.asleep)
		led.end()
		<-back
		l.f.Stall("a0", false)
		eventually(t, "nobody reads what the leader has left", alone.Over)
	}
}

// A request that its poster has not waited for in the end is read all the same.
func TestPosterThatDoesNotWait(t *testing.T) {
	l := newLed(t)
	l.f.Stall("a0", true)
	first := l.post(true, true)
	back := l.poll(first)
	// Only a leader leaves the channel to nobody: the poller would go on with it.
	eventually(t, "the waiter does not lead", first.asleep)
	l.f.Stall("a0", false)
	<-back
	l.f.Stall("a0", true)
	w := l.post(true, true)
	if !l.reads(byNobody)() {
		t.Fatal("somebody reads for a poster that waits")
	}
	over := &waiter{}
	over.end()
	l.conn.Poll(over)
	l.f.Stall("a0", false)
	eventually(t, "nobody reads it", w.Over)
}

// Two who wait at the same time: one leads, and the other is told.
func TestOneLeads(t *testing.T) {
	l := newLed(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 300 {
				w := l.post(true, true)
				l.conn.Poll(w)
				eventually(t, "the request has not ended", w.Over)
			}
		})
	}
	wg.Wait()
}

// A leader does not outlive its device.
func TestLeaderOfADeviceThatGoes(t *testing.T) {
	l := newLed(t)
	l.f.Silence("a0", true)
	w := l.post(false, false)
	never := &waiter{}
	back := l.poll(never)
	eventually(t, "the waiter does not sleep", never.asleep)
	l.conn.dev.lose(errors.New("gone"))
	<-back
	if err := <-l.lost; err == nil {
		t.Error("the connection was lost without a cause")
	}
	if !w.Over() {
		t.Error("the request has not ended")
	}
	l.f.Silence("a0", false)
}

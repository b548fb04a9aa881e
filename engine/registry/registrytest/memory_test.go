package registrytest

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
)

func record(name string) registry.Record {
	return registry.Record{Name: name, Epoch: 1, Addresses: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:7411")}}
}

// clock is a clock that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestMemory(t *testing.T) {
	before := runtime.NumGoroutine()
	const ttl = 30 * time.Second
	// Each test of the suite has a registry of its own.
	type backend struct {
		m *Memory
		c clock
	}
	backends := map[string]*backend{}
	of := func(t *testing.T) *backend {
		b := backends[t.Name()]
		if b == nil {
			b = &backend{}
			b.m = NewMemory(ttl, b.c.Now)
			backends[t.Name()] = b
		}
		return b
	}
	Run(t, Suite{
		Open: func(t *testing.T) registry.Registry { return of(t).m.Client() },
		Name: func(i int) string { return fmt.Sprintf("engine %d", i) },
		Lose: func(t *testing.T, r registry.Registry) {
			b := of(t)
			r.(*MemoryClient).Cut(true)
			for range 4 { // the others renew in time
				b.c.advance(ttl / 3)
				b.m.Tick()
			}
		},
	})
	for range 6000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// A lease lasts until its time is over, not until the first renewal that fails,
// and a client that is back in time keeps its records. Without a time it lasts.
func TestMemoryLeases(t *testing.T) {
	c := clock{}
	m := NewMemory(30*time.Second, c.Now)
	client := m.Client()
	l, err := client.Publish(t.Context(), record("a"))
	if err != nil {
		t.Fatal(err)
	}
	lost := func() bool {
		select {
		case <-l.Lost():
			return true
		default:
			return false
		}
	}
	step := func(d time.Duration) bool {
		c.advance(d)
		m.Tick()
		return lost()
	}
	client.Cut(true)
	if step(29 * time.Second) {
		t.Fatal("lost a second early")
	}
	client.Cut(false)
	if step(time.Second/2) || step(29*time.Second) {
		t.Fatal("renewed in time, and lost")
	}
	client.Cut(true)
	if step(29*time.Second) || !step(2*time.Second) {
		t.Fatal("not lost in time")
	}
	for _, ttl := range []time.Duration{0, time.Hour} {
		m := NewMemory(ttl, nil)
		if l, err = m.Client().Publish(t.Context(), record("b")); err != nil {
			t.Fatal(err)
		}
		if m.Tick(); lost() {
			t.Errorf("a lease for %v is lost", ttl)
		}
	}
}

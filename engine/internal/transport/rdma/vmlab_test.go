//go:build vmlab && cgo && linux

package rdma

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
	"github.com/topoctl/topoctl/test/vmlab/guest"
)

// TestSoftRoCE runs the suite in the lab, on the kernel's own RDMA: both ends are on
// one device, so that packets stay in the machine.
func TestSoftRoCE(t *testing.T) {
	end := func(t testing.TB) transporttest.End {
		r, err := New(Options{Devices: []string{"rxe0"}, Timeout: 14, KeepAlive: 50 * time.Millisecond, Watch: 200 * time.Millisecond}, nil, func() {})
		if err != nil {
			t.Fatal(err)
		}
		offers := r.Offers()
		if len(offers) != 1 {
			t.Fatalf("rxe0 offers %v", offers)
		}
		return transporttest.End{Transport: r, Regions: memory.NewTable(64), Endpoint: offers[0]}
	}
	first := end(t) // the runtime's poller keeps two descriptors from its first use on
	t.Logf("%s", first.Endpoint.Address)
	if err := first.Transport.Close(); err != nil {
		t.Fatal(err)
	}
	transporttest.Run(t, transporttest.Harness{
		Uncounted: true, RegionBytes: 1 << 20, Requests: 2000, Cycles: 200, Patience: 60 * time.Second,
		New: func(t testing.TB) *transporttest.Ends {
			return &transporttest.Ends{Active: end(t), Passive: end(t), Restart: end}
		},
	})
}

// TestSoftRoCEFaults has links, addresses and devices go away and come back.
func TestSoftRoCEFaults(t *testing.T) {
	lab, ctx := guest.ForTest(t, 5*time.Minute)
	w := &world{t: t, session: transport.SessionID{4, 5}}
	for _, h := range []**host{&w.a, &w.b} {
		*h = &host{t: t, regions: memory.NewTable(64)}
		h := *h
		var err error
		h.Transport, err = New(Options{
			Devices: []string{"rxe0"}, Timeout: 14, Watch: 100 * time.Millisecond,
		}, nil, func() { h.changed.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(h.Close(), h.regions.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	for _, fault := range []struct {
		name       string
		away, back func() error
		says       string
	}{
		{"link down", func() error { return lab.LinkDown(ctx, 0) }, func() error { return lab.LinkUp(ctx, 0) }, "our port went down"},
		{"address removed", func() error { return lab.RemoveAddress(ctx, 0) }, func() error { return lab.AddAddress(ctx, 0) }, "our GID is gone"},
		{"device removed", func() error { return lab.RemoveRDMA(ctx, 0) }, func() error { return lab.AddRDMA(ctx, 0) }, "removed"},
	} {
		t.Run(fault.name, func(t *testing.T) {
			w.t, w.a.t, w.b.t = t, t, t
			e := w.dial()
			w.works(e)
			here, there := w.a.region(1<<16, memory.None), w.b.region(1<<16, both)
			remote := w.b.remote(there)
			stop := make(chan struct{})
			var traffic sync.WaitGroup
			traffic.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						e.Conn.Post([]*transport.Request{requestOf(transport.Write, span(here, 0, remote, 0, 1<<14))}, nil)
						time.Sleep(time.Millisecond)
					}
				}
			})
			began := time.Now()
			if err := fault.away(); err != nil {
				t.Errorf("%s: %v", fault.name, err)
			}
			lost := e.WaitLost()
			t.Logf("%s: lost after %v: %v", fault.name, time.Since(began).Round(time.Millisecond), lost)
			close(stop)
			traffic.Wait()
			says(t, lost, fault.says)
			if err := fault.back(); err != nil {
				t.Errorf("%s, coming back: %v", fault.name, err)
			}
			eventually(t, "it does not work again", func() bool {
				if len(w.b.Offers()) == 0 {
					return false
				}
				e, err := w.try()
				if err != nil {
					return false
				}
				e.Conn.Close(nil)
				_ = e.WaitLost()
				return true
			})
			w.works(w.dial())
		})
	}
}

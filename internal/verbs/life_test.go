//go:build cgo && linux && (amd64 || arm64)

package verbs_test

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// soon fails the test if a call does not come back.
func soon(t testing.TB, what string, call func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s does not come back", what)
		return nil
	}
}

func TestArmAndWait(t *testing.T) {
	f, a, b := pair(t, verbsfake.Options{})
	for i := range 50 {
		ok(t, a.cq.Arm())
		f.Stall("a", true)
		a.post(t, a.wr(verbs.OpRDMAWrite, b, uint64(i), 0, 100))
		waited := make(chan error, 1)
		go func() { waited <- a.cq.Wait() }()
		if i%10 == 0 {
			time.Sleep(time.Millisecond)
			select {
			case err := <-waited:
				t.Fatalf("nothing has completed, and Wait came back: %v", err)
			default:
			}
		}
		f.Stall("a", false)
		ok(t, soon(t, "Wait", func() error { return <-waited }))
		a.expect(t, verbs.WCSuccess)
	}
	// Not armed, no event: Wake alone ends the next Wait.
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 100))
	a.expect(t, verbs.WCSuccess)
	waited := make(chan error, 1)
	go func() { waited <- a.cq.Wait() }()
	time.Sleep(time.Millisecond)
	a.cq.Wake()
	ok(t, soon(t, "Wait", func() error { return <-waited }))
	a.cq.Wake() // before Wait
	ok(t, soon(t, "Wait", a.cq.Wait))
	f.Fail("a", "ibv_get_cq_event", 1, syscall.EIO)
	ok(t, a.cq.Arm())
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 100))
	failed(t, soon(t, "Wait", a.cq.Wait), "ibv_get_cq_event", syscall.EIO)
	a.expect(t, verbs.WCSuccess)
}

// No wake is lost, whatever the interleaving: every one is followed by a return of Wait.
func TestWakesAreNotLost(t *testing.T) {
	f := fabric(t, verbsfake.Options{})
	s := open(t, f.Lib("a"), "a", 4096)
	for range 3000 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := s.cq.Wait(); err != nil {
				t.Error(err)
			}
		}()
		s.cq.Wake()
		_ = soon(t, "Wait", func() error { <-done; return nil })
	}
}

func TestEvents(t *testing.T) {
	f, a, _ := pair(t, verbsfake.Options{})
	f.SetPort("a", 1, verbs.PortDown)
	f.SetPort("a", 1, verbs.PortActive)
	f.SetGIDs("a", 1, []verbs.GID{{Index: 5, Raw: [16]byte{9}, Type: verbs.GIDRoCEv2, Interface: 3}})
	f.SetLID("a", 1, 7, 8)
	f.QPEvent("a", a.qp.Num(), verbs.EventQPFatal)
	for _, want := range []verbs.Event{
		{Type: verbs.EventPortErr, Port: 1}, {Type: verbs.EventPortActive, Port: 1}, {Type: verbs.EventGIDChange, Port: 1},
		{Type: verbs.EventLIDChange, Port: 1}, {Type: verbs.EventQPFatal, QPNum: a.qp.Num()},
	} {
		if got := must(a.dev.NextEvent())(t); got != want {
			t.Errorf("%+v, not %+v", got, want)
		}
	}
	if g := must(a.dev.GIDs(1))(t); len(g) != 1 || g[0].Index != 5 || g[0].Interface != 3 || g[0].Type != verbs.GIDRoCEv2 {
		t.Errorf("%+v", g)
	}
	// An event that nobody reads goes with its queue pair.
	f.QPEvent("a", a.qp.Num(), verbs.EventQPFatal)
	ok(t, soon(t, "Destroy", a.qp.Destroy))
	waited := make(chan error, 1)
	go func() { _, err := a.dev.NextEvent(); waited <- err }()
	time.Sleep(time.Millisecond)
	failed(t, a.dev.Close(), "ibv_close_device", syscall.EBUSY) // without events all the same
	if err := soon(t, "NextEvent", func() error { return <-waited }); !errors.Is(err, verbs.ErrClosed) {
		t.Error(err)
	}
	if _, err := a.dev.NextEvent(); !errors.Is(err, verbs.ErrClosed) {
		t.Error(err)
	}
}

// Closing out of order is refused by name, and can be done again in order.
func TestClosingOrder(t *testing.T) {
	_, a, _ := pair(t, verbsfake.Options{})
	for _, c := range []struct {
		call func() error
		verb string
	}{{a.dev.Close, "ibv_close_device"}, {a.pd.Close, "ibv_dealloc_pd"}, {a.cq.Close, "ibv_destroy_cq"}} {
		if e := failed(t, c.call(), c.verb, syscall.EBUSY); !strings.Contains(e.What, "are open") && !strings.Contains(e.What, "complete there") {
			t.Errorf("%v does not say what is open", e)
		}
	}
	if err := soon(t, "Wait", a.cq.Wait); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Wait after Close: %v", err)
	}
	if _, err := a.cq.Poll(make([]verbs.WC, 1)); err != nil {
		t.Errorf("Poll of a queue that could not be closed: %v", err)
	}
}

// Whatever is used after its end says so.
func TestUseAfterClose(t *testing.T) {
	f := fabric(t, verbsfake.Options{})
	s := open(t, f.Lib("a"), "a", 4096)
	for range 2 { // the second time changes nothing
		s.close(t)
	}
	s.cq.Wake()
	for name, call := range map[string]func() error{
		"QueryPort": func() error { _, err := s.dev.QueryPort(1); return err },
		"GIDs":      func() error { _, err := s.dev.GIDs(1); return err },
		"PKeys":     func() error { _, err := s.dev.PKeys(1); return err },
		"AllocPD":   func() error { _, err := s.dev.AllocPD(); return err },
		"NewCQ":     func() error { _, err := s.dev.NewCQ(1); return err },
		"NextEvent": func() error { _, err := s.dev.NextEvent(); return err },
		"Register":  func() error { _, err := s.pd.Register(addr(s.mem), 4096, 0, 0); return err },
		"DMABuf":    func() error { _, err := s.pd.RegisterDMABuf(0, 0, 4096, 0, 0); return err },
		"NewQP":     func() error { _, err := s.pd.NewQP(s.cq, verbs.QPOptions{MaxSend: 1, MaxSGE: 1}); return err },
		"Poll":      func() error { _, err := s.cq.Poll(make([]verbs.WC, 1)); return err },
		"Arm":       s.cq.Arm,
		"Wait":      s.cq.Wait,
		"Init":      func() error { return s.qp.Init(1, 0, 0) },
		"SetError":  s.qp.SetError,
		"State":     func() error { _, err := s.qp.State(); return err },
		"Post":      func() error { _, err := s.qp.Post(make([]verbs.SendWR, 1)); return err },
	} {
		if err := soon(t, name, call); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A destroy that blocks keeps nobody else: Post fails at once, other queue pairs work.
func TestDestroyBlocks(t *testing.T) {
	f, a, b := pair(t, verbsfake.Options{})
	f.DestroyDelay("a", 300*time.Millisecond)
	destroyed := make(chan error, 1)
	go func() { destroyed <- a.qp.Destroy() }()
	until(t, func() bool {
		_, err := a.qp.Post([]verbs.SendWR{a.wr(verbs.OpRDMAWrite, b, 1, 0, 1)})
		return errors.Is(err, verbs.ErrClosed)
	})
	select {
	case <-destroyed:
		t.Error("Destroy did not block: the test shows nothing")
	default:
	}
	if n, err := a.cq.Poll(make([]verbs.WC, 64)); n > 64 || err != nil {
		t.Error(err)
	}
	ok(t, soon(t, "Destroy", func() error { return <-destroyed }))
	f.DestroyDelay("a", 0)
}

// Everybody at once: posting, polling, waiting, events, and the end of it all.
func TestEverybodyAtOnce(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	before := runtime.NumGoroutine()
	f := fabric(t, verbsfake.Options{})
	for range rounds {
		a, b := open(t, f.Lib("a"), "a", 1<<16), open(t, f.Lib("b"), "b", 1<<16)
		connect(t, a, b)
		var all sync.WaitGroup
		run := func(call func() error) {
			all.Add(1)
			go func() {
				defer all.Done()
				for {
					err := call()
					if errors.Is(err, verbs.ErrClosed) {
						return
					}
					if err != nil && !errors.Is(err, syscall.EBUSY) {
						t.Error(err)
						return
					}
				}
			}()
		}
		for range 2 {
			run(func() error { _, err := a.qp.Post([]verbs.SendWR{a.wr(verbs.OpRDMAWrite, b, 1, 0, 100)}); return err })
			run(func() error { _, err := a.cq.Poll(make([]verbs.WC, 7)); return err })
			run(func() error { return errors.Join(a.cq.Arm(), a.cq.Wait()) })
			run(func() error { _, err := a.qp.State(); return err })
		}
		run(func() error { _, err := a.dev.NextEvent(); return err })
		run(func() error { f.SetPort("a", 1, verbs.PortActive); _, err := a.dev.QueryPort(1); return err })
		time.Sleep(3 * time.Millisecond)
		a.close(t)
		b.close(t)
		all.Wait()
	}
	until(t, func() bool { return runtime.NumGoroutine() <= before+1 })
}

// Posting and polling allocate nothing.
func TestNoAllocations(t *testing.T) {
	_, a, b := pair(t, verbsfake.Options{})
	wrs := make([]verbs.SendWR, 16)
	for i := range wrs {
		wrs[i] = a.wr(verbs.OpRDMAWrite, b, uint64(i), i*64, 64)
	}
	out := make([]verbs.WC, verbs.MaxBatch)
	if n := testing.AllocsPerRun(200, func() {
		if n, err := a.qp.Post(wrs); n != 16 || err != nil {
			t.Fatal(n, err)
		}
		for got := 0; got < 16; {
			n, err := a.cq.Poll(out)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
		if err := a.cq.Arm(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Of a removed device everything can be ended, once the device has said that it is over and
// not before: until then queue pairs may still move bytes.
func TestRemovedDevice(t *testing.T) {
	f, a, b := pair(t, verbsfake.Options{})
	f.Remove("b", false)
	for what, err := range map[string]error{"qp": b.qp.Destroy(), "mr": b.mr.Close()} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v while its device is being removed", what, err)
		}
	}
	fill(a.mem, 7)
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 64))
	a.expect(t, verbs.WCSuccess) // that it did not end is true
	f.Remove("b", true)
	if err := b.qp.Destroy(); !errors.Is(err, syscall.EIO) {
		t.Errorf("qp: %v before the event was taken", err)
	}
	for {
		e, err := b.dev.NextEvent()
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == verbs.EventDeviceFatal {
			break
		}
	}
	ok(t, b.qp.Destroy())
	ok(t, b.mr.Close())
	ok(t, b.cq.Close())
	ok(t, b.pd.Close())
	ok(t, b.dev.Close())
	if left := f.Objects("b"); left != (verbsfake.Objects{}) {
		t.Errorf("objects are left: %+v", left)
	}
}

// A device that fails and is removed later has not ended anything when it failed, nor when
// it begins to be removed.
func TestRemovedAfterFailure(t *testing.T) {
	f, a, b := pair(t, verbsfake.Options{})
	fatal := func() {
		t.Helper()
		for {
			e, err := b.dev.NextEvent()
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == verbs.EventDeviceFatal {
				return
			}
		}
	}
	f.Fatal("b")
	fatal()
	f.Remove("b", false)
	for what, err := range map[string]error{"qp": b.qp.Destroy(), "mr": b.mr.Close(), "cq": b.cq.Close()} {
		if err == nil {
			t.Errorf("%s: ended while its device is being removed", what)
		}
	}
	f.Remove("b", true)
	fatal()
	ok(t, b.qp.Destroy())
	ok(t, b.mr.Close())
	ok(t, b.cq.Close())
	ok(t, b.pd.Close())
	ok(t, b.dev.Close())
	ok(t, a.qp.Destroy())
}

// EIO of a device that has not said anything is an error.
func TestIOErrorIsNoEnd(t *testing.T) {
	f, a, _ := pair(t, verbsfake.Options{})
	f.Fail("a", "ibv_destroy_qp", 1, syscall.EIO)
	if err := a.qp.Destroy(); !errors.Is(err, syscall.EIO) {
		t.Errorf("destroy: %v", err)
	}
	if n := f.Objects("a").QueuePairs; n != 1 {
		t.Errorf("%d queue pairs", n)
	}
}

// Events are the leader's alone while there is one, and the owner's afterwards if they were
// not taken.
func TestLead(t *testing.T) {
	f, a, b := pair(t, verbsfake.Options{})
	owner := make(chan error, 1)
	go func() { owner <- a.cq.Wait() }()
	asleep := func() {
		t.Helper()
		select {
		case err := <-owner:
			t.Fatalf("the owner was woken: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	for i := range 50 {
		ok(t, a.cq.Lead())
		ok(t, a.cq.Arm())
		f.Stall("a", true)
		a.post(t, a.wr(verbs.OpRDMAWrite, b, uint64(i), 0, 100))
		led := make(chan error, 1)
		go func() { led <- a.cq.LeaderWait() }()
		f.Stall("a", false)
		ok(t, soon(t, "LeaderWait", func() error { return <-led }))
		a.expect(t, verbs.WCSuccess)
		if i%10 == 0 {
			asleep()
		}
		ok(t, a.cq.Unlead())
		if i%10 == 0 {
			asleep()
		}
	}
	// An event that comes while somebody leads, and is not taken.
	ok(t, a.cq.Lead())
	ok(t, a.cq.Arm())
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 100))
	a.expect(t, verbs.WCSuccess)
	asleep()
	ok(t, a.cq.Unlead())
	ok(t, soon(t, "Wait", func() error { return <-owner }))
}

// An owner that begins to wait while there is a leader takes none of the leader's events.
func TestOwnerWaitsForLeader(t *testing.T) {
	_, a, b := pair(t, verbsfake.Options{})
	ok(t, a.cq.Lead())
	ok(t, a.cq.Arm())
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 100))
	a.expect(t, verbs.WCSuccess)
	owner := make(chan error, 1)
	go func() { owner <- a.cq.Wait() }()
	select {
	case err := <-owner:
		t.Fatalf("the owner took the leader's event: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	ok(t, soon(t, "LeaderWait", a.cq.LeaderWait))
	a.cq.Wake()
	ok(t, soon(t, "Wait", func() error { return <-owner }))
}

// No wake of a leader is lost, before its wait or in it, and Close ends it.
func TestLeaderWakes(t *testing.T) {
	f := fabric(t, verbsfake.Options{})
	s := open(t, f.Lib("a"), "a", 4096)
	ok(t, s.cq.Lead())
	for range 1000 {
		done := make(chan error, 1)
		go func() { done <- s.cq.LeaderWait() }()
		s.cq.LeaderWake()
		ok(t, soon(t, "LeaderWait", func() error { return <-done }))
	}
	done := make(chan error, 1)
	go func() { done <- s.cq.LeaderWait() }()
	time.Sleep(time.Millisecond)
	ok(t, s.qp.Destroy())
	ok(t, s.cq.Close())
	if err := soon(t, "LeaderWait", func() error { return <-done }); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("LeaderWait after Close: %v", err)
	}
	if err := s.cq.Lead(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Lead after Close: %v", err)
	}
	if err := s.cq.LeaderWait(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("LeaderWait after Close: %v", err)
	}
	s.cq.LeaderWake()
}

//go:build cgo && linux && (amd64 || arm64)

package verbs_test

import (
	"errors"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/base/verbs"
	"github.com/topoctl/topoctl/internal/base/verbs/verbsfake"
)

// While somebody leads events are his alone; what he has not taken is the owner's after
// that.
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

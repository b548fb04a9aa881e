package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
)

// Notifications have memory until they are read, and one peer's do not take that of others.
func TestNotificationsHoldMemory(t *testing.T) {
	const size, most = 1 << 10, 64
	held := transport.NewShares("memory", 16*size)
	b := newInbox(most, held)
	put := func(a transport.Account) error {
		return b.put(t.Context(), t.Context(), Notification{Payload: make([]byte, size)}, a, 0)
	}
	n := 0
	for put("greedy") == nil {
		n++
	}
	if n != 8 {
		t.Errorf("one peer has %d notifications of 1 KiB in 16 KiB", n)
	}
	if err := put("greedy"); !errors.Is(err, session.ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	if err := put("good"); err != nil {
		t.Errorf("another peer: %v", err)
	}
	for range n + 1 {
		<-b.c
	}
	if err := put("greedy"); err != nil {
		t.Errorf("when all were read: %v", err)
	}
	<-b.c
	if err := held.Take("good", 16*size); err != nil {
		t.Errorf("what was read still has memory: %v", err)
	}
}

// Those that wait for room leave some to wait for others, and go on in their order.
func TestNotificationsWaiting(t *testing.T) {
	b := newInbox(1, transport.NewShares("memory", 1<<20))
	ended := make(chan error)
	put := func(a transport.Account) {
		go func() {
			ended <- b.put(t.Context(), t.Context(), Notification{From: trust.PeerID{Claimed: string(a)}}, a, time.Minute)
		}()
	}
	put("greedy")
	must(t, <-ended)
	for range maxWaiting/2 + 1 {
		put("greedy")
	}
	if err := <-ended; !errors.Is(err, session.ErrBusy) {
		t.Errorf("more than may wait: %v", err)
	}
	eventually(t, "all others of the peer wait", func() bool { return b.waiting.By()["greedy"] == maxWaiting/2 })
	put("good")
	eventually(t, "another peer waits, too", func() bool { return b.waiting.By()["good"] == 1 })
	good := 0
	for range maxWaiting/2 + 2 {
		if n := <-b.c; n.From.Claimed == "good" {
			good++
		}
	}
	if good != 1 {
		t.Errorf("the other peer's came %d times", good)
	}
	for range maxWaiting/2 + 1 {
		ok(t, <-ended)
	}
}

// One peer's calls do not take all that the application answers, however many sessions it has.
func TestCallsAreShared(t *testing.T) {
	p := newPair(t, 4096, Options{}, Options{})
	a := &answering{shares: transport.NewShares("calls", 4), by: map[*session.Session]int{}}
	s := p.peer.session
	for range 2 {
		must(t, a.enter(s))
	}
	var full *transport.FullError
	if err := a.enter(s); !errors.As(err, &full) || !errors.Is(err, ErrLimit) {
		t.Errorf("%v", err)
	}
	ok(t, a.shares.Take("another", 1))
	a.leave(s)
	ok(t, a.enter(s))
}

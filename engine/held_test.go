package engine

import (
	"bytes"
	"encoding/binary"
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
	b := newInbox(most, held, nil)
	put := func(a transport.Account) error {
		return b.put(t.Context(), t.Context(), Notification{Payload: make([]byte, size-notificationBytes)}, a, 0)
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

// What the channel has no room for is bounded by memory, and comes in its order.
func TestNotificationsQueue(t *testing.T) {
	p := newPair(t, 4096, Options{}, Options{})
	ctx := testContext(t)
	const count = 3 * inChannel
	for i := range count {
		must(t, p.peer.Notify(ctx, binary.BigEndian.AppendUint32(nil, uint32(i))))
	}
	large := bytes.Repeat([]byte("x"), maxNotify)
	must(t, p.peer.Notify(ctx, large))
	for i := range count {
		if n := <-p.server.Notifications(); binary.BigEndian.Uint32(n.Payload) != uint32(i) {
			t.Fatalf("notification %d is %x", i, n.Payload)
		}
	}
	if n := <-p.server.Notifications(); !bytes.Equal(n.Payload, large) {
		t.Errorf("the large one has %d bytes", len(n.Payload))
	}
	eventually(t, "nothing is held", func() bool {
		p.server.notifications.settle()
		return len(p.server.notifications.unread) == 0
	})
	full := newInbox(inChannel+1, transport.NewShares("memory", 1<<30), func(f func()) bool { go f(); return true })
	put := func() error { return full.put(ctx, ctx, Notification{}, "peer", time.Minute) }
	for range inChannel + 1 {
		must(t, put())
	}
	if err := put(); !errors.Is(err, session.ErrBusy) || !errors.Is(err, ErrLimit) {
		t.Errorf("more than Limits.Notifications: %v", err)
	}
}

// Those that wait for room leave some to wait for others, and go on in their order.
func TestNotificationsWaiting(t *testing.T) {
	b := newInbox(1, transport.NewShares("memory", 1<<20), nil)
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

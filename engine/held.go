package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// What peers can make an engine hold is bounded together, in bytes, and divided between them.
// See Limits.PeerBytes.

const (
	// peerPart is which part of the memory there is peers get by default, and mostPeerBytes how
	// much at most.
	peerPart      = 4
	mostPeerBytes = 4 << 30
	// leastPeerBytes are enough for the largest call and its answer, with as much left.
	leastPeerBytes = 32 << 20
	// somePeerBytes is for a system that does not tell how much memory there is.
	somePeerBytes = 256 << 20
)

// defaultPeerBytes is a part of the memory that this process can have.
func defaultPeerBytes() int64 {
	left, known := memory.Left()
	if !known {
		return somePeerBytes
	}
	return min(max(left/peerPart, leastPeerBytes), mostPeerBytes)
}

// answerBytes is what an answer to a peer's call may take.
func answerBytes(method uint16) int {
	switch method {
	case methodDescribe, methodAsk:
		return MaxAnswerBytes
	}
	return 0
}

// maxWaiting is how many notifications wait for room at a time, which peers share.
const maxWaiting = 1 << 10

// inbox are the notifications that the application has not read. Those that find it full wait
// in the order in which they came, and one peer's do not keep others from waiting.
type inbox struct {
	c       chan Notification
	memory  *transport.Shares
	waiting *transport.Shares

	mu     sync.Mutex
	unread []unread // in the channel, in its order
}

// unread is the memory that a notification has.
type unread struct {
	account transport.Account
	bytes   int64
}

func newInbox(most int, memory *transport.Shares) *inbox {
	b := &inbox{c: make(chan Notification, most), memory: memory, waiting: transport.NewShares("notifications", maxWaiting)}
	memory.OnFull(b.settle)
	return b
}

// settle gives back what those had that were read: the channel does not tell when.
func (b *inbox) settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := max(len(b.unread)-len(b.c), 0)
	for _, u := range b.unread[:n] {
		b.memory.Give(u.account, u.bytes)
	}
	b.unread = b.unread[n:]
}

// put waits for room, so that a slow application slows its peers down. A peer that has its share
// is to come again. closed ends with the engine.
func (b *inbox) put(ctx, closed context.Context, n Notification, a transport.Account, wait time.Duration) error {
	b.settle()
	u := unread{a, int64(len(n.Payload))}
	if err := b.memory.Take(a, u.bytes); err != nil {
		return errors.Join(session.ErrBusy, err)
	}
	err := b.send(ctx, closed, n, u, wait)
	if err != nil {
		b.memory.Give(a, u.bytes)
	}
	return err
}

func (b *inbox) send(ctx, closed context.Context, n Notification, u unread, wait time.Duration) error {
	b.mu.Lock()
	select {
	case b.c <- n:
		b.unread = append(b.unread, u)
		b.mu.Unlock()
		return nil
	default:
		b.mu.Unlock()
	}
	if err := b.waiting.Take(u.account, 1); err != nil {
		return errors.Join(session.ErrBusy, err)
	}
	defer b.waiting.Give(u.account, 1)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case b.c <- n:
		b.mu.Lock()
		b.unread = append(b.unread, u)
		b.mu.Unlock()
		return nil
	case <-timer.C:
		return errors.New("peer does not take notifications")
	case <-ctx.Done():
		return ctx.Err()
	case <-closed.Done():
		return ErrClosed
	}
}

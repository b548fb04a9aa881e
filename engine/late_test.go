package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
)

// slowEnd is a transport whose connections take their time to end.
type slowEnd struct {
	*faked
	release chan struct{}
}

func (s *slowEnd) Dial(ctx context.Context, d transport.Dial) (transport.Conn, error) {
	c, err := s.faked.Dial(ctx, d)
	if err != nil {
		return nil, err
	}
	return slowConn{c, s.release}, nil
}

type slowConn struct {
	transport.Conn
	release chan struct{}
}

func (c slowConn) Close(cause error) {
	go func() {
		<-c.release
		c.Conn.Close(cause)
	}()
}

// lossFirst is a transport that says that a connection is lost before it says what became
// of its requests, against the contract.
type lossFirst struct{ *faked }

func (l lossFirst) Dial(ctx context.Context, d transport.Dial) (transport.Conn, error) {
	events := d.Events
	var late []transport.Completion
	d.Events.Done = func(c transport.Conn, done []transport.Completion) {
		for i := range done {
			if done[i].Err == nil {
				events.Done(c, done[i:i+1])
			} else {
				late = append(late, done[i])
			}
		}
	}
	d.Events.Lost = func(c transport.Conn, err error) {
		events.Lost(c, err)
		for i := range late {
			events.Done(c, late[i:i+1])
		}
	}
	return l.faked.Dial(ctx, d)
}

// Slices that come back after the loss of their connection are taken back, and sent again.
func TestDoneAfterLost(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	build := &transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		x, err := n.transport(fake.Options{Name: "fake", MaxBytes: 64 << 10}).(*transport.Factory).Make(env)
		return lossFirst{x.(*faked)}, err
	}}
	p := newPair(t, 1<<20, Options{Transports: []TransportFactory{build}}, Options{Transports: []TransportFactory{n.transport(fake.Options{Name: "fake"})}})
	p.warm(t)
	p.randomize(7)
	ctx := testContext(t)
	conn := n.of("client", "fake").Conns()[0]
	conn.HoldWrites()
	b := p.submit(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
	eventually(t, "writes are on the wire", func() bool { return conn.Held() > 2 })
	conn.Kill(errors.New("the cable was pulled"))
	ok(t, b.Wait(ctx))
	equal(t, "the peer's memory", p.theirs.Bytes(), p.mine.Bytes())
}

// A write that comes back after Peer.Close has given up waiting, and may still land,
// keeps its place from being used all the same.
func TestFenceAfterClose(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	slow := &slowEnd{release: make(chan struct{})}
	build := &transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		x, err := n.transport(fake.Options{Name: "fake"}).(*transport.Factory).Make(env)
		slow.faked = x.(*faked)
		return slow, err
	}}
	p := newPair(t, 1<<20, Options{Transports: []TransportFactory{build}}, Options{Transports: []TransportFactory{n.transport(fake.Options{Name: "fake"})}})
	p.client.closeTime = 50 * time.Millisecond
	p.warm(t)
	leave := make(chan struct{})
	there := n.of("server", "fake")
	there.mu.Lock()
	there.leave = leave
	there.mu.Unlock()
	conn := slow.Conns()[0]
	conn.HoldWrites()
	ctx := testContext(t)
	b := p.submit(t, ctx, []Op{WriteOp(p.mine.Span(0, 5000), p.to.At(100_000))}, SubmitOptions{})
	eventually(t, "the write is on the wire", func() bool { return conn.Held() == 1 })
	must(t, p.peer.Close())
	select {
	case <-b.Done():
		t.Fatalf("the batch is over while its buffer is in use: %v", b.Err())
	default:
	}
	close(slow.release)
	<-b.Done()
	if err := b.Err(); !errors.Is(err, ErrUnsafeBuffer) {
		t.Errorf("got %v, want ErrUnsafeBuffer", err)
	}
	p.open(t, ctx)
	if _, err := p.peer.Submit(ctx, []Op{WriteOp(p.mine.Span(0, 1), p.to.At(104_000))}, SubmitOptions{}); !errors.Is(err, ErrQuarantined) {
		t.Errorf("the place may be used again: %v", err)
	}
	close(leave)
	eventually(t, "the fence is confirmed", func() bool { return p.client.Stats().Peers[0].Quarantined == 0 })
	if landed := conn.ReleaseWrites(); landed != 0 {
		t.Errorf("%d writes landed after the fence", landed)
	}
	eventually(t, "the closed peer is forgotten", func() bool {
		p.client.mu.Lock()
		defer p.client.mu.Unlock()
		for _, x := range p.client.core.Lanes(nil) {
			if x.User.(*lane).peer != p.peer {
				return false
			}
		}
		return len(p.client.unfenced) == 0
	})
}

// A batch with a peer that is lost fails for that, also where the peer is closed, as by Target, before the batch has
// heard of it.
func TestCloseLost(t *testing.T) {
	checkLeaks(t)
	p := newPair(t, 4096, Options{}, Options{Limits: Limits{Notifications: 1}})
	ctx := testContext(t)
	must(t, p.peer.Notify(ctx, []byte("fills the queue")))
	b := p.submit(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{Notify: []byte("waits")})
	eventually(t, "the bytes are there", func() bool { return b.Progress().Bytes == 4096 })
	p.peer.ended.Store(&ErrPeerLost)
	ok(t, p.peer.Close())
	if err := b.Err(); !errors.Is(err, ErrPeerLost) || errors.Is(err, ErrClosed) {
		t.Errorf("it failed with: %v", err)
	}
}

// A notification that waits for the peer's application can be cancelled, and the error
// says what is known of it.
func TestCancelNotification(t *testing.T) {
	checkLeaks(t)
	p := newPair(t, 4096, Options{}, Options{Limits: Limits{Notifications: 1}})
	ctx := testContext(t)
	must(t, p.peer.Notify(ctx, []byte("fills the queue")))
	reason := errors.New("the user's reason")
	for _, how := range []string{"Cancel", "context", "before"} {
		bound, cancel := context.WithCancelCause(ctx)
		b, err := p.peer.Submit(bound, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{Notify: []byte("waits")})
		must(t, err)
		if how != "before" {
			eventually(t, "the notification is under way", func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return b.canceling != nil
			})
		}
		want := ErrCanceled
		if how == "context" {
			want = reason
			cancel(reason)
		} else {
			b.Cancel()
		}
		select {
		case <-b.Done():
		case <-time.After(within / 2): // far below the deadline
			t.Fatalf("%s: the batch goes on", how)
		}
		err = b.Err()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", how, err)
		}
		if how != "before" && !strings.Contains(err.Error(), "the data is in place, but the notification was given up while the peer had not answered, and may or may not arrive") {
			t.Errorf("%s: %v", how, err)
		}
		cancel(nil)
	}
}

// Requests of very many spans are not kept for later ones.
func TestLargeRequestsAreNotKept(t *testing.T) {
	e := newEngine(t, Options{})
	made := 0
	e.pools.postings.New = func() any { made++; return &posting{} }
	e.keepPosting(&posting{request: transport.Request{Spans: make([]transport.Span, 0, mostSpans+1)}})
	if e.pools.postings.Get(); made != 1 {
		t.Error("memory for very many spans is kept")
	}
}

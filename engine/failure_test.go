package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/registrytest"
	"github.com/topoctl/topoctl/pathsel"
)

// stallAll has every connection that the client dialled stand still, or go on.
func stallAll(f *faked, on bool) {
	for _, c := range f.Conns() {
		c.Stall(on)
	}
}

// warm makes sure that there is a connection.
func (p *pair) warm(t testing.TB) {
	t.Helper()
	must(t, p.peer.Write(testContext(t), p.mine.Span(0, 1), p.to.At(0)))
}

// submitBefore submits with a deadline that far off, again where the machine stood still until it was over.
func (p *pair) submitBefore(t testing.TB, far time.Duration, ops []Op, o SubmitOptions) (*Batch, context.Context) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), far)
		t.Cleanup(cancel)
		b, err := p.peer.Submit(ctx, ops, o)
		if err == nil {
			return b, ctx
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
}

func TestCancel(t *testing.T) {
	checkLeaks(t)
	p, n := fakePair(t, 1<<20, fake.Options{})
	p.warm(t)
	ctx := testContext(t)
	for _, how := range []string{"Cancel", "context", "cause"} {
		stallAll(n.of("client", "fake"), true)
		bound, cancel := context.WithCancelCause(ctx)
		b, err := p.peer.Submit(bound, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
		must(t, err)
		waiting, stop := context.WithCancel(ctx)
		stop()
		if err := b.Wait(waiting); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a wait that is over: %v", how, err)
		}
		if err := b.Err(); err != nil {
			t.Errorf("%s: error %v of a batch that runs", how, err)
		}
		want := ErrCanceled
		switch how {
		case "Cancel":
			b.Cancel()
		case "context":
			cancel(nil)
			want = context.Canceled
		case "cause":
			want = errors.New("the user's reason")
			cancel(want)
		}
		if err := b.Wait(ctx); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", how, err, want)
		}
		cancel(nil)
		b.Cancel() // changes nothing
		p.warm(t)  // the peer works
	}
	if s := p.client.Stats(); s.Failed != 3 {
		t.Errorf("%d failed batches, want 3", s.Failed)
	}
}

func TestDeadline(t *testing.T) {
	checkLeaks(t)
	p, _ := fakePair(t, 1<<20, fake.Options{BytesPerSec: 1 << 20, MaxBytes: 64 << 10})
	p.warm(t)
	b, ctx := p.submitBefore(t, 300*time.Millisecond, []Op{ReadOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
	<-b.Done()
	if err := b.Err(); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnsafeBuffer) {
		t.Errorf("got %v, want a deadline and safe buffers", err)
	}
	<-ctx.Done() // the engine's clock may be a moment ahead
	if _, err := p.peer.Submit(ctx, nil, SubmitOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("submit after the deadline: %v", err)
	}
}

func TestUnsafeBufferAndQuarantine(t *testing.T) {
	checkLeaks(t)
	p, n := fakePair(t, 1<<20, fake.Options{})
	p.warm(t)
	there := n.of("server", "fake")
	release := make(chan struct{})
	there.mu.Lock()
	there.leave = release
	there.mu.Unlock()
	conn := n.of("client", "fake").Conns()[0]
	conn.HoldWrites()
	var b *Batch
	for far := time.Second; conn.Held() == 0; far *= 4 { // until it is on the wire in that time
		b, _ = p.submitBefore(t, far, []Op{WriteOp(p.mine.Span(0, 5000), p.to.At(100_000))}, SubmitOptions{Notify: []byte("never")})
		eventually(t, "the write is on the wire", func() bool { return conn.Held() == 1 || b.Err() != nil })
	}
	conn.Kill(errors.New("the cable was pulled"))
	<-b.Done()
	err := b.Err()
	if !errors.Is(err, ErrUnsafeBuffer) {
		t.Fatalf("got %v, want ErrUnsafeBuffer", err)
	}
	x := b.Explain()
	if x.State != "unsafe" || len(x.Fences) != 1 || x.Fences[0].Fenced || !strings.Contains(x.Text(), "may still land") {
		t.Errorf("explanation of an unsafe batch:\n%s", x.Text())
	}
	all := testContext(t)
	_, err = p.peer.Submit(all, []Op{
		WriteOp(p.mine.Span(0, 10), p.to.At(0)),
		ReadOp(p.mine.Span(10, 10), p.to.At(104_990)),
	}, SubmitOptions{})
	var op *OpError
	if !errors.Is(err, ErrQuarantined) || !errors.As(err, &op) || op.Op != 1 {
		t.Errorf("op at a quarantined range: %v", err)
	}
	// Pages beside the range are free, those on it are not.
	pages := func(k uint32) []Op {
		return []Op{{Local: p.mine.Span(0, 0), Remote: p.to.At(0), Layout: &Layout{
			Bytes: 1000, Count: 2, LocalStride: 1000, RemoteStride: 1000, RemotePages: []uint32{0, k}}}}
	}
	if _, err := p.peer.Submit(all, pages(102), SubmitOptions{}); !errors.Is(err, ErrQuarantined) {
		t.Errorf("page on a quarantined range: %v", err)
	}
	if b, err := p.peer.Submit(all, pages(105), SubmitOptions{}); err != nil || b.Wait(all) != nil {
		t.Errorf("page beside a quarantined range: %v", err)
	}
	if s := p.client.Stats(); s.Unsafe != 1 || s.Peers[0].Quarantined != 1 {
		t.Errorf("%d unsafe batches and %d quarantined ranges, want 1 of each", s.Unsafe, s.Peers[0].Quarantined)
	}
	// The peer that is opened again has the same memory: the range stays closed, and
	// the fence is asked for over the new session.
	must(t, p.peer.Close())
	p.open(t, all)
	if _, err := p.peer.Submit(all, []Op{WriteOp(p.mine.Span(0, 1), p.to.At(100_000))}, SubmitOptions{}); !errors.Is(err, ErrQuarantined) {
		t.Errorf("after opening the peer again: %v", err)
	}
	short, cancel := context.WithTimeout(all, 10*time.Millisecond)
	defer cancel()
	if err := p.peer.Fenced(short); !errors.Is(err, ErrQuarantined) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before the fence: %v", err)
	}
	close(release)
	must(t, p.peer.Fenced(all))
	if x := b.Explain(); !x.Fences[0].Fenced || !strings.Contains(x.Text(), "the peer has left it since") {
		t.Errorf("explanation after the fence:\n%s", x.Text())
	}
	before := bytes.Repeat([]byte{0xee}, 5000)
	copy(p.mine.Bytes(), before)
	must(t, p.peer.Write(all, p.mine.Span(0, 5000), p.to.At(100_000)))
	if landed := conn.ReleaseWrites(); landed != 0 {
		t.Errorf("%d writes landed after the fence", landed)
	}
	equal(t, "reused buffer", p.theirs.Bytes()[100_000:105_000], before)
}

// A write of a connection that died is sent again, and the batch is done only when
// the old one cannot land any more; no notification comes before.
func TestLateWriteIsFenced(t *testing.T) {
	checkLeaks(t)
	p, n := fakePair(t, 1<<20, fake.Options{})
	p.warm(t)
	p.randomize(3)
	conn := n.of("client", "fake").Conns()[0]
	conn.HoldWrites()
	ctx := testContext(t)
	b := p.submit(t, ctx, []Op{WriteOp(p.mine.Span(0, 9000), p.to.At(0))}, SubmitOptions{Notify: []byte("x")})
	eventually(t, "the write is on the wire", func() bool { return conn.Held() == 1 })
	conn.Kill(errors.New("the cable was pulled"))
	must(t, b.Wait(ctx))
	if got := <-p.server.Notifications(); string(got.Payload) != "x" {
		t.Errorf("notification %q", got.Payload)
	}
	copy(p.theirs.Bytes(), "used for something else")
	if landed := conn.ReleaseWrites(); landed != 0 {
		t.Errorf("%d writes landed late", landed)
	}
	if got := p.theirs.Bytes()[:23]; string(got) != "used for something else" {
		t.Errorf("the reused buffer holds %q", got)
	}
	if x := b.Explain(); x.Retries != 1 || len(x.Notes) == 0 || x.State != "done" {
		t.Errorf("explanation:\n%s", x.Text())
	}
}

func TestRestartedAndLostPeer(t *testing.T) {
	checkLeaks(t)
	server := newEngine(t, Options{Name: "server"})
	address := server.Addrs()[0].String()
	client := newEngine(t, Options{Name: "client", GiveUp: 2 * time.Second})
	ctx := testContext(t)
	kv := func(e *Engine) {
		must(t, errOf(e.Alloc(4096, RegionOptions{Name: "kv", Grant: memory.PeerRead})))
	}
	kv(server)
	mine, err := client.Alloc(4096, RegionOptions{})
	must(t, err)
	open := func() (*Peer, *RemoteRegion) {
		p, err := client.Open(ctx, address)
		must(t, err)
		r, err := p.Region(ctx, "kv")
		must(t, err)
		return p, r
	}
	p, r := open()
	must(t, p.Read(ctx, mine.All(), r.At(0)))
	must(t, server.Close())
	<-p.Done()
	if err := p.Err(); !errors.Is(err, ErrPeerLost) {
		t.Errorf("after goodbye: %v", err)
	}
	if err := p.Read(ctx, mine.All(), r.At(0)); !errors.Is(err, ErrPeerLost) {
		t.Errorf("read from a lost peer: %v", err)
	}
	if _, err := p.Region(ctx, "kv"); !errors.Is(err, ErrPeerLost) {
		t.Errorf("region of a lost peer: %v", err)
	}
	if s := client.Stats(); s.Peers[0].State != "lost" || s.Peers[0].Error == "" {
		t.Errorf("stats of a lost peer: %+v", s.Peers[0])
	}
	server = newEngine(t, Options{Name: "server", Listen: []string{address}})
	kv(server)
	p2, r2 := open()
	if p2.Epoch() == p.Epoch() {
		t.Error("a peer that was started again has the same epoch")
	}
	must(t, p2.Read(ctx, mine.All(), r2.At(0)))
	if err := p2.Read(ctx, mine.All(), r.At(0)); err == nil || !strings.Contains(err.Error(), "another peer") {
		t.Errorf("region of the former life: %v", err)
	}
	ok(t, errors.Join(p.Close(), p2.Close()))
	if err := p2.Read(ctx, mine.All(), r2.At(0)); !errors.Is(err, ErrClosed) {
		t.Errorf("read from a closed peer: %v", err)
	}
}

func TestRegionClosedDuringTransfer(t *testing.T) {
	for _, whose := range []string{"local", "remote"} {
		for _, name := range []string{"fake", "tcp", "shm"} {
			t.Run(whose+" "+name, func(t *testing.T) {
				checkLeaks(t)
				p := transportPair(t, name, 8<<20)
				ctx := testContext(t)
				p.warm(t)
				stop := make(chan struct{})
				failed := make(chan error)
				go func() {
					defer close(failed)
					for {
						if err := p.peer.Write(ctx, p.mine.All(), p.to.At(0)); err != nil {
							failed <- err
							return
						}
						select {
						case <-stop:
							return
						default:
						}
					}
				}()
				r := p.mine
				if whose == "remote" {
					r = p.theirs
				}
				if err := r.Close(ctx); err != nil {
					t.Errorf("close: %v", err)
				}
				err := <-failed
				if err == nil {
					t.Fatal("writes went on")
				}
				if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoRegion) && !strings.Contains(err.Error(), "no such region") && !strings.Contains(err.Error(), "closed") {
					t.Errorf("got %v", err)
				}
				if whose == "remote" {
					over, cancel := context.WithCancel(ctx)
					cancel()
					eventually(t, "the client knows that the region is closed", func() bool {
						_, err := p.peer.Region(over, "kv")
						return err != nil
					})
				}
				if _, err := r.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrClosed) {
					t.Errorf("reading a closed region: %v", err)
				}
				if err := r.Close(ctx); err != nil {
					t.Errorf("second close: %v", err)
				}
				// The name is free again.
				e := r.engine
				again, err := e.Alloc(4096, RegionOptions{Name: r.Name(), Grant: memory.PeerWrite})
				must(t, err)
				if whose == "remote" {
					var to *RemoteRegion
					eventually(t, "the client knows the new region", func() bool {
						to, err = p.peer.Region(ctx, again.Name())
						return err == nil && to.ID() == again.ID()
					})
					ok(t, p.peer.Write(ctx, p.mine.Span(0, 4096), to.At(0)))
					equal(t, "new region", again.Bytes(), p.mine.Bytes()[:4096])
				}
			})
		}
	}
}

// Nothing moves, and the region is closed all the same.
func TestRegionClosedWhileStalled(t *testing.T) {
	checkLeaks(t)
	p, n := fakePair(t, 1<<20, fake.Options{})
	p.warm(t)
	stallAll(n.of("client", "fake"), true)
	ctx := testContext(t)
	b := p.submit(t, ctx, []Op{ReadOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := p.mine.Close(over); !errors.Is(err, context.Canceled) {
		t.Errorf("close without time: %v", err)
	}
	if _, err := p.peer.Submit(ctx, []Op{ReadOp(p.mine.All(), p.to.At(0))}, SubmitOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("submit: %v", err)
	}
	if err := p.mine.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := b.Wait(ctx); !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), `region "mine" was closed`) {
		t.Errorf("the batch: %v", err)
	}
}

// A dial that fails leaves nothing at the peer that waits for it.
func TestFailedDialIsForgotten(t *testing.T) {
	checkLeaks(t)
	p, n := fakePair(t, 4096, fake.Options{})
	there := n.of("server", "fake")
	must(t, there.Transport.Close())
	for wait := 300 * time.Millisecond; ; wait *= 4 { // until a dial has failed in that time
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		err := p.peer.Write(ctx, p.mine.All(), p.to.At(0))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || wait > within {
			t.Fatalf("got %v", err)
		}
		if strings.Contains(err.Error(), "transport is closed") {
			break
		}
	}
	eventually(t, "the peer is told", func() bool {
		there.mu.Lock()
		defer there.mu.Unlock()
		return there.left > 0
	})
}

func TestCloseInTheMiddle(t *testing.T) {
	for _, name := range []string{"fake", "tcp", "shm"} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			p := transportPair(t, name, 4<<20)
			ctx := testContext(t)
			var batches []*Batch
			for range 20 {
				b := p.submit(t, ctx, []Op{ReadOp(p.mine.All(), p.to.At(0))}, SubmitOptions{Transport: pathsel.Transport(name)})
				batches = append(batches, b)
			}
			ok(t, p.client.Close())
			for _, b := range batches {
				<-b.Done()
				if err := b.Err(); err != nil && !errors.Is(err, ErrClosed) {
					t.Errorf("batch of a closed engine: %v", err)
				}
			}
			if _, err := p.peer.Submit(ctx, nil, SubmitOptions{}); !errors.Is(err, ErrClosed) {
				t.Errorf("submit: %v", err)
			}
			if _, err := p.client.Open(ctx, "127.0.0.1:1"); !errors.Is(err, ErrClosed) {
				t.Errorf("open: %v", err)
			}
			if _, err := p.client.Alloc(1, RegionOptions{}); !errors.Is(err, ErrClosed) {
				t.Errorf("alloc: %v", err)
			}
			if _, open := <-p.client.Notifications(); open {
				t.Error("notifications are not closed")
			}
		})
	}
}

func TestNotifications(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	list := []TransportFactory{n.transport(fake.Options{Name: "fake"})}
	p := newPair(t, 1<<20, Options{Transports: list}, Options{Transports: list, Limits: Limits{Notifications: 2}})
	ctx := testContext(t)
	p.randomize(9)
	// The data is there when the notification is.
	for i := range 20 {
		at := int64(i) * 1000
		b := p.submit(t, ctx, []Op{WriteOp(p.mine.Span(at, 1000), p.to.At(at))}, SubmitOptions{Notify: []byte(fmt.Sprint(i))})
		got := <-p.server.Notifications()
		if string(got.Payload) != fmt.Sprint(i) || got.From.Claimed != "client" {
			t.Errorf("notification %d is %+v", i, got)
		}
		equal(t, "data of the notification", p.theirs.Bytes()[at:at+1000], p.mine.Bytes()[at:at+1000])
		ok(t, b.Wait(ctx))
	}
	// A peer that does not take them slows its peers down, up to their deadline.
	for range 2 {
		must(t, p.peer.Notify(ctx, nil))
	}
	for wait := 300 * time.Millisecond; ; wait *= 4 { // until the data has arrived in that time
		b, _ := p.submitBefore(t, wait, []Op{WriteOp(p.mine.Span(0, 10), p.to.At(50))}, SubmitOptions{Notify: []byte("full")})
		<-b.Done()
		err := b.Err()
		if errors.Is(err, ErrLimit) && strings.Contains(err.Error(), "its program has not read the 2 notifications before it") {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || wait > within {
			t.Fatalf("a full queue: %v", err)
		}
	}
	// One that takes none says so, and keeps nothing.
	none := newPair(t, 4096, Options{Name: "another client", Transports: list}, Options{Name: "another server", Transports: list, Limits: Limits{Notifications: -1}})
	if err := none.peer.Notify(ctx, []byte("stays")); err == nil || !strings.Contains(err.Error(), "takes no notifications") {
		t.Errorf("to an engine that takes none: %v", err)
	}
	if n := len(none.server.Notifications()); n != 0 {
		t.Errorf("%d notifications are kept", n)
	}
	equal(t, "data", p.theirs.Bytes()[50:60], p.mine.Bytes()[:10])
	waiting := p.submit(t, ctx, nil, SubmitOptions{Notify: []byte("waits")})
	for i, want := range []string{"", "", "waits"} {
		if got := <-p.server.Notifications(); string(got.Payload) != want {
			t.Errorf("notification %d is %q, want %q", i, got.Payload, want)
		}
	}
	ok(t, waiting.Wait(ctx))
	// A batch that fails does not notify.
	stallAll(n.of("client", "fake"), true)
	b := p.submit(t, ctx, []Op{WriteOp(p.mine.Span(0, 10), p.to.At(0))}, SubmitOptions{Notify: []byte("no")})
	b.Cancel()
	if err := b.Wait(ctx); err == nil {
		t.Error("a cancelled batch has no error")
	}
	if _, err := p.peer.Submit(ctx, nil, SubmitOptions{Notify: make([]byte, maxNotify+1)}); !errors.Is(err, ErrLimit) {
		t.Errorf("a large notification: %v", err)
	}
	select {
	case got := <-p.server.Notifications():
		t.Errorf("notification %q of a batch that failed", got.Payload)
	default:
	}
}

func TestFallbackAndSuspend(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	list := []TransportFactory{n.transport(fake.Options{Name: "best"}), n.transport(fake.Options{Name: "other"})}
	var log bytes.Buffer
	p := newPair(t, 1<<20, Options{Transports: list, Logger: textLogger(&log)}, Options{Transports: list})
	ctx := testContext(t)
	p.randomize(1)
	used := func() string {
		t.Helper()
		b := p.run(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
		var out []string
		for _, u := range b.Explain().Routes[0].Used {
			out = append(out, string(u.Transport))
		}
		return strings.Join(out, " ")
	}
	if got := used(); got != "best" {
		t.Fatalf("used %s", got)
	}
	must(t, p.client.Suspend("best"))
	if got := used(); got != "other" {
		t.Errorf("with the best one suspended %s is used", got)
	}
	if s := p.client.Stats(); s.Fallback != 1 || s.Lanes[0].Health != "suspended" {
		t.Errorf("%d fallbacks, lanes %+v", s.Fallback, s.Lanes)
	}
	used()
	if got := strings.Count(log.String(), "code=fallback "); got != 1 {
		t.Errorf("the fallback was logged %d times:\n%s", got, log.String())
	}
	must(t, p.client.Resume("best"))
	eventually(t, "the best one is used again", func() bool { return used() == "best" })
	if err := p.client.Suspend("worst"); !errors.Is(err, ErrNoLane) || !strings.Contains(err.Error(), `"best"`) {
		t.Errorf("suspend of an unknown lane: %v", err)
	}
}

func TestNoLane(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	a, b := []TransportFactory{n.transport(fake.Options{Name: "a"})}, []TransportFactory{n.transport(fake.Options{Name: "b"})}
	p := newPair(t, 4096, Options{Transports: a}, Options{Transports: b})
	_, err := p.peer.Submit(testContext(t), []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
	if !errors.Is(err, ErrNoLane) || !strings.Contains(err.Error(), "a: the peer does not offer it") {
		t.Errorf("got %v", err)
	}
	if pins := p.mine.r.Pins(); pins != 0 {
		t.Errorf("%d pins are left", pins)
	}
}

// An engine closes although a peer waits for room for its notification, and has
// explained lanes that are gone by then.
func TestCloseWhileNotificationsWait(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	list := []TransportFactory{n.transport(fake.Options{Name: "fake"})}
	p := newPair(t, 4096, Options{Transports: list}, Options{Transports: list, Limits: Limits{Notifications: 1}})
	ctx := testContext(t)
	must(t, p.peer.Notify(ctx, []byte("1")))
	b := p.submit(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{Notify: []byte("2")})
	eventually(t, "the bytes are there", func() bool { return b.Progress().Bytes == 4096 })
	ok(t, p.server.Close())
	if err := b.Wait(ctx); err == nil {
		t.Error("a notification that was not taken has no error")
	}
	ok(t, p.peer.Close())
	if x := b.Explain(); x.State != "failed" || len(x.Routes[0].Used) != 1 || x.Routes[0].Used[0].Lane != "fake" {
		t.Errorf("explanation:\n%s", x.Text())
	}
}

// flaky is a registry that loses a record once.
type flaky struct {
	registry.Registry
	lost      chan struct{}
	published atomic.Int64
}

type flakyLease struct {
	registry.Lease
	lost chan struct{}
}

func (l flakyLease) Lost() <-chan struct{} { return l.lost }

func (f *flaky) Publish(ctx context.Context, r registry.Record) (registry.Lease, error) {
	lease, err := f.Registry.Publish(ctx, r)
	if f.published.Add(1) == 1 {
		return flakyLease{lease, f.lost}, err
	}
	return lease, err
}

func TestRegistry(t *testing.T) {
	checkLeaks(t)
	names := &flaky{Registry: registrytest.NewMemory(0, nil).Client(), lost: make(chan struct{})}
	newEngine(t, Options{Name: "node2", Registry: names})
	close(names.lost)
	eventually(t, "the record is published again", func() bool { return names.published.Load() == 2 })
	client := newEngine(t, Options{Name: "node1", Registry: names})
	ctx := testContext(t)
	p, err := client.Open(ctx, "node2")
	must(t, err)
	if p.EngineName() != "node2" || p.Name() != "node2" {
		t.Errorf("opened %q, which is %q", p.Name(), p.EngineName())
	}
	if _, err := client.Open(ctx, "node3"); !errors.Is(err, registry.ErrNotFound) || !strings.Contains(err.Error(), `engine: peer "node3"`) {
		t.Errorf("an unknown name: %v", err)
	}
}

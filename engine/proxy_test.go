package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
)

// newProxy makes a proxy that stands between engines.
func newProxy(t testing.TB, to string) *faulty.Proxy {
	t.Helper()
	p, err := faulty.Listen("127.0.0.1:0", to, 1)
	must(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// Connections die, those of the data and the one that carries the calls: the
// batches do not notice.
func TestConnectionsAreCut(t *testing.T) {
	checkLeaks(t)
	const size = 8 << 20
	tcp := []TransportFactory{TCP()}
	server := newEngine(t, Options{Name: "server", Transports: tcp})
	way := newProxy(t, server.Addrs()[0].String())
	p := throughProxy(t, way, server, size)
	p.randomize(5)
	ctx := testContext(t)
	cuts := 3
	if testing.Short() {
		cuts = 2
	}
	for i := range cuts {
		clear(p.theirs.Bytes())
		b := p.submit(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{Notify: []byte{byte(i)}})
		eventually(t, "some of it is there", func() bool { return b.Progress().Bytes > 0 })
		way.Cut()
		if err := b.Wait(ctx); err != nil {
			t.Fatalf("cut %d: %v", i, err)
		}
		equal(t, "remote", p.theirs.Bytes(), p.mine.Bytes())
		if got := <-server.Notifications(); got.Payload[0] != byte(i) {
			t.Errorf("notification %d is %d", i, got.Payload[0])
		}
		clear(p.mine.Bytes()[:size/2])
		must(t, p.peer.Read(ctx, p.mine.Span(0, size/2), p.to.At(0)))
		equal(t, "local", p.mine.Bytes(), p.theirs.Bytes())
	}
	if extra := len(server.Notifications()); extra != 0 {
		t.Errorf("%d notifications came twice", extra)
	}
}

func throughProxy(t testing.TB, way *faulty.Proxy, server *Engine, size int64) *pair {
	t.Helper()
	return clientThrough(t, way, server, size, Options{Name: "client", Transports: []TransportFactory{TCP()}, GiveUp: 20 * time.Second})
}

func clientThrough(t testing.TB, way *faulty.Proxy, server *Engine, size int64, o Options) *pair {
	t.Helper()
	p := &pair{server: server, client: newEngine(t, o), at: way.Address()}
	p.join(t, size)
	return p
}

// A peer that comes back with another epoch is another one: what runs fails, and
// so does what follows, until it is opened again.
func TestRestartDuringTransfer(t *testing.T) {
	checkLeaks(t)
	tcp := []TransportFactory{TCP()}
	first := newEngine(t, Options{Name: "server", Transports: tcp})
	second := newEngine(t, Options{Name: "server", Transports: tcp})
	way := newProxy(t, first.Addrs()[0].String())
	p := throughProxy(t, way, first, 32<<20)
	ctx := testContext(t)
	var batches []*Batch
	for range 8 {
		b := p.submit(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
		batches = append(batches, b)
	}
	way.SetTarget(second.Addrs()[0].String())
	way.Cut()
	failed := 0
	for _, b := range batches {
		<-b.Done()
		if err := b.Err(); err != nil {
			failed++
			if !errors.Is(err, ErrPeerRestarted) || errors.Is(err, ErrUnsafeBuffer) {
				t.Errorf("batch to a peer that was restarted: %v", err)
			}
		}
	}
	if failed == 0 {
		t.Error("nothing failed")
	}
	<-p.peer.Done()
	if err := p.peer.Write(ctx, p.mine.All(), p.to.At(0)); !errors.Is(err, ErrPeerRestarted) {
		t.Errorf("write: %v", err)
	}
	again, err := p.client.Open(ctx, way.Address())
	must(t, err)
	if again.Epoch() != second.Epoch() {
		t.Error("not the second one")
	}
	must(t, errOf(p.client.Open(ctx, first.Addrs()[0].String())))
	eventually(t, "the first engine, which still runs, has left", func() bool { return !p.client.anyQuarantine.Load() })
}

// What the first data connection has sent is swallowed on the way, while calls and new connections
// work: the lane is asked over a second one, and the batch ends long before its deadline.
func TestOnlyLaneIsSwallowed(t *testing.T) {
	checkLeaks(t)
	const size, reached = 8 << 20, 1 << 20
	server := newEngine(t, Options{Name: "server", Transports: []TransportFactory{TCP()}})
	way := newProxy(t, server.Addrs()[0].String())
	p := throughProxy(t, way, server, size)
	p.randomize(7)
	way.Update(func(up, _ *faulty.Line) {
		up.Change = func(at int64, b []byte) []byte { return b[:min(max(reached-at, 0), int64(len(b)))] }
	})
	ctx := testContext(t)
	b := p.submit(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
	eventually(t, "some of it is there", func() bool { return b.Progress().Bytes > 0 })
	way.Update(func(up, _ *faulty.Line) { up.Change = nil })
	must(t, b.Wait(ctx))
	equal(t, "remote", p.theirs.Bytes(), p.mine.Bytes())
	lane := p.client.Stats().Lanes[0]
	if len(p.client.Stats().Lanes) != 1 || lane.Failures == 0 || lane.Retries == 0 {
		t.Errorf("lanes: %+v", p.client.Stats().Lanes)
	}
}

package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
	"github.com/topoctl/topoctl/engine/memory"
)

func plainTCP() (a, b engine.TransportFactory) { return engine.TCP(), engine.TCP() }

// A peer that accepts and never answers holds nobody longer than asked.
func TestDeafPeer(t *testing.T) {
	a, b := plainTCP()
	w := newWorld(t, a, b, engine.CheckAuto)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				io.Copy(io.Discard, c)
			})
		}
	})
	for range length(2, 5, 50) {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		start := time.Now()
		_, err := w.a.Open(ctx, l.Addr().String())
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("open of a peer that does not answer: %v", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	}
}

// A peer that stops answering in the middle: the batch ends by its deadline. Where
// the control connection still works its memory is safe then, else it is
// quarantined until the peer answers again.
func TestPeerStandsStill(t *testing.T) {
	// Each in a test of its own: lanes of the first world that are dialled again are
	// no leak of the second.
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all=%v", all), func(t *testing.T) { peerStandsStill(t, all) })
	}
}

func peerStandsStill(t *testing.T, all bool) {
	d, control := &detour{}, &detour{}
	a, b := onTCP(d, func(t transport.Transport) transport.Transport { return t })
	w := newWorld(t, a, b, engine.CheckAuto)
	d.start(t, w.b.Addrs()[0].String(), 4)
	control.start(t, w.b.Addrs()[0].String(), 1)
	w.open(control.proxies[0].Address())
	local, there, remote := w.regions(stripeBytes)
	s := newStripe(w.peer, 0, local, there.Bytes(), remote)
	s.noise(s.far, s.wantF)
	if err := s.round(); err != nil {
		t.Fatal(err)
	}
	set := func(on bool) {
		proxies := d.proxies
		if all {
			proxies = append(proxies, control.proxies...)
		}
		for _, p := range proxies {
			p.Update(func(up, down *faulty.Line) { up.Hold, down.Stall = on, on })
		}
	}
	set(true)
	s.deadline = 700 * time.Millisecond
	start := time.Now()
	err := s.batch(false)
	took := time.Since(start)
	if !errors.Is(err, context.DeadlineExceeded) || took > s.deadline+5*time.Second {
		t.Errorf("all: %v: after %v: %v", all, took, err)
	}
	if unsafe := errors.Is(err, engine.ErrUnsafeBuffer); unsafe != all {
		t.Errorf("all: %v: the peer's memory is said to be unsafe: %v: %v", all, unsafe, err)
	}
	if !all {
		s.noise(s.far, s.wantF) // it is safe
	}
	set(false)
	s.deadline = time.Minute
	for end := time.Now().Add(time.Minute); all; time.Sleep(10 * time.Millisecond) {
		// A batch that is let in says that it is safe now.
		if err = s.batch(false); !errors.Is(err, engine.ErrQuarantined) {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if !all {
		time.Sleep(20 * time.Millisecond)
		if at := differ(s.far, s.wantF); at >= 0 {
			t.Errorf("a late WRITE landed at %d after the batch had ended", at)
		}
	}
	s.noise(s.far, s.wantF)
	if err := s.round(); err != nil {
		t.Errorf("all: %v: afterwards: %v", all, err)
	}
}

// Peers that are opened and closed leave nothing behind.
func TestManyPeers(t *testing.T) {
	a, b := plainTCP()
	w := newWorld(t, a, b, engine.CheckAuto)
	there, err := w.b.Alloc(1<<20, engine.RegionOptions{Name: "remote", Grant: memory.PeerWrite})
	if err != nil {
		t.Fatal(err)
	}
	local, err := w.a.Alloc(1<<20, engine.RegionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	once := func(i int) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		p, err := w.a.Open(ctx, w.b.Addrs()[0].String())
		if err != nil {
			return err
		}
		defer p.Close()
		r, err := p.Region(ctx, "remote")
		if err != nil {
			return err
		}
		at := int64(i%1000) * 1000
		local.Bytes()[at]++
		if err := p.Write(ctx, local.Span(at, 100), r.At(at)); err != nil {
			return err
		}
		if there.Bytes()[at] != local.Bytes()[at] {
			return errors.New("a byte is wrong")
		}
		return nil
	}
	peers := length(30, 300, 10_000)
	var goroutines, descriptors int
	var heap uint64
	for i := range peers {
		if err := once(i); err != nil {
			t.Fatalf("peer %d: %v", i, err)
		}
		if i == peers/4 {
			goroutines, descriptors, heap = settled()
		}
	}
	g, d, h := settled()
	if g > goroutines+8 || d > descriptors+8 || h > heap+4<<20 {
		t.Errorf("after %d peers: %d goroutines, %d descriptors, %d bytes of heap; after a quarter of them %d, %d, %d",
			peers, g, d, h, goroutines, descriptors, heap)
	}
	if s := w.b.Stats(); s.ServedConns > 0 {
		t.Logf("the peer still serves %d connections", s.ServedConns)
	}
}

// settled is what is held when what ends by itself has ended.
func settled() (goroutines, descriptors int, heap uint64) {
	time.Sleep(100 * time.Millisecond)
	return held()
}

// Many batches at a time cost memory, but no goroutines.
func TestManyBatches(t *testing.T) {
	a, b := onFake(fake.Options{Lanes: 4, BytesPerSec: 100 << 20}, func(_ string, t transport.Transport) transport.Transport { return t })
	w := newWorld(t, a, b, engine.CheckAuto)
	w.open("")
	const size = 64 << 10
	n := length(200, 1000, 1000)
	local, there, remote := w.regions(int64(n) * size)
	for i := range local.Bytes() {
		local.Bytes()[i] = byte(i * 7 >> 3)
	}
	for range length(1, 2, 20) {
		clear(there.Bytes())
		goroutines, _, heap := held()
		batches := make([]*engine.Batch, n)
		for i := range batches {
			var ops []engine.Op
			for at := int64(i) * size; at < int64(i+1)*size; at += 4 << 10 {
				ops = append(ops, engine.WriteOp(local.Span(at, 4<<10), remote.At(at)))
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var err error
			if batches[i], err = w.peer.Submit(ctx, ops, engine.SubmitOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if g := runtime.NumGoroutine(); g > goroutines+50 {
			t.Errorf("%d batches at a time: %d goroutines, %d before", n, g, goroutines)
		}
		if _, _, h := held(); h > heap+uint64(n)*32<<10 {
			t.Errorf("%d batches at a time: %d bytes of heap each", n, (h-heap)/uint64(n))
		}
		for _, b := range batches {
			if err := b.Wait(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if at := differ(local.Bytes(), there.Bytes()); at >= 0 {
			t.Fatalf("wrong byte at %d", at)
		}
	}
}

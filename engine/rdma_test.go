//go:build cgo && linux && (amd64 || arm64)

package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/rdma"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// overRDMA is the real transport on a fake provider of verbs.
func overRDMA(lib *verbs.Lib) TransportFactory {
	return &transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		return rdma.New(rdma.Options{}, lib, env.Changed)
	}}
}

// Engines move memory by RDMA over two ports each; the loss of all of a side's ports
// costs no batch, and they are used again.
func TestRDMA(t *testing.T) {
	checkLeaks(t)
	f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{
		verbsfake.RoCE("a0", 1, "10.0.0.1"), verbsfake.RoCE("a1", 2, "10.0.1.1"),
		verbsfake.RoCE("b0", 3, "10.0.0.2"), verbsfake.RoCE("b1", 4, "10.0.1.2"),
	}})
	t.Cleanup(f.Close)
	p := newPair(t, 8<<20, Options{Transports: []TransportFactory{overRDMA(f.Lib("a0", "a1")), TCP()}},
		Options{Transports: []TransportFactory{overRDMA(f.Lib("b0", "b1")), TCP()}})
	ctx := testContext(t)
	seed := uint64(0)
	over := func() map[string]int64 {
		t.Helper()
		seed++
		p.randomize(seed)
		b := p.submit(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
		if err := b.Wait(ctx); err != nil {
			t.Fatalf("%v\n%s", err, b.Explain().Text())
		}
		equal(t, "remote", p.theirs.Bytes(), p.mine.Bytes())
		by := map[string]int64{}
		for _, u := range b.Explain().Routes[0].Used {
			by[string(u.Transport)] += u.Bytes
		}
		return by
	}
	if by := over(); by["rdma"] != 8<<20 {
		x, _ := p.peer.Explain("", "")
		t.Fatalf("by transport %v\n%s", by, x.Text())
	}
	x, err := p.peer.Explain("", "")
	if err != nil || !strings.Contains(x.Text(), "rdma a0 > ") || !strings.Contains(x.Text(), ":b1: chosen") {
		t.Errorf("%v\n%s", err, x.Text())
	}
	for _, port := range []string{"b0", "b1"} {
		f.SetPort(port, 1, verbs.PortDown)
	}
	eventually(t, "TCP is used", func() bool { return over()["rdma"] == 0 })
	for _, port := range []string{"b0", "b1"} {
		f.SetPort(port, 1, verbs.PortActive)
	}
	eventually(t, "RDMA is used again", func() bool { return over()["tcp"] == 0 })
	if s := p.client.Stats(); s.Fallback == 0 {
		t.Error("the fallback was not counted")
	}
}

// TestDigestOverRDMA: what goes over RDMA is compared where that is asked for, and explained.
func TestDigestOverRDMA(t *testing.T) {
	checkLeaks(t)
	f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{verbsfake.RoCE("a0", 1, "10.0.0.1"), verbsfake.RoCE("b0", 2, "10.0.0.2")}})
	t.Cleanup(f.Close)
	p := newPair(t, 8<<20, Options{Check: CheckDigest, Transports: []TransportFactory{overRDMA(f.Lib("a0"))}}, Options{Transports: []TransportFactory{overRDMA(f.Lib("b0"))}})
	ctx := testContext(t)
	p.randomize(3)
	for _, read := range []bool{false, true} {
		op := WriteOp(p.mine.All(), p.to.At(0))
		if read {
			p.randomize(4)
			op = ReadOp(p.mine.All(), p.to.At(0))
		}
		b := p.run(t, ctx, []Op{op}, SubmitOptions{})
		equal(t, "bytes", p.theirs.Bytes(), p.mine.Bytes())
		if len(b.uncompared()) != 1 {
			t.Error("it is not compared")
		}
	}
	stale := p.mine.Bytes()[1<<20]
	p.mine.Bytes()[1<<20] = ^stale
	b, err := p.peer.prepare(ctx, []Op{ReadOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
	must(t, err)
	defer b.unpin()
	if err := b.compare(ctx, b.parts); !errors.Is(err, ErrDigest) || !strings.Contains(err.Error(), `op 0: region "kv" of the peer, 8388608 bytes at 0`) {
		t.Errorf("one byte differs: %v", err)
	}
}

// TestPermitOverRDMA: a peer that may do less than a region grants has no key of it: devices check
// keys, and not peers. It reads over TCP, and cannot write.
func TestPermitOverRDMA(t *testing.T) {
	checkLeaks(t)
	f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{verbsfake.RoCE("a0", 1, "10.0.0.1"), verbsfake.RoCE("b0", 2, "10.0.0.2")}})
	t.Cleanup(f.Close)
	server := Options{Transports: []TransportFactory{overRDMA(f.Lib("b0")), TCP()}, Security: Security{Permit: permittedBy(map[string]Permissions{
		"client": {Regions: []RegionPermission{{"kv", memory.PeerRead}, {"all", readWrite}}},
	})}}
	p := newPair(t, 1<<16, Options{Transports: []TransportFactory{overRDMA(f.Lib("a0")), TCP()}}, server)
	ctx := testContext(t)
	must(t, errOf(p.server.Alloc(1<<16, RegionOptions{Name: "all", Grant: readWrite})))
	all, err := p.peer.Region(ctx, "all")
	must(t, err)
	for _, tt := range []struct {
		from *RemoteRegion
		over string
	}{{p.to, "tcp"}, {all, "rdma"}} {
		b := p.run(t, ctx, []Op{ReadOp(p.mine.All(), tt.from.At(0))}, SubmitOptions{})
		if used := b.Explain().Routes[0].Used; len(used) != 1 || string(used[0].Transport) != tt.over {
			t.Errorf("%s is read over %+v, want %s", tt.from.Name(), used, tt.over)
		}
	}
	if err := p.peer.Write(ctx, p.mine.All(), p.to.At(0)); !errors.Is(err, ErrDenied) {
		t.Errorf("a write to what may be read: %v", err)
	}
	if err := p.peer.Write(ctx, p.mine.All(), lie(p.peer, p.theirs, nil).At(0)); !errors.Is(err, ErrDenied) && (err == nil || !strings.Contains(err.Error(), "grant")) {
		t.Errorf("a write of a peer that claims to be allowed: %v", err)
	}
}

// Who waits for a batch sleeps in the transport: it is woken by what completes, by its
// context, and by what ends the batch elsewhere.
func TestWaitingOverRDMA(t *testing.T) {
	checkLeaks(t)
	f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{verbsfake.RoCE("a0", 1, "10.0.0.1"), verbsfake.RoCE("b0", 2, "10.0.0.2")}})
	t.Cleanup(f.Close)
	p := newPair(t, 1<<20, Options{Transports: []TransportFactory{overRDMA(f.Lib("a0"))}}, Options{Transports: []TransportFactory{overRDMA(f.Lib("b0"))}})
	ctx := testContext(t)
	submit := func(ctx context.Context) *Batch {
		t.Helper()
		b := p.submit(t, ctx, []Op{WriteOp(p.mine.Span(0, 8), p.to.At(0))}, SubmitOptions{})
		return b
	}
	if err := submit(ctx).Wait(ctx); err != nil { // the lane is up
		t.Fatal(err)
	}
	for range 20 {
		f.Stall("a0", true)
		b := submit(ctx)
		short, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
		if err := b.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a device that stands still: %v", err)
		}
		cancel()
		both := make(chan error, 2)
		for range 2 {
			go func() { both <- b.Wait(context.Background()) }()
		}
		time.Sleep(time.Millisecond)
		f.Stall("a0", false)
		for range 2 {
			ok(t, <-both)
		}
		ok(t, p.peer.Write(ctx, p.mine.Span(8, 8), p.to.At(8)))
	}
	// The peer is gone, and nothing completes: the batch ends at its deadline.
	f.Silence("a0", true)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := p.peer.Write(short, p.mine.Span(0, 8), p.to.At(0)); err == nil {
		t.Error("a WRITE over a silent device has succeeded")
	}
	f.Silence("a0", false)
}

// What stands in the way of a batch that is for RDMA alone is said once, and nothing else.
func TestWhyThereIsNoRDMA(t *testing.T) {
	f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{verbsfake.RoCE("a0", 1, "10.0.0.1"), verbsfake.RoCE("b0", 2, "10.0.0.2")}})
	t.Cleanup(f.Close)
	wrong := &transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		return rdma.New(rdma.Options{GIDIndex: new(77)}, f.Lib("a0"), env.Changed)
	}}
	for name, c := range map[string]struct {
		here, there []TransportFactory
		want        string
	}{
		"a wrong GID index":       {[]TransportFactory{wrong, TCP()}, []TransportFactory{overRDMA(f.Lib("b0")), TCP()}, "GID index 77, set in the options, is not in use"},
		"a peer that has no RDMA": {[]TransportFactory{overRDMA(f.Lib("a0")), TCP()}, []TransportFactory{TCP()}, "rdma: the peer does not offer it"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, 4096, Options{Transports: c.here}, Options{Transports: c.there})
			_, err := p.peer.Submit(testContext(t), []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{Transport: "rdma"})
			if !errors.Is(err, ErrNoLane) || strings.Count(err.Error(), c.want) != 1 || strings.Contains(err.Error(), "tcp") {
				t.Errorf("%v: want %q, once, and nothing of TCP", err, c.want)
			}
		})
	}
}

//go:build cgo && linux && (amd64 || arm64)

package engine

import (
	"bytes"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/gputest"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/rdma"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/internal/cuda/cudafake"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// Memory of a GPU whose driver exports none goes over RDMA through staging buffers where
// it is ours; a peer's goes over another transport, and the explanation says so.
func TestRDMAWithoutExport(t *testing.T) {
	driver := gputest.Open(t, cudafake.Options{NoDMABuf: true}, cuda.Options{})
	f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{verbsfake.RoCE("a0", 1, "10.0.0.1"), verbsfake.RoCE("b0", 2, "10.0.0.2")}})
	t.Cleanup(f.Close)
	const size = 5<<20 + 17
	p := newPair(t, size, Options{Transports: []TransportFactory{overRDMA(f.Lib("a0")), TCP()}},
		Options{Transports: []TransportFactory{overRDMA(f.Lib("b0")), TCP()}})
	ctx := testContext(t)
	onGPU := func(e *Engine, name string) *Region {
		b := (*memory.Block)(gputest.Alloc(t, driver, "cuda:0", size))
		r, err := e.Register(b, RegionOptions{Name: name, Grant: memory.PeerRead | memory.PeerWrite})
		must(t, err)
		return r
	}
	mine, theirs := onGPU(p.client, ""), onGPU(p.server, "gpu")
	want := make([]byte, size)
	for i := range want {
		want[i] = byte(i ^ i>>11)
	}
	must(t, errOf(mine.WriteAt(want, 0)))
	move := func(over string, op Op) string {
		t.Helper()
		b := p.submit(t, ctx, []Op{op}, SubmitOptions{})
		if err := b.Wait(ctx); err != nil {
			t.Fatalf("%v\n%s", err, b.Explain().Text())
		}
		for _, u := range b.Explain().Routes[0].Used {
			if u.Bytes > 0 && string(u.Transport) != over {
				t.Errorf("%d bytes went over %s, want %s\n%s", u.Bytes, u.Transport, over, b.Explain().Text())
			}
		}
		return b.Explain().Text()
	}
	before := f.Objects("a0").MRs
	move("rdma", WriteOp(mine.All(), p.to.At(0)))
	if n := f.Objects("a0").MRs; n != before {
		t.Errorf("%d registrations when the region was, and %d after its first request: that has waited for them", before, n)
	}
	equal(t, "what was written from the GPU", p.theirs.Bytes(), want)
	must(t, errOf(mine.WriteAt(make([]byte, size), 0)))
	move("rdma", ReadOp(mine.All(), p.to.At(0)))
	got := make([]byte, size)
	if _, err := mine.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("what was read to the GPU is something else (%v)", err)
	}

	gpu, err := p.peer.Region(ctx, "gpu")
	must(t, err)
	if text := move("tcp", WriteOp(mine.All(), gpu.At(0))); !strings.Contains(text, "rdma: it does not reach this region of the peer") {
		t.Errorf("it is not explained:\n%s", text)
	}
	if _, err := theirs.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("what was written to the peer's GPU is something else (%v)", err)
	}
}

// What a user passes in is staged, once, and found through that.
func TestCarriersAreStaged(t *testing.T) {
	f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{verbsfake.RoCE("a0", 1, "10.0.0.1")}})
	t.Cleanup(f.Close)
	e := newEngine(t, Options{Transports: []TransportFactory{SHM(), overRDMA(f.Lib("a0")), TCP()}})
	for _, c := range e.carriers {
		u, ok := c.t.(interface{ Unwrap() transport.Transport })
		if !ok {
			t.Fatalf("%s is not wrapped", c.name)
		}
		inner := u.Unwrap()
		if _, twice := inner.(interface{ Unwrap() transport.Transport }); twice {
			t.Errorf("%s is wrapped twice", c.name)
		}
		if r, ok := inner.(*rdma.Transport); ok && (c.ports != transport.Ported(r) || c.some != transport.Selective(r)) {
			t.Error("RDMA's ports or choice of regions are not found")
		}
		if (c.data != nil) != (c.name == "tcp") || (c.some != nil) != (c.name != "tcp") {
			t.Errorf("%s: data %t, selective %t", c.name, c.data != nil, c.some != nil)
		}
	}
}

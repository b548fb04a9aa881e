//go:build cgo && linux && (amd64 || arm64)

package engine

import (
	"strings"
	"testing"

	"github.com/topoctl/topoctl/engine/transport"
	"github.com/topoctl/topoctl/engine/transport/rdma"
	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// overRDMA is the real transport on a fake provider of verbs.
func overRDMA(lib *verbs.Lib) Transport {
	return func(env TransportEnv) (transport.Transport, error) {
		return rdma.New(rdma.Options{Lib: lib, Changed: env.Changed})
	}
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
	p := newPair(t, 8<<20, Options{Transports: []Transport{overRDMA(f.Lib("a0", "a1")), TCP()}},
		Options{Transports: []Transport{overRDMA(f.Lib("b0", "b1")), TCP()}})
	ctx := testContext(t)
	seed := uint64(0)
	over := func() map[string]int64 {
		t.Helper()
		seed++
		p.randomize(seed)
		b, err := p.peer.Submit(ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Wait(ctx); err != nil {
			t.Fatalf("%v\n%s", err, b.Explain().Text())
		}
		equal(t, "remote", p.theirs.Bytes(), p.mine.Bytes())
		by := map[string]int64{}
		for _, u := range b.Explain().Routes[0].Used {
			by[u.Transport] += u.Bytes
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

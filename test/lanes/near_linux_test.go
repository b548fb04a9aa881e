package lanes

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
)

// nearEngine is the engine of this process, which drives.
type nearEngine struct {
	t      *testing.T
	e      *engine.Engine
	peer   *engine.Peer
	local  *engine.Region
	remote *engine.RemoteRegion
}

// open starts an engine that knows the first lanes of the lab, and opens the far
// one over lane 0.
func (l *lab) open(lanes int, far answer) *nearEngine {
	l.t.Helper()
	t, err := topology("near", lanes, nearAddr)
	l.must("topology", err)
	e, err := engine.New(context.Background(), engine.Options{
		Name: "near", Security: engine.Security{Credentials: trust.Secret(token)}, Ports: engine.Ports{Topology: t}, Transports: []engine.TransportFactory{engine.TCP()},
	})
	l.must("engine", err)
	l.t.Cleanup(func() { e.Close() })
	n := &nearEngine{t: l.t, e: e}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n.peer, err = e.Open(ctx, far.Address)
	l.must("open", err)
	n.local, err = e.Alloc(regionBytes, engine.RegionOptions{Name: "local", Location: "cpu:0"})
	l.must("alloc", err)
	n.remote, err = n.peer.Region(ctx, "region")
	l.must("region", err)
	return n
}

// ops cuts a range into ops of 1 MiB.
func (n *nearEngine) ops(read bool, offset, size int64) (out []engine.Op) {
	for at := offset; at < offset+size; at += 1 << 20 {
		piece := min(1<<20, offset+size-at)
		if read {
			out = append(out, engine.ReadOp(n.local.Span(at, piece), n.remote.At(at)))
		} else {
			out = append(out, engine.WriteOp(n.local.Span(at, piece), n.remote.At(at)))
		}
	}
	return out
}

// move runs one batch over a range.
func (n *nearEngine) move(read bool, offset, size int64, deadline time.Duration) (*engine.Batch, error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	b, err := n.peer.Submit(ctx, n.ops(read, offset, size), engine.SubmitOptions{})
	if err != nil {
		return nil, err
	}
	return b, b.Wait(context.Background())
}

// must runs a batch that has to work, and says how long it took.
func (n *nearEngine) must(read bool, offset, size int64) time.Duration {
	n.t.Helper()
	start := time.Now()
	b, err := n.move(read, offset, size, time.Minute)
	if err != nil {
		if b != nil {
			n.t.Logf("%s", b.Explain().Text())
		}
		n.t.Fatalf("a batch of %d bytes: %v", size, err)
	}
	return time.Since(start)
}

// rates moves batches of that size with each engine in turn, and gives each
// one's median, in bytes per second. The first batch does not count: connections
// are made, and rates are learnt.
func rates(rounds int, sizes []int64, engines []*nearEngine) []float64 {
	all := make([][]float64, len(engines))
	for round := range rounds + 1 {
		for i, n := range engines {
			n.t.Helper()
			took := n.must(false, 0, sizes[i])
			if round > 0 {
				all[i] = append(all[i], float64(sizes[i])/took.Seconds())
			}
		}
	}
	out := make([]float64, len(engines))
	for i := range all {
		slices.Sort(all[i])
		out[i] = all[i][len(all[i])/2]
	}
	return out
}

// lane is what the engine knows of a lane of the lab.
func (n *nearEngine) lane(i int) (out engine.LaneStats) {
	n.t.Helper()
	for _, s := range n.e.Stats().Lanes {
		if s.LocalAddress == nearAddr(i).String() && s.Health != "gone" {
			return s
		}
	}
	n.t.Fatalf("the engine has no lane at %s: %+v", nearAddr(i), n.e.Stats().Lanes)
	return out
}

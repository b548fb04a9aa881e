//go:build vmlab && linux && cgo

package rdma

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/test/vmlab"
	"github.com/topoctl/topoctl/test/vmlab/guest"
)

// Spec says what an engine is made of.
type Spec struct {
	Transports []string // "rdma", "tcp": in this order
	Rails      []int    // that RDMA uses; none: all
	Bytes      int64    // of the region
	Location   string   // of the region
	Blind      bool     // it does not know the host's topology
	GiveUp     time.Duration
	Depth      int // of RDMA, 0 its default
}

// token is any: all engines of the lab are one trust domain.
var token = []byte("sixteen bytes of lab")

// engine makes the engine with its region "data".
func (s Spec) engine(ctx context.Context, l *guest.Lab, host int) (*engine.Engine, *engine.Region, error) {
	o := engine.Options{
		Name: fmt.Sprintf("machine%d", host), Listen: []string{":0"}, Security: engine.Security{Credentials: trust.Secret(token)}, GiveUp: s.GiveUp,
		DefaultTimeout: within,
	}
	if *verbose {
		o.Logger = slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for _, name := range s.Transports {
		switch name {
		case "tcp":
			o.Transports = append(o.Transports, engine.TCP())
		case "rdma":
			o.Transports = append(o.Transports, s.rdma())
		}
	}
	if !s.Blind {
		t, err := discover.Discover(ctx, discover.Options{Now: time.Now()})
		if err != nil {
			return nil, nil, err
		}
		o.Ports.Topology = t
	}
	e, err := engine.New(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	r, err := e.Alloc(s.Bytes, engine.RegionOptions{
		Name: "data", Grant: memory.PeerRead | memory.PeerWrite, Location: pathsel.Location(s.Location),
	})
	if err != nil {
		e.Close()
		return nil, nil, err
	}
	return e, r, nil
}

// duo is an engine on each machine, ours has opened the far one's. Both regions have
// shadows: what their bytes must be.
type duo struct {
	testing.TB
	spec        Spec
	engine      *engine.Engine
	peer        *engine.Peer
	mine        *engine.Region
	theirs      *engine.RemoteRegion
	here, there []byte
	closed      bool
}

// newDuo makes it, with new bytes everywhere. The test's end closes it, verifies every
// byte and looks for what was left behind on both machines.
func newDuo(t testing.TB, s Spec) *duo { return newDuos(t, s, s) }

// newDuos has another far end than near end.
func newDuos(t testing.TB, near, there Spec) *duo {
	t.Helper()
	ctx := bounded(t)
	before, err := countHeld(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var port string
	mustAsk(t, "Start", there, &port)
	d := &duo{TB: t, spec: near}
	t.Cleanup(func() {
		d.close()
		var left string
		if err := ask("Stop", Nothing{}, &left); err != nil {
			t.Error(err)
		}
		if left != "" {
			t.Errorf("machine 2 still has %s", left)
		}
		if left := before.left(); left != "" {
			t.Errorf("machine 1 still has %s", left)
		}
	})
	if d.engine, d.mine, err = near.engine(ctx, lab, 1); err != nil {
		t.Fatal(err)
	}
	if d.peer, err = d.engine.Open(ctx, net.JoinHostPort(lab.Addr(2, vmlab.ManagementRail), port)); err != nil {
		t.Fatal(err)
	}
	if d.theirs, err = d.peer.Region(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	d.here, d.there = make([]byte, near.Bytes), make([]byte, there.Bytes)
	d.refill(dice(t))
	return d
}

// close verifies everything and closes the engine of this side.
func (d *duo) close() {
	if d.engine == nil || d.closed {
		return
	}
	d.closed = true
	if d.there != nil {
		d.verify("at the end")
	}
	began := time.Now()
	if err := d.engine.Close(); err != nil {
		d.Errorf("closing the engine: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		d.Logf("closing the engine took %v", took.Round(time.Millisecond))
	}
}

// refill gives both regions new bytes.
func (d *duo) refill(rng *rand.Rand) {
	d.Helper()
	noise(d.here, rng)
	copy(d.mine.Bytes(), d.here)
	noise(d.there, rng)
	d.fillFar(0, d.there)
}

// fillFar has the far application write to its region.
func (d *duo) fillFar(at int64, data []byte) {
	d.Helper()
	const most = 1 << 20
	copy(d.there[at:], data)
	for ; len(data) > 0; data = data[min(len(data), most):] {
		mustAsk(d, "Fill", Piece{Offset: at, Data: data[:min(len(data), most)]}, &Nothing{})
		at += int64(min(len(data), most))
	}
}

// noise fills with bytes that no two places share.
func noise(to []byte, rng *rand.Rand) {
	var key [32]byte
	for i := range key {
		key[i] = byte(rng.Uint32())
	}
	c := rand.NewChaCha8(key)
	_, _ = c.Read(to) // never fails
}

// verify compares every byte of both regions with its shadow.
func (d *duo) verify(what string) {
	d.Helper()
	compare(d, what+": region here", d.mine.Bytes(), d.here)
	d.verifyFar(what, 0, int64(len(d.there)))
}

// verifyFar compares a range of the far region.
func (d *duo) verifyFar(what string, at, n int64) {
	d.Helper()
	var sum [sha256.Size]byte
	mustAsk(d, "Sum", Piece{Offset: at, Bytes: n}, &sum)
	if sum == sha256.Sum256(d.there[at:at+n]) {
		return
	}
	const most = 1 << 20
	for ; n > 0; at, n = at+most, n-most {
		var got []byte
		mustAsk(d, "Read", Piece{Offset: at, Bytes: min(n, most)}, &got)
		if !compare(d, fmt.Sprintf("%s: region there, from %d", what, at), got, d.there[at:at+min(n, most)]) {
			return
		}
	}
	d.Errorf("%s: the far region's sum was wrong, its bytes are not: they changed meanwhile", what)
}

// compare says where bytes differ first, and how many.
func compare(t testing.TB, what string, got, want []byte) bool {
	t.Helper()
	if bytes.Equal(got, want) {
		return true
	}
	first, count := -1, 0
	for i := range got {
		if got[i] != want[i] {
			if first < 0 {
				first = i
			}
			count++
		}
	}
	t.Errorf("%s: %d bytes are wrong, the first at %d: %#02x, want %#02x", what, count, first, got[first], want[first])
	return false
}

// lanes are those to the peer, of one transport.
func (d *duo) lanes(transport string) []engine.LaneStats {
	var list []engine.LaneStats
	for _, l := range d.peer.Lanes() {
		if string(l.Transport) == transport {
			list = append(list, l)
		}
	}
	return list
}

// moved are the bytes that lanes of a transport have carried.
func (d *duo) moved(transport string) int64 {
	sum := int64(0)
	for _, l := range d.lanes(transport) {
		sum += l.Bytes
	}
	return sum
}

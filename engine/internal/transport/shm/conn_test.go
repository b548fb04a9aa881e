//go:build linux

package shm

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
	"github.com/topoctl/topoctl/internal/cpuset"
)

const both = memory.PeerRead | memory.PeerWrite

func TestRegisterKeys(t *testing.T) {
	h := newHost(t, 1)
	for _, c := range []struct {
		grant   memory.Grant
		backing memory.Backing
		key     string
	}{{both, memory.Shared, Mapped}, {memory.PeerRead, memory.Shared, Mapped}, {memory.None, memory.Shared, ""}, {both, memory.Private, ""}} {
		r := h.region(4096, c.grant, memory.Options{Backing: c.backing})
		if key, err := h.Register(r); key != c.key || err != nil {
			t.Errorf("grant %s, backing %d: key %q, %v", c.grant, c.backing, key, err)
		}
		if err := h.Deregister(r); err != nil {
			t.Error(err)
		}
	}
}

// TestRefusals: what is refused, and that it says why.
func TestRefusals(t *testing.T) {
	a, p := newHost(t, 1), newHost(t, 1)
	local := a.region(1000, memory.None, memory.Options{Backing: memory.Private})
	shared := p.region(1000, both, memory.Options{})
	private := p.region(1000, both, memory.Options{Backing: memory.Private})
	b, err := memory.Alloc(1000, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	unregistered, err := p.regions.Add(b, "unregistered", "", both)
	if err != nil {
		t.Fatal(err)
	}
	e := dialTo(t, a, p, 1)
	for name, c := range map[string]struct {
		r    *transport.Request
		want error
		says string
	}{
		"private":      {one(transport.Write, local, 0, remote(private), 0, 10), transport.ErrRefused, "is not shared memory"},
		"unregistered": {one(transport.Write, local, 0, remote(unregistered), 0, 10), memory.ErrNoRegion, ""},
	} {
		if err := e.Do(c.r); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v and %q", name, err, c.want, c.says)
		}
	}
	if err := e.Do(one(transport.Write, local, 0, remote(shared), 0, 1000), &transport.Request{Op: transport.Read}); err != nil {
		t.Error(err)
	}
}

// TestRevokeUnmaps: a region that is deregistered is unmapped at the requester
// soon, without any request.
func TestRevokeUnmaps(t *testing.T) {
	a, p := newHost(t, 1), newHost(t, 1)
	local := a.region(1<<20, memory.None, memory.Options{})
	keep, gone := p.region(1<<20, both, memory.Options{}), p.region(1<<20, both, memory.Options{})
	e := dialTo(t, a, p, 1)
	for _, r := range []*memory.Region{keep, gone} {
		if err := e.Do(one(transport.Write, local, 0, remote(r), 0, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	before := mappings(t)["memfd:topoctl"]
	if !strings.Contains(e.Conn.Describe(), "2 regions mapped") {
		t.Error(e.Conn.Describe())
	}
	if err := errors.Join(gone.Close(t.Context()), p.Deregister(gone)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); !strings.Contains(e.Conn.Describe(), "1 regions mapped"); {
		if time.Now().After(deadline) {
			t.Fatal(e.Conn.Describe())
		}
		time.Sleep(time.Millisecond)
	}
	if now := mappings(t)["memfd:topoctl"]; now != before-2 { // theirs and ours
		t.Errorf("%d mappings, %d before", now, before)
	}
	for range 2 {
		if err := e.Do(one(transport.Write, local, 0, remote(gone), 0, 10)); !errors.Is(err, memory.ErrNoRegion) {
			t.Error(err)
		}
	}
	if err := e.Do(one(transport.Read, local, 0, remote(keep), 0, 10)); err != nil {
		t.Error(err)
	}
}

// TestFaultIsAnError: a peer that takes pages away fails requests, not us.
func TestFaultIsAnError(t *testing.T) {
	a, p := newHost(t, 1), newHost(t, 1)
	local := a.region(4<<20, memory.None, memory.Options{})
	far := p.region(4<<20, both, memory.Options{})
	e := dialTo(t, a, p, 1)
	if err := e.Do(one(transport.Write, local, 0, remote(far), 0, 10)); err != nil {
		t.Fatal(err)
	}
	c := e.Conn.(*conn)
	c.mu.Lock()
	err := c.regions[far.ID()].block.Hide()
	c.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{100, 4 << 20} {
		if err := e.Do(one(transport.Read, local, 0, remote(far), 0, n)); err == nil || errors.Is(err, transport.ErrRefused) || !strings.Contains(err.Error(), "gone") {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestNoAllocations in steady state, in Post and by the workers.
func TestNoAllocations(t *testing.T) {
	a, p := newHost(t, 2), newHost(t, 1)
	local := a.region(8<<20, memory.None, memory.Options{})
	far := p.region(8<<20, both, memory.Options{})
	m := &mover{idle: make(chan struct{}, 1)}
	d := dialOf(p, 1, transporttest.NewClient(t))
	d.Events = m.events()
	var err error
	if m.conn, err = a.Dial(within(t), d); err != nil {
		t.Fatal(err)
	}
	var small, large []*transport.Request
	to := remote(far)
	for i := range int64(64) {
		small = append(small, one(transport.Write, local, i*4096, to, i*4096, 4096))
	}
	for i := range int64(8) {
		large = append(large, one(transport.Read, local, i<<20, to, i<<20, 1<<20))
	}
	for name, list := range map[string][]*transport.Request{"small": small, "large": large} {
		for range 50 {
			m.move(list)
		}
		if n := testing.AllocsPerRun(100, func() { m.move(list) }); n >= 1 {
			t.Errorf("%s: %v allocations per batch", name, n)
		}
	}
	if err := m.failed.Load(); err != nil {
		t.Error(*err)
	}
	c := m.conn.(*conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.posted != 0 || c.flying != 0 || c.inside != 0 || len(c.free) == 0 {
		t.Errorf("all is done, and %d requests of %d bytes are posted, %d calls copy, %d jobs are free", c.posted, c.flying, c.inside, len(c.free))
	}
}

// TestWorkersOfNodes copies with workers that stay on the nodes of a host that is
// made up.
func TestWorkersOfNodes(t *testing.T) {
	a, p := newHost(t, 1), newHost(t, 1)
	a.copier.close()
	a.copier = newCopier(3, []node{{"cpu:0", cpuset.Of(0)}, {"cpu:1", cpuset.Of(1, 99)}})
	far := p.region(8<<20, both, memory.Options{})
	e := dialTo(t, a, p, 1)
	for i, location := range []string{"cpu:0", "cpu:1", "", "gpu:3"} {
		b, err := memory.Alloc(8<<20, memory.Options{})
		if err != nil {
			t.Fatal(err)
		}
		fill(b.Bytes(), uint64(i))
		local, err := a.regions.Add(b, "", location, memory.None)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Do(one(transport.Write, local, 1, remote(far), 2, 8<<20-2)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes()[1:8<<20-1], far.Block().Bytes()[2:]) {
			t.Errorf("location %q: not the same bytes", location)
		}
	}
}

// A region that is closed after another one has taken its place in the table
// does not close that one on the board.
func TestBoardOfLaterRegion(t *testing.T) {
	h := newHost(t, 1)
	old := h.region(4096, memory.PeerRead, memory.Options{})
	later := old.ID() + 1<<32
	if err := h.board.set(later, true); err != nil {
		t.Fatal(err)
	}
	if err := h.board.set(old.ID(), false); err != nil {
		t.Fatal(err)
	}
	if !h.board.open(later) {
		t.Error("the later region is closed on the board")
	}
}

// Regions outlive the transport in an engine's table: closing them then is
// no matter, registering is an error.
func TestDeregisterAfterClose(t *testing.T) {
	h := newHost(t, 1)
	r := h.region(4096, memory.PeerRead, memory.Options{})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Deregister(r); err != nil {
		t.Error(err)
	}
	if _, err := h.Register(r); err == nil {
		t.Error("a region was registered after Close")
	}
}

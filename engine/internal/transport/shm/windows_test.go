//go:build cgo && linux

package shm

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/engine/internal/gputest"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/internal/cuda/cudafake"
)

// onGPU registers memory of a GPU.
func (h *host) onGPU(g *cuda.GPU, size int64, grant memory.Grant) *memory.Region {
	h.t.Helper()
	b, err := g.Alloc(size)
	if err != nil {
		h.t.Fatal(err)
	}
	p := make([]byte, size)
	fill(p, 77)
	gputest.Poke((*memory.Block)(b), p, 0)
	r, err := h.regions.Add((*memory.Block)(b), "", "", grant)
	if err != nil {
		h.t.Fatal(err)
	}
	key, err := h.Register(r)
	if want := map[bool]string{true: Windowed}[grant != memory.None]; err != nil || key != want {
		h.t.Fatalf("key %q, %v; want %q", key, err, want)
	}
	return r
}

// held are a region's bytes now.
func held(r *memory.Region) []byte {
	p := make([]byte, r.Size())
	gputest.Peek(r.Block(), p, 0)
	return p
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to be %s", what)
		}
	}
}

// A WRITE is complete when its bytes are in the device's memory, and several parts of it
// are under way; a READ brings what is there.
func TestWindowsArePipelined(t *testing.T) {
	g := gpu(t, cudafake.Options{}, 64)
	a, p := newHost(t, 2), newHost(t, 2)
	const size = 9<<20 + 5
	local, there := a.region(size, memory.None, memory.Options{}), p.onGPU(g.GPU, size, both)
	if !a.Reaches(&transport.RemoteRegion{Key: map[string]string{"shm": Windowed}}) {
		t.Error("it is not reached")
	}
	e := dialTo(t, a, p, 1)
	cudafake.Hold(true)
	w := one(transport.Write, local, 0, remote(there), 0, size)
	e.Post(w)
	eventually(t, "that all slots wait for the device", func() bool { return cudafake.Count().MostQueued == windowSlots })
	time.Sleep(20 * time.Millisecond)
	if e.HasEnded(w) {
		t.Error("complete while the copy to the device stands still")
	}
	cudafake.Hold(false)
	if err := e.Wait(w); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(held(there), local.Bytes(0, size)) {
		t.Error("the device has something else")
	}
	want := held(there)
	clear(local.Bytes(0, size))
	if err := e.Do(one(transport.Read, local, 0, remote(there), 0, size)); err != nil || !bytes.Equal(local.Bytes(0, size), want) {
		t.Errorf("what was read is something else (%v)", err)
	}
	if s := e.Conn.Describe(); !strings.Contains(s, "0 regions mapped") || !strings.Contains(s, "pinned windows") {
		t.Error(s)
	}
}

// One request may have pieces of mapped memory and of several devices, and none at all.
func TestMixedRequest(t *testing.T) {
	g := gpu(t, cudafake.Options{}, 16)
	a, p := newHost(t, 2), newHost(t, 2)
	const size = 3 << 20
	local := a.region(size, memory.None, memory.Options{})
	other, err := g.driver.GPU("cuda:1")
	if err != nil {
		t.Fatal(err)
	}
	places := []*memory.Region{p.region(size, both, memory.Options{}), p.onGPU(g.GPU, size, both), p.onGPU(other, size, both)}
	e := dialTo(t, a, p, 1)
	var spans []transport.Span
	at := int64(0)
	for i := 0; at < size; i++ {
		n := min(int64(i%5)*7001, size-at)
		spans = append(spans, transport.Span{Local: local, LocalOffset: at, Remote: remote(places[i%3]), RemoteOffset: at, Bytes: n})
		at += n
	}
	if err := e.Do(&transport.Request{Op: transport.Write, Spans: spans, Bytes: size}); err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(local.Bytes(0, size))
	for _, s := range spans {
		k := slices.IndexFunc(places, func(r *memory.Region) bool { return r.ID() == s.Remote.ID })
		if !bytes.Equal(held(places[k])[s.RemoteOffset:s.RemoteOffset+s.Bytes], want[s.LocalOffset:s.LocalOffset+s.Bytes]) {
			t.Fatalf("%d bytes at %d are something else", s.Bytes, s.LocalOffset)
		}
	}
	clear(local.Bytes(0, size))
	if err := e.Do(&transport.Request{Op: transport.Read, Spans: spans, Bytes: size},
		one(transport.Read, local, 0, remote(places[1]), 10, 0)); err != nil || !bytes.Equal(local.Bytes(0, size), want) {
		t.Errorf("what was read is something else (%v)", err)
	}
}

// Nothing lands after Leave: it waits for copies that the device holds. What was told to
// the peer without an answer may land, and says so.
func TestLeaveWaitsForTheDevice(t *testing.T) {
	g := gpu(t, cudafake.Options{}, 16)
	a, p := newHost(t, 1), newHost(t, 1)
	local, there := a.region(1<<20, memory.None, memory.Options{}), p.onGPU(g.GPU, 1<<20, both)
	e := dialTo(t, a, p, 1)
	if err := e.Do(one(transport.Read, local, 0, remote(there), 0, 100)); err != nil {
		t.Fatal(err)
	}
	cudafake.Hold(true)
	w, r := one(transport.Write, local, 0, remote(there), 0, 1<<20), one(transport.Read, local, 0, remote(there), 0, 100)
	before := cudafake.Count().Copies
	e.Post(w, r)
	eventually(t, "that both pieces wait for the device", func() bool { return cudafake.Count().MostQueued >= 2 })
	e.Conn.Close(errors.New("enough"))
	if err := e.WaitLost(); err != nil {
		t.Error(err)
	}
	if c := e.End(w); c.Err == nil || !c.MayLand {
		t.Errorf("the write ended with %+v", c)
	}
	if c := e.End(r); c.Err == nil || c.MayLand {
		t.Errorf("the read ended with %+v", c)
	}
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := p.Leave(short, origin, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("left while the device copies: %v", err)
	}
	cudafake.Hold(false)
	if err := p.Leave(within(t), origin, 1); err != nil {
		t.Error(err)
	}
	now := cudafake.Count().Copies
	if now == before {
		t.Error("nothing was under way")
	}
	time.Sleep(10 * time.Millisecond)
	if later := cudafake.Count().Copies; later != now {
		t.Errorf("%d copies after Leave", later-now)
	}
}

// A device that fails costs the requests on it, with ErrDevice; the connection goes on.
func TestLostDevice(t *testing.T) {
	g := gpu(t, cudafake.Options{}, 16)
	a, p := newHost(t, 1), newHost(t, 1)
	local, there, host := a.region(1<<20, memory.None, memory.Options{}), p.onGPU(g.GPU, 1<<20, both), p.region(1<<20, both, memory.Options{})
	e := dialTo(t, a, p, 1)
	do := func(op transport.Op, r *memory.Region) error { return e.Do(one(op, local, 0, remote(r), 0, 1<<20)) }
	if err := do(transport.Write, there); err != nil {
		t.Fatal(err)
	}
	cudafake.Lose(0, 214)
	for _, op := range []transport.Op{transport.Read, transport.Write} {
		if err := do(op, there); !errors.Is(err, memory.ErrDevice) || !errors.Is(err, transport.ErrRefused) {
			t.Errorf("op %d: %v", op, err)
		}
		if err := do(op, host); err != nil {
			t.Errorf("op %d on memory of the host: %v", op, err)
		}
	}
	cudafake.Lose(0, 0)
	if err := do(transport.Write, there); err != nil {
		t.Error(err)
	}
	// No window can be made for the next connection: its requests fail, and say so.
	other := dialTo(t, a, p, 2)
	cudafake.Fail("cuMemHostRegister_v2", 2, 0, 1)
	if err := other.Do(one(transport.Write, local, 0, remote(there), 0, 1<<20)); !errors.Is(err, memory.ErrDevice) {
		t.Error(err)
	}
	if err := other.Do(one(transport.Write, local, 0, remote(there), 0, 1<<20)); err != nil {
		t.Error(err)
	}
}

// More connections than windows: all of them get on, and all pinned memory is as little
// as the device's pool for peers.
func TestWindowsAreShared(t *testing.T) {
	g := gpu(t, cudafake.Options{}, 8)
	a, p := newHost(t, 2), newHost(t, 2)
	there := p.onGPU(g.GPU, 4<<20, both)
	var wg sync.WaitGroup
	for i := range 5 {
		e := dialTo(t, a, p, transport.ConnID(i+1))
		local := a.region(4<<20, memory.None, memory.Options{})
		wg.Go(func() {
			for range 3 {
				if err := e.Do(one(transport.Read, local, 0, remote(there), 0, 4<<20)); err != nil {
					t.Error(err)
				}
				if n := cudafake.Count().PinnedBytes; n > 3*4*memory.PieceBytes {
					t.Errorf("%d bytes are pinned", n)
				}
			}
			if !bytes.Equal(local.Bytes(0, 4<<20), held(there)) {
				t.Error("what was read is something else")
			}
		})
	}
	wg.Wait()
}

// gated is a raw client with a window.
type gated struct {
	*raw
	id     memory.ID
	number memory.ID
	memory *memory.Block
}

func throughGate(t *testing.T, h *host, id transport.ConnID, r *memory.Region) *gated {
	t.Helper()
	x := &gated{raw: enter(t, h, id), id: r.ID()}
	x.send(frame{kind: mapIt, region: r.ID()}.append(nil))
	f, fd, err := x.receive()
	if err != nil || f.kind != mapped || f.status != windowed || f.bytes != uint64(r.Size()) || f.grant != h.rights.Grant(r) || fd >= 0 {
		t.Fatalf("%+v, descriptor %d, %v", f, fd, err)
	}
	x.send(frame{kind: wantWindow, place: f.place}.append(nil))
	f, fd, err = x.receive()
	if err != nil || f.kind != giveWindow || f.status != ok || fd < 0 {
		t.Fatalf("%+v, descriptor %d, %v", f, fd, err)
	}
	defer closeFD(fd)
	if x.memory, err = memory.Map(fd, int64(f.bytes), true); err != nil {
		t.Fatal(err)
	}
	if unix.Ftruncate(fd, 0) == nil {
		t.Error("the window can be cut")
	}
	t.Cleanup(func() { _ = x.memory.Free() })
	x.number = f.region
	return x
}

func packet(f frame, spots ...spot) []byte {
	b := f.append(nil)
	for _, s := range spots {
		b = s.append(b)
	}
	return b
}

// A move is held to the rights of the peer.
func TestNarrowedMoves(t *testing.T) {
	g := gpu(t, cudafake.Options{}, 64)
	h := newHost(t, 1)
	there, hidden := h.onGPU(g.GPU, 1<<20, both), h.onGPU(g.GPU, 1<<20, both)
	h.rights = memory.NewRights(func(name string) memory.Grant {
		return map[string]memory.Grant{there.Name(): memory.PeerRead}[name]
	})
	before := slices.Concat(held(there), held(hidden))
	x := throughGate(t, h, 1, there)
	for _, c := range []struct {
		grant memory.Grant
		of    *memory.Region
		want  status
	}{{memory.PeerWrite, there, denied}, {memory.PeerWrite, hidden, noRegion}, {memory.PeerRead, hidden, noRegion}, {memory.PeerRead, there, ok}} {
		x.send(packet(frame{kind: moveIt, grant: c.grant, region: x.number, bytes: 1}, spot{c.of.ID(), 0, 10}))
		if f, _, err := x.receive(); err != nil || f.kind != moved || f.status != c.want {
			t.Errorf("%s of region %q: %+v, %v; want status %d", c.grant, c.of.Name(), f, err, c.want)
		}
	}
	if !bytes.Equal(before, slices.Concat(held(there), held(hidden))) {
		t.Error("bytes were touched")
	}
}

// TestHostileMoves: what a peer may not reach is refused before anything is touched, and
// what is against the rules ends its connection.
func TestHostileMoves(t *testing.T) {
	g := gpu(t, cudafake.Options{}, 64)
	h := newHost(t, 1)
	const size = 1 << 20
	there, readable := h.onGPU(g.GPU, size, both), h.onGPU(g.GPU, size, memory.PeerRead)
	none, onHost := h.onGPU(g.GPU, size, memory.None), h.region(size, both, memory.Options{})
	other, err := g.driver.GPU("cuda:1")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := h.onGPU(other, size, both)
	before := slices.Concat(held(there), held(readable), held(none))
	x := throughGate(t, h, 1, there)
	write := frame{kind: moveIt, grant: memory.PeerWrite, region: x.number, bytes: 1}
	for name, c := range map[string]struct {
		spots []spot
		want  status
	}{
		"not granted":       {[]spot{{readable.ID(), 0, 10}}, denied},
		"nothing granted":   {[]spot{{none.ID(), 0, 10}}, noRegion},
		"beyond":            {[]spot{{there.ID(), size - 9, 10}}, outside},
		"far beyond":        {[]spot{{there.ID(), 1<<64 - 5, 10}}, outside},
		"no region":         {[]spot{{there.ID() | 1<<32, 0, 10}}, noRegion},
		"host":              {[]spot{{onHost.ID(), 0, 10}}, noRegion},
		"another device":    {[]spot{{elsewhere.ID(), 0, 10}}, noRegion},
		"one among many":    {[]spot{{there.ID(), 0, 10}, {there.ID(), size, 1}}, outside},
		"empty behind good": {[]spot{{there.ID(), 0, 10}, {99, 0, 0}}, noRegion},
	} {
		x.send(packet(write, c.spots...))
		if f, _, err := x.receive(); err != nil || f.kind != moved || f.status != c.want || f.bytes != 1 {
			t.Errorf("%s: %+v, %v; want status %d", name, f, err, c.want)
		}
	}
	if !bytes.Equal(before, slices.Concat(held(there), held(readable), held(none))) {
		t.Error("bytes were touched")
	}
	good := spot{there.ID(), 100, 10}
	with := func(change func(*frame)) frame {
		f := write
		change(&f)
		return f
	}
	many := make([]spot, maxSpots+1)
	for i, c := range map[string][]byte{
		"place":         packet(with(func(f *frame) { f.place = 1 }), good),
		"window":        packet(with(func(f *frame) { f.region++ }), good),
		"window 0":      packet(with(func(f *frame) { f.region = 0 }), good),
		"slot":          packet(with(func(f *frame) { f.bytes = windowSlots }), good),
		"far slot":      packet(with(func(f *frame) { f.bytes = 1 << 63 }), good),
		"no op":         packet(with(func(f *frame) { f.grant = 0 }), good),
		"two ops":       packet(with(func(f *frame) { f.grant = 3 }), good),
		"status":        packet(with(func(f *frame) { f.status = 1 }), good),
		"no pieces":     packet(write),
		"no bytes":      packet(write, spot{there.ID(), 0, 0}),
		"many bytes":    packet(write, good, spot{there.ID(), 0, memory.PieceBytes}),
		"many pieces":   packet(write, many...),
		"half a piece":  packet(write, good)[:frameSize+spotSize-1],
		"another kind":  packet(frame{kind: mapIt, region: there.ID()}, good),
		"window again":  frame{kind: wantWindow}.append(nil),
		"other's gate":  frame{kind: wantWindow, place: 3}.append(nil),
		"answers to us": packet(frame{kind: moved}),
	} {
		x := throughGate(t, h, transport.ConnID(len(i)*100+int(i[0])), there)
		x.send(c)
		if f, _, err := x.receive(); err == nil {
			t.Errorf("%s: answered %+v", i, f)
		}
		_ = x.c.Close()
	}
	// A slot that is being copied cannot be named again. What the peer writes there
	// meanwhile is its own affair.
	cudafake.Hold(true)
	x = throughGate(t, h, 9000, there)
	x.send(packet(with(func(f *frame) { f.region = x.number }), good))
	fill(x.memory.Bytes(), 4)
	x.send(packet(with(func(f *frame) { f.region = x.number }), good))
	if f, _, err := x.receive(); err == nil {
		t.Errorf("a busy slot: answered %+v", f)
	}
	cudafake.Hold(false)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := h.Leave(short, origin, 9000); err == nil {
		t.Error("left, though the peer has not closed its end")
	}
	_ = x.c.Close()
}

// TestHostileWindows has a peer answer wrongly where it is asked for a window or a move.
func TestHostileWindows(t *testing.T) {
	a := newHost(t, 1)
	local := a.region(1<<20, memory.None, memory.Options{})
	const id = 1
	window := frame{kind: giveWindow, region: 1, bytes: 2 * memory.PieceBytes}
	give := func(u *net.UnixConn, f frame, size int64, seals int) {
		fd := memfd(t, size, seals)
		_ = send(u, f.append(nil), fd)
		closeFD(fd)
	}
	with := func(change func(*frame)) frame {
		f := window
		change(&f)
		return f
	}
	const sealed = unix.F_SEAL_SHRINK
	for name, serve := range map[string]func(u *net.UnixConn){
		"unsealed":       func(u *net.UnixConn) { give(u, window, 1<<20, 0) },
		"small":          func(u *net.UnixConn) { give(u, window, 1<<19, sealed) },
		"odd size":       func(u *net.UnixConn) { give(u, with(func(f *frame) { f.bytes++ }), 1<<20+1, sealed) },
		"no slot":        func(u *net.UnixConn) { give(u, with(func(f *frame) { f.bytes = 0 }), 1<<20, sealed) },
		"many slots":     func(u *net.UnixConn) { give(u, with(func(f *frame) { f.bytes = 9 << 19 }), 9<<19, sealed) },
		"number 0":       func(u *net.UnixConn) { give(u, with(func(f *frame) { f.region = 0 }), 1<<20, sealed) },
		"elsewhere":      func(u *net.UnixConn) { give(u, with(func(f *frame) { f.place = 1 }), 1<<20, sealed) },
		"no descriptor":  func(u *net.UnixConn) { _ = send(u, window.append(nil), -1) },
		"taken back":     func(u *net.UnixConn) { _ = send(u, frame{kind: takeBack, region: 1}.append(nil), -1) },
		"answer to none": func(u *net.UnixConn) { _ = send(u, frame{kind: moved, region: 1}.append(nil), -1) },
		"twice": func(u *net.UnixConn) {
			give(u, window, 1<<20, sealed)
			give(u, with(func(f *frame) { f.region = 2 }), 1<<20, sealed)
		},
		"answered twice": func(u *net.UnixConn) {
			var buf [maxPacket]byte
			give(u, window, 1<<20, sealed)
			_, _ = u.Read(buf[:])
			f, _ := parseFrame(buf[:frameSize])
			f.kind, f.status = moved, 99
			_ = send(u, f.append(nil), -1)
			_ = send(u, f.append(nil), -1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := server(t, func(u *net.UnixConn) {
				var buf [maxPacket]byte
				_, _ = u.Read(buf[:])
				sendBoardOpen(t, u, id)
				_, _ = u.Read(buf[:])
				_ = send(u, frame{kind: mapped, status: windowed, region: id, grant: 3, bytes: 1 << 20}.append(nil), -1)
				_, _ = u.Read(buf[:])
				serve(u)
				for {
					if n, err := u.Read(buf[:]); err != nil || n == 0 {
						return
					}
				}
			})
			e := a.dialTo(d)
			e.Post(one(transport.Read, local, 0, &transport.RemoteRegion{ID: id, Bytes: 1 << 20, Grant: 3}, 0, 100))
			if err := e.WaitLost(); err == nil {
				t.Error("the connection goes on")
			}
		})
	}
}

// FuzzPacket: what is read is what a peer could have written, and within the bounds.
func FuzzPacket(f *testing.F) {
	f.Add(packet(frame{kind: moveIt, grant: 1, region: 1}, spot{5, 9, 10}, spot{6, 1 << 40, 20}))
	f.Add(frame{kind: wantWindow, place: 3}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, spots, err := parsePacket(b, nil)
		if err != nil {
			return
		}
		if !bytes.Equal(packet(got, spots...), b) || len(b) > maxPacket || len(spots) > maxSpots || (got.kind == moveIt) != (len(spots) > 0) {
			t.Errorf("%x read as %+v and %v", b, got, spots)
		}
		sum := uint64(0)
		for _, s := range spots {
			sum += uint64(s.bytes)
		}
		if sum > memory.PieceBytes {
			t.Errorf("%d bytes", sum)
		}
	})
}

package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/engine/internal/memory"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

// frame makes a frame with a header that is right in itself.
func frame(h header, descs []desc, payload ...byte) []byte {
	return guarded(&guard{}, h, descs, payload...)
}

// guarded is a frame of a connection with tags, but for those of the payload.
func guarded(g *guard, h header, descs []desc, payload ...byte) []byte {
	b := make([]byte, headBytes+len(descs)*descBytes+g.tail())
	if h.kind == frameWrite || h.kind == frameRead {
		h.count = uint16(len(descs))
	}
	h.put(b)
	for i, d := range descs {
		d.put(b[headBytes+i*descBytes:])
	}
	g.seal(b)
	return append(b, payload...)
}

// sockets are two ends of a connection.
func sockets(t testing.TB) (ours, theirs net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return ends[0], ends[1]
}

// intrude is a peer that is let in and then does what it likes.
func intrude(t testing.TB, b *side) (net.Conn, transport.ConnID) {
	t.Helper()
	id := transport.ConnID(lastConn.Add(1))
	o := offer{features: featureSum, spans: spansLimit, posted: postedLimit, bytes: bytesLimit}
	if _, err := b.Accept(context.Background(), transport.Origin{Session: mySession, Conn: id}, o.put()); err != nil {
		t.Fatal(err)
	}
	ours, theirs := sockets(t)
	if err := b.Serve(mySession, id, "intruder", theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	_ = ours.SetDeadline(time.Now().Add(patience))
	if got := readAll(t, ours, headBytes); !bytes.Equal(got, readyFrame(&guard{})) {
		t.Fatalf("the connection begins with %x", got)
	}
	return ours, id
}

func readAll(t testing.TB, c net.Conn, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatalf("reading %d bytes: %v", n, err)
	}
	return b
}

// isClosed waits for the peer to end the connection.
func isClosed(t testing.TB, c net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection is still open")
	}
}

// TestGarbledHeader flips every bit of a WRITE's header and descriptors, one at a
// time: the payload must not land anywhere.
func TestGarbledHeader(t *testing.T) {
	noLeaks(t)
	b := newSide(t, Options{})
	r := b.region(t, 4096, both, memory.Options{})
	good := frame(header{kind: frameWrite, id: 1, bytes: 8}, []desc{{r.ID(), 64, 4}, {r.ID(), 128, 4}}, 1, 2, 3, 4, 5, 6, 7, 8)
	head := len(good) - 8
	for bit := range 8 * head {
		c, _ := intrude(t, b)
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		if _, err := c.Write(bad); err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.UnixConn).CloseWrite()
		isClosed(t, c)
		c.Close()
		if !bytes.Equal(bytesOf(r), make([]byte, 4096)) {
			t.Fatalf("bit %d: the payload landed", bit)
		}
	}
	c, _ := intrude(t, b)
	if _, err := c.Write(good); err != nil {
		t.Fatal(err)
	}
	var h header
	h.get(readAll(t, c, headBytes))
	if h.kind != frameAck || h.count != statusOK || h.id != 1 || bytesOf(r)[131] != 8 {
		t.Errorf("the frame itself: answer %+v, byte %d", h, bytesOf(r)[131])
	}
	if n := b.Served().Dropped["header-checksum"]; n < 200 {
		t.Errorf("dropped %v", b.Served().Dropped)
	}
}

func TestViolations(t *testing.T) {
	noLeaks(t)
	b := newSide(t, Options{MaxBytes: 1 << 20, MaxSpans: 4, MaxPosted: 2})
	r := b.region(t, 4096, both, memory.Options{})
	d := desc{r.ID(), 0, 4}
	tests := []struct {
		reason string
		frame  []byte
	}{
		{"frame", frame(header{kind: frameAck}, nil)},
		{"frame", frame(header{kind: 77}, nil)},
		{"spans", frame(header{kind: frameRead}, make([]desc, 5))},
		{"bytes", frame(header{kind: frameWrite, bytes: 1<<20 + 1}, []desc{{r.ID(), 0, 1<<20 + 1}})},
		{"bytes", frame(header{kind: frameRead, bytes: 1 << 63}, []desc{d})},
		{"sum", frame(header{kind: frameWrite, bytes: 5}, []desc{d})},
		{"sum", frame(header{kind: frameRead, bytes: 3}, []desc{{r.ID(), 0, 1<<32 - 1}, d})},
		{"flags", frame(header{kind: frameRead, flags: 2, bytes: 4}, []desc{d})},
		{"flags", frame(header{kind: frameWrite, flags: flagSum}, nil)},
		{"flags", frame(header{kind: frameRead, detail: 1, bytes: 4}, []desc{d})},
	}
	want := map[string]int64{}
	for _, tt := range tests {
		c, _ := intrude(t, b)
		if _, err := c.Write(tt.frame); err != nil {
			t.Fatal(err)
		}
		isClosed(t, c)
		c.Close()
		want[tt.reason]++
		eventually(t, tt.reason, func() bool { return b.Served().Dropped[tt.reason] == want[tt.reason] })
	}
	if bytesOf(r)[0] != 0 || b.Served().Requests != 0 || r.Pins() != 0 {
		t.Errorf("byte %d, %+v, %d pins", bytesOf(r)[0], b.Served(), r.Pins())
	}
}

// TestNeverReads asks for a lot and takes nothing: the answers are bounded, and
// the connection ends when there are too many or they make no progress.
func TestNeverReads(t *testing.T) {
	noLeaks(t)
	patient := newSide(t, Options{MaxPosted: 8})
	most := patient.region(t, 8<<20, both, memory.Options{})
	c, _ := intrude(t, patient)
	for range 9 {
		if _, err := c.Write(frame(header{kind: frameRead, bytes: 8 << 20}, []desc{{most.ID(), 0, 8 << 20}})); err != nil {
			break // it may be closed already
		}
	}
	eventually(t, "the ninth is too much", func() bool { return patient.Served().Dropped["posted"] == 1 })
	b := newSide(t, Options{FrameTime: 50 * time.Millisecond})
	r := b.region(t, 8<<20, both, memory.Options{})
	read := frame(header{kind: frameRead, bytes: 8 << 20}, []desc{{r.ID(), 0, 8 << 20}})
	c, _ = intrude(t, b)
	if _, err := c.Write(read); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no progress", func() bool { return b.Served().Dropped["stuck"] == 1 })
	eventually(t, "unpinned", func() bool { return r.Pins() == 0 })
	// Half a header, or half a payload.
	for i, part := range [][]byte{read[:5], frame(header{kind: frameWrite, bytes: 100}, []desc{{r.ID(), 0, 100}}, 1, 2, 3)} {
		c, _ = intrude(t, b)
		if _, err := c.Write(part); err != nil {
			t.Fatal(err)
		}
		eventually(t, "no progress", func() bool { return b.Served().Dropped["stuck"] == int64(2+i) })
	}
	// One that is idle between frames is left alone.
	c, _ = intrude(t, b)
	time.Sleep(150 * time.Millisecond)
	if _, err := c.Write(frame(header{kind: frameRead, bytes: 4}, []desc{{r.ID(), 0, 4}})); err != nil {
		t.Fatal(err)
	}
	readAll(t, c, headBytes+4)
}

func TestWrongPayload(t *testing.T) {
	noLeaks(t)
	b := newSide(t, Options{})
	r := b.region(t, 1<<20, both, memory.Options{})
	c, _ := intrude(t, b)
	for _, n := range []int{1, 5000, 1 << 20} {
		payload := make([]byte, n)
		fillRandom(payload, 9)
		sum := crc32.ChecksumIEEE(payload)
		for _, flip := range []uint32{0, 1} {
			f := frame(header{kind: frameWrite, flags: flagSum, id: 5, bytes: uint64(n)}, []desc{{r.ID(), 0, uint32(n)}}, payload...)
			go c.Write(binary.BigEndian.AppendUint32(f, sum^flip))
			var h header
			h.get(readAll(t, c, headBytes))
			want := uint16(statusOK)
			if flip != 0 {
				want = statusSum
			}
			if h.kind != frameAck || h.id != 5 || h.count != want {
				t.Errorf("%d bytes, sum changed by %d: answer %+v", n, flip, h)
			}
		}
	}
}

// TestPeerCuts ends the connection in the midst of frames, from the peer's side.
func TestPeerCuts(t *testing.T) {
	noLeaks(t)
	b := newSide(t, Options{})
	r := b.region(t, 1<<20, both, memory.Options{})
	whole := frame(header{kind: frameWrite, bytes: 1 << 20}, []desc{{r.ID(), 0, 1 << 20}}, make([]byte, 1<<20)...)
	for _, n := range []int{0, 1, headBytes, headBytes + descBytes, headBytes + descBytes + 1, 100000, len(whole) - 1} {
		c, _ := intrude(t, b)
		if _, err := c.Write(whole[:n]); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	c, _ := intrude(t, b)
	if _, err := c.Write(frame(header{kind: frameRead, bytes: 1 << 20}, []desc{{r.ID(), 0, 1 << 20}})); err != nil {
		t.Fatal(err)
	}
	readAll(t, c, 1000)
	c.Close()
	eventually(t, "all are gone", func() bool { return b.Served().Conns == 0 && r.Pins() == 0 })
	if d := b.Served().Dropped; len(d) > 0 {
		t.Errorf("dropped %v", d)
	}
}

// TestRegionClosedDuringFrame closes a region that slow peers hold.
func TestRegionClosedDuringFrame(t *testing.T) {
	noLeaks(t)
	b := newSide(t, Options{CloseTime: 20 * time.Millisecond})
	r := b.region(t, 1<<20, both, memory.Options{})
	other := b.region(t, 1<<20, both, memory.Options{})
	writer, _ := intrude(t, b)
	if _, err := writer.Write(frame(header{kind: frameWrite, bytes: 100000}, []desc{{r.ID(), 0, 100000}}, make([]byte, 500)...)); err != nil {
		t.Fatal(err)
	}
	reader, _ := intrude(t, b)
	if _, err := reader.Write(frame(header{kind: frameRead, bytes: 1 << 20}, []desc{{r.ID(), 0, 1 << 20}})); err != nil {
		t.Fatal(err)
	}
	bystander, _ := intrude(t, b)
	if _, err := bystander.Write(frame(header{kind: frameWrite, bytes: 100000}, []desc{{other.ID(), 0, 100000}}, 1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both hold it", func() bool { return r.Pins() == 2 && other.Pins() == 1 })
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Close(now); err == nil {
		t.Fatal("the region is closed though it is held")
	}
	if err := b.Deregister(r); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.Served().Dropped["region"]; n != 2 {
		t.Errorf("dropped %v", b.Served().Dropped)
	}
	isClosed(t, writer)
	isClosed(t, reader)
	if other.Pins() != 1 || b.Served().Conns != 1 {
		t.Error("a connection that does not touch the region was ended")
	}
}

// TestLeaveWaits keeps the passive end's goroutines in the midst of a frame: Leave
// must not say that it is over before they are.
func TestLeaveWaits(t *testing.T) {
	noLeaks(t)
	b := newSide(t, Options{})
	r := b.region(t, 1<<20, both, memory.Options{})
	for _, n := range []uint32{8, 1 << 20} { // sent by the reader, by the sender
		c, id := intrude(t, b)
		b.Transport.mu.Lock()
		p, _ := b.ends.Find(transport.ConnKey{Session: mySession, Conn: id})
		b.Transport.mu.Unlock()
		p.io.Lock()
		if _, err := c.Write(frame(header{kind: frameRead, bytes: uint64(n)}, []desc{{r.ID(), 0, n}})); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a goroutine is sending", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.sending && p.replies.len() == 0
		})
		// Before the write itself the connection may still end without it.
		eventually(t, "the goroutine is in its write", func() bool {
			stacks := make([]byte, 1<<20)
			return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*link).tryWrite")
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := b.Leave(ctx, transport.Origin{Session: mySession}, id); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d bytes: leave says %v while the region is being read", n, err)
		}
		cancel()
		if r.Pins() != 1 {
			t.Errorf("%d bytes: %d pins", n, r.Pins())
		}
		p.io.Unlock()
		if err := b.Leave(t.Context(), transport.Origin{Session: mySession}, id); err != nil || r.Pins() != 0 {
			t.Errorf("%d bytes: leave says %v, %d pins", n, err, r.Pins())
		}
	}
}

// A connection's key is in the answer alone, is drawn for each, and is gone when the
// connection is no longer expected.
func TestDataKey(t *testing.T) {
	noLeaks(t)
	b := newSide(t, Options{ArriveTime: time.Minute})
	o := offer{spans: 1, posted: 1, bytes: 1}.put()
	var keys []transport.DataKey
	for id := range transport.ConnID(3) {
		answer, err := b.Accept(t.Context(), transport.Origin{Session: mySession, Conn: id}, o)
		if err != nil {
			t.Fatal(err)
		}
		g, err := getGrant(answer)
		if key, ok := b.Key(mySession, id); err != nil || !ok || key != g.key || slices.Contains(keys, key) {
			t.Errorf("connection %d: key %x (%t), the answer has %x (%v), others have %x", id, key, ok, g.key, err, keys)
		}
		keys = append(keys, g.key)
	}
	if _, ok := b.Key(transport.SessionID{9}, 0); ok {
		t.Error("another session has the key")
	}
	ours, theirs := sockets(t)
	defer ours.Close()
	if err := b.Serve(mySession, 0, "peer", theirs); err != nil {
		t.Fatal(err)
	}
	if err := b.Leave(t.Context(), transport.Origin{Session: mySession}, 1); err != nil {
		t.Fatal(err)
	}
	for id, want := range []bool{false, false, true, false} {
		if _, ok := b.Key(mySession, transport.ConnID(id)); ok != want {
			t.Errorf("connection %d has a key: %t", id, ok)
		}
	}
}

// Offers outside of what docs/wire.md states are refused.
func TestOfferLimits(t *testing.T) {
	good := offer{spans: spansLimit, posted: postedLimit, bytes: bytesLimit}
	if _, err := getOffer(good.put()); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*offer){
		func(o *offer) { o.spans = 0 }, func(o *offer) { o.posted = 0 }, func(o *offer) { o.bytes = 0 },
		func(o *offer) { o.spans++ }, func(o *offer) { o.posted++ }, func(o *offer) { o.bytes++ },
	} {
		o := good
		change(&o)
		if _, err := getOffer(o.put()); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	old := good.put()
	old[1] = 1
	if _, err := getOffer(old); err == nil {
		t.Error("version 1 is taken")
	}
	reserved := good.put()
	reserved[3] = 1
	if _, err := getOffer(reserved); err == nil {
		t.Error("a reserved byte that is not 0 is taken")
	}
}

// expect has a connection expected of a session; ten sessions are one peer's.
func expect(t *testing.T, b *side, session byte, conn transport.ConnID) error {
	from := transport.Origin{Session: transport.SessionID{session}, Conn: conn, Name: "x", Account: transport.Account(fmt.Sprint(session / 10))}
	_, err := b.Accept(t.Context(), from, offer{spans: 1, posted: 1, bytes: 1}.put())
	return err
}

func TestAcceptIsBounded(t *testing.T) {
	noLeaks(t)
	b := newSide(t, Options{ConnsPerSession: 2, Conns: 4})
	for i, want := range []string{"", "", "too many"} {
		if err := expect(t, b, 1, transport.ConnID(i)); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if err := expect(t, b, 2, 1); err == nil {
		t.Error("a peer has more than half of all connections, by two sessions")
	}
	if err := expect(t, b, 10, 1); err != nil {
		t.Errorf("one peer has taken all: %v", err)
	}
	if err := expect(t, b, 10, 1); err == nil {
		t.Error("a connection is expected twice")
	}
}

func TestExpectationsEnd(t *testing.T) {
	noLeaks(t)
	b := newSide(t, Options{ArriveTime: 30 * time.Millisecond, FrameTime: 20 * time.Millisecond})
	if err := errors.Join(expect(t, b, 1, 1), expect(t, b, 10, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "expectations end", func() bool {
		b.Transport.mu.Lock()
		defer b.Transport.mu.Unlock()
		expected, open := b.ends.Len()
		return expected+open+b.ends.OfSession(transport.SessionID{1})+b.ends.OfSession(transport.SessionID{10}) == 0
	})
	ours, theirs := sockets(t)
	defer ours.Close()
	if err := b.Serve(transport.SessionID{1}, 1, "late", theirs); err == nil {
		t.Error("a connection was let in late")
	}
	isClosed(t, ours)
	if err := expect(t, b, 1, 1); err != nil {
		t.Error(err)
	}
}

// imposter answers connections as it likes.
type imposter struct {
	*client
	t    testing.TB
	peer net.Conn
	mine *memory.Region
}

func newImposter(t testing.TB, a *side, mine *memory.Region) *imposter {
	t.Helper()
	ours, theirs := sockets(t)
	return newImposterOn(t, a, mine, ours, theirs)
}

func newImposterOn(t testing.TB, a *side, mine *memory.Region, ours, theirs net.Conn) *imposter {
	t.Helper()
	im := &imposter{t: t, mine: mine, client: newClient()}
	im.peer = ours
	_ = ours.SetDeadline(time.Now().Add(patience))
	if _, err := ours.Write(readyFrame(&guard{})); err != nil {
		t.Fatal(err)
	}
	im.Conn = a.adopt(t, theirs, im.client)
	t.Cleanup(func() { ours.Close() })
	return im
}

func (im *imposter) answer(h header, payload ...byte) {
	if _, err := im.peer.Write(frame(h, nil, payload...)); err != nil {
		im.t.Fatal(err)
	}
}

// asked takes the header of the next request.
func (im *imposter) asked(payload int) header {
	var h header
	h.get(readAll(im.t, im.peer, headBytes))
	readAll(im.t, im.peer, int(h.count)*descBytes+payload)
	return h
}

var anyRemote = &transport.RemoteRegion{ID: 1}

// TestWrongAnswers has a peer answer what was not asked. The connection ends, and
// nothing but the spans of READs is written.
func TestWrongAnswers(t *testing.T) {
	noLeaks(t)
	a := newSide(t, Options{})
	mine := a.region(t, 1<<20, memory.None, memory.Options{})
	read := func() *transport.Request { return request(transport.Read, mine, 100, anyRemote, 0, 10) }
	write := func() *transport.Request { return request(transport.Write, mine, 0, anyRemote, 0, 10) }
	tests := []struct {
		name   string
		req    *transport.Request
		answer func(im *imposter, asked header)
	}{
		{"unknown type", read(), func(im *imposter, h header) { im.answer(header{kind: 9, id: h.id}) }},
		{"request", read(), func(im *imposter, h header) { im.answer(header{kind: frameRead, id: h.id}) }},
		{"other id", read(), func(im *imposter, h header) { im.answer(header{kind: frameAck, id: h.id + 1, count: 1}) }},
		{"large id", read(), func(im *imposter, h header) { im.answer(header{kind: frameAck, id: 1<<32 - 1, count: 1}) }},
		{"twice", write(), func(im *imposter, h header) {
			im.answer(header{kind: frameAck, id: h.id})
			im.answer(header{kind: frameAck, id: h.id})
		}},
		{"READ without data", read(), func(im *imposter, h header) { im.answer(header{kind: frameAck, id: h.id}) }},
		{"WRITE with data", write(), func(im *imposter, h header) {
			im.answer(header{kind: frameData, id: h.id, bytes: 10}, make([]byte, 10)...)
		}},
		{"too much data", read(), func(im *imposter, h header) {
			im.answer(header{kind: frameData, id: h.id, bytes: 11}, bytes.Repeat([]byte{1}, 11)...)
		}},
		{"too little data", read(), func(im *imposter, h header) {
			im.answer(header{kind: frameData, id: h.id, bytes: 9}, make([]byte, 9)...)
		}},
		{"checked data", read(), func(im *imposter, h header) {
			im.answer(header{kind: frameData, id: h.id, bytes: 10, flags: flagSum}, make([]byte, 14)...)
		}},
		{"unknown status", read(), func(im *imposter, h header) { im.answer(header{kind: frameAck, id: h.id, count: 99}) }},
		{"bad header", read(), func(im *imposter, h header) {
			f := frame(header{kind: frameAck, id: h.id, count: 1}, nil)
			f[17]++
			_, _ = im.peer.Write(f)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			im := newImposter(t, a, mine)
			im.post(t, tt.req)
			payload := 0
			if tt.req.Op == transport.Write {
				payload = 10
			}
			tt.answer(im, im.asked(payload))
			var v *violated
			if err := im.gone(t); !errors.As(err, &v) {
				t.Errorf("lost with %v", err)
			}
			if x := im.next(t); x.Request != tt.req || tt.name != "twice" && (!errors.Is(x.Err, transport.ErrClosed) || x.MayLand != (payload > 0)) {
				t.Errorf("completion %+v", x)
			}
		})
	}
	if !bytes.Equal(bytesOf(mine), make([]byte, 1<<20)) {
		t.Error("a wrong answer wrote")
	}
}

// TestEarlyAnswer has a peer acknowledge a WRITE that is still being sent: its
// memory would be free while the wire reads it.
func TestEarlyAnswer(t *testing.T) {
	noLeaks(t)
	a := newSide(t, Options{})
	mine := a.region(t, 32<<20, memory.None, memory.Options{})
	im := newImposter(t, a, mine)
	req := request(transport.Write, mine, 0, anyRemote, 0, 32<<20)
	im.post(t, req)
	im.answer(header{kind: frameAck, id: im.asked(0).id})
	var v *violated
	if err := im.gone(t); !errors.As(err, &v) {
		t.Errorf("lost with %v", err)
	}
	if x := im.next(t); !errors.Is(x.Err, transport.ErrClosed) || !x.MayLand {
		t.Errorf("completion %+v", x)
	}
}

func TestWrongData(t *testing.T) {
	noLeaks(t)
	a := newSide(t, Options{})
	mine := a.region(t, 1<<20, memory.None, memory.Options{})
	im := newImposter(t, a, mine)
	for _, n := range []int64{3, 100000} {
		for _, flip := range []uint32{1, 0} {
			req := request(transport.Read, mine, 0, anyRemote, 0, n)
			req.Check = true
			im.post(t, req)
			h := im.asked(0)
			if h.flags != flagSum {
				t.Fatalf("asked %+v", h)
			}
			data := make([]byte, n)
			fillRandom(data, 11)
			im.answer(header{kind: frameData, flags: flagSum, id: h.id, bytes: uint64(n)},
				binary.BigEndian.AppendUint32(data, crc32.ChecksumIEEE(data)^flip)...)
			if x := im.next(t); errors.Is(x.Err, transport.ErrChecksum) != (flip != 0) || flip == 0 && x.Err != nil || x.MayLand {
				t.Errorf("%d bytes, sum changed by %d: %+v", n, flip, x)
			}
		}
	}
}

// TestNeverAnswers posts to a peer that takes nothing: what began may land, what
// did not may not, and Close ends it.
func TestNeverAnswers(t *testing.T) {
	noLeaks(t)
	a := newSide(t, Options{})
	mine := a.region(t, 1<<20, memory.None, memory.Options{})
	im := newImposter(t, a, mine)
	const posted = 50
	var reqs []*transport.Request
	for range posted {
		reqs = append(reqs, request(transport.Write, mine, 0, anyRemote, 0, 1<<20))
	}
	im.post(t, reqs...)
	im.post(t, request(transport.Read, mine, 0, anyRemote, 0, 1))
	im.asked(0)
	cause := errors.New("enough")
	im.Close(cause)
	if err := im.gone(t); err != nil {
		t.Errorf("lost with %v", err)
	}
	landing := 0
	for range posted + 1 {
		x := im.next(t)
		if !errors.Is(x.Err, transport.ErrClosed) || !errors.Is(x.Err, cause) || x.Request.Op == transport.Read && x.MayLand {
			t.Fatalf("completion %+v", x)
		}
		if x.MayLand {
			landing++
			if x.Request != reqs[0] && landing > 10 {
				t.Fatalf("%d requests may land", landing)
			}
		} else if x.Request == reqs[0] {
			t.Error("the first request cannot land, it says")
		}
	}
	if len(im.done) > 0 {
		t.Errorf("%d completions too many", len(im.done))
	}
}

// A peer that asks for much in many pieces and takes no answer gets no more memory for that than
// there is for one peer: its connection ends. What it had comes back.
func TestAnswersThatWaitAreBounded(t *testing.T) {
	noLeaks(t)
	held := transport.NewShares("memory", 1<<20)
	b := newSide(t, Options{Memory: held})
	r := b.region(t, 1<<20, both, memory.Options{})
	var descs []desc
	for range spansLimit {
		descs = append(descs, desc{r.ID(), 0, 1 << 11})
	}
	c, _ := intrude(t, b)
	for id := range uint32(128) { // a mebibyte each
		if _, err := c.Write(frame(header{kind: frameRead, id: id, bytes: spansLimit << 11}, descs)); err != nil {
			break
		}
	}
	eventually(t, "the connection is ended", func() bool { return b.Served().Dropped["memory"] == 1 })
	eventually(t, "its memory is given back", func() bool { n, _ := held.Taken(); return n == 0 })
	isClosed(t, c)
}

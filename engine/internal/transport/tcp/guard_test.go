package tcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
)

// between are two ends with an attacker between them, who hands over what he likes.
type between struct {
	*client
	a, b     *side
	mine     *memory.Region
	theirs   *memory.Region
	up, down net.Conn // to the active end, to the passive one
	tagged   bool
	id       transport.ConnID
}

func newBetween(t testing.TB, level transport.Protection, size int64) *between {
	t.Helper()
	a, b := newSide(t, Options{Protection: level}), newSide(t, Options{Protection: level})
	m := &between{client: newClient(), a: a, b: b, tagged: level == transport.Payload}
	m.mine = a.region(t, size, memory.None, memory.Options{})
	m.theirs = b.region(t, size, both, memory.Options{})
	m.connect(t)
	return m
}

// connect makes a connection, whose first frame is handed over.
func (m *between) connect(t testing.TB) {
	t.Helper()
	m.client = newClient()
	m.id = transport.ConnID(lastConn.Add(1))
	m.a.dial = func(context.Context, session.DataDial) (net.Conn, error) {
		var active, passive net.Conn
		m.up, active = sockets(t)
		m.down, passive = sockets(t)
		for _, c := range []net.Conn{m.up, m.down} {
			_ = c.SetDeadline(time.Now().Add(patience))
			t.Cleanup(func() { c.Close() })
		}
		if err := m.b.Serve(mySession, m.id, "a", passive); err != nil {
			return nil, err
		}
		_, err := io.CopyN(m.up, m.down, int64(headBytes+tagBytes))
		return active, err
	}
	var err error
	m.Conn, err = m.a.Dial(t.Context(), transport.Dial{
		Session: mySession, Conn: m.id, Remote: transport.Endpoint{Transport: "tcp", Address: "127.0.0.1:1"},
		Exchange: func(ctx context.Context, request []byte) ([]byte, error) {
			return m.b.Accept(ctx, transport.Origin{Session: mySession, Conn: m.id, Name: "a"}, request)
		},
		Events: m.events(),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// request makes one of spans of these lengths, one after the other in both regions.
func (m *between) request(op transport.Op, lengths ...int64) *transport.Request {
	req := &transport.Request{Op: op}
	for _, n := range lengths {
		req.Spans = append(req.Spans, transport.Span{Local: m.mine, LocalOffset: req.Bytes, Remote: remote(m.theirs), RemoteOffset: req.Bytes, Bytes: n})
		req.Bytes += n
	}
	return req
}

// sizes are those of the request's frame and of its answer's: header with its tag, and what
// follows.
func (m *between) sizes(req *transport.Request) (head, payload, answer, data int) {
	bytes := int(req.Bytes)
	if m.tagged {
		for _, s := range req.Spans {
			bytes += tagBytes * pieces(s.Bytes)
		}
	}
	head, answer = headBytes+descBytes*len(req.Spans)+tagBytes, headBytes+tagBytes
	if req.Op == transport.Write {
		return head, bytes, answer, 0
	}
	return head, 0, answer, bytes
}

// end ends the connection, and says how the last request of the client ended.
func (m *between) end(t testing.TB) transport.Completion {
	t.Helper()
	_ = m.down.(*net.UnixConn).CloseWrite()
	_, _ = io.Copy(io.Discard, m.down)
	_ = m.up.(*net.UnixConn).CloseWrite()
	return m.next(t)
}

var keyed = []transport.Protection{transport.Headers, transport.Payload}

// TestFlippedHeader changes every byte of a request's and of an answer's header, descriptors and
// tag: the connection ends, and nothing is moved.
func TestFlippedHeader(t *testing.T) {
	noLeaks(t)
	for _, level := range keyed {
		m := newBetween(t, level, 4096)
		fillRandom(bytesOf(m.mine), 1)
		mine := bytes.Clone(bytesOf(m.mine))
		flip := func(op transport.Op, at int, answer bool) {
			t.Helper()
			m.connect(t)
			req := m.request(op, 3, 100)
			m.post(t, req)
			head, payload, ack, data := m.sizes(req)
			asked := readAll(t, m.up, head+payload)
			if !answer {
				asked[at] ^= 1 << (at % 8)
			}
			_, _ = m.down.Write(asked)
			if answer {
				reply := readAll(t, m.down, ack+data)
				reply[at] ^= 1 << (at % 8)
				_, _ = m.up.Write(reply)
			}
			if x := m.end(t); x.Request != req || !errors.Is(x.Err, transport.ErrClosed) || x.MayLand != (op == transport.Write) {
				t.Fatalf("%v, op %d, byte %d: %+v", level, op, at, x)
			}
			err := m.gone(t)
			if v, ok := errors.AsType[*violated](err); answer && (!ok || v.reason != "header-tag" && v.reason != "frame") {
				t.Fatalf("%v, op %d, byte %d of the answer: lost with %v", level, op, at, err)
			}
			if !bytes.Equal(bytesOf(m.mine), mine) {
				t.Fatalf("%v, op %d, byte %d: the answer landed", level, op, at)
			}
		}
		for _, op := range []transport.Op{transport.Write, transport.Read} {
			for at := range headBytes + 2*descBytes + tagBytes {
				flip(op, at, false)
			}
		}
		if !bytes.Equal(bytesOf(m.theirs), make([]byte, 4096)) {
			t.Fatalf("%v: a WRITE landed", level)
		}
		fillRandom(bytesOf(m.theirs), 2)
		for at := range headBytes + tagBytes {
			flip(transport.Read, at, true)
		}
		mine = bytes.Clone(bytesOf(m.theirs)) // what the WRITEs bring
		copy(bytesOf(m.mine), mine)
		for at := range headBytes + tagBytes {
			flip(transport.Write, at, true)
		}
		eventually(t, "all are counted", func() bool { return m.b.Served().Dropped["header-tag"] > headBytes+2*descBytes+tagBytes })
		if n := m.a.Served().Dropped["header-tag"]; n < 2*(headBytes+tagBytes-1) {
			t.Errorf("%v: the active end counts %v", level, m.a.Served().Dropped)
		}
	}
}

// TestOtherOrder hands frames over twice, in another order, without one, or those of another
// connection: each ends the connection before anything of it is done.
func TestOtherOrder(t *testing.T) {
	noLeaks(t)
	const n = 64
	for _, level := range keyed {
		m := newBetween(t, level, 4*n)
		fillRandom(bytesOf(m.mine), 1)
		m.post(t, m.request(transport.Write, n))
		head, payload, _, _ := m.sizes(m.request(transport.Write, n))
		other := readAll(t, m.up, head+payload)
		for name, order := range map[string][]int{"twice": {0, 0}, "swapped": {1, 0}, "one missing": {1}, "other connection": {-1}, "as sent": {0, 1}} {
			t.Run(fmt.Sprintf("%v/%s", level, name), func(t *testing.T) {
				m.connect(t)
				clear(bytesOf(m.theirs))
				var frames [][]byte
				for i := range int64(2) {
					req := m.request(transport.Write, n)
					req.Spans[0].RemoteOffset = i * n
					m.post(t, req)
					head, payload, _, _ := m.sizes(req)
					frames = append(frames, readAll(t, m.up, head+payload))
				}
				before, good := m.b.Served().Requests, 0
				for i, k := range order {
					frame := other
					if k >= 0 {
						frame = frames[k]
					}
					if k == i {
						good++
					}
					_, _ = m.down.Write(frame)
				}
				_, _ = io.CopyN(m.up, m.down, int64(good*(headBytes+tagBytes)))
				for range good {
					if x := m.next(t); x.Err != nil {
						t.Errorf("%+v", x)
					}
				}
				if good < 2 {
					for range 2 - good {
						if x := m.end(t); !errors.Is(x.Err, transport.ErrClosed) {
							t.Errorf("%+v", x)
						}
					}
				} else {
					m.Close(nil)
				}
				_ = m.gone(t)
				if n := m.b.Served().Requests - before; n != int64(good) {
					t.Errorf("%d requests were begun, want %d", n, good)
				}
				for i := range 2 {
					landed := !bytes.Equal(bytesOf(m.theirs)[i*n:(i+1)*n], make([]byte, n))
					if landed != (i < good) {
						t.Errorf("frame %d landed: %t", i, landed)
					}
				}
			})
		}
	}
}

// TestReplayedAnswer gives the answer of one READ for another.
func TestReplayedAnswer(t *testing.T) {
	noLeaks(t)
	m := newBetween(t, transport.Headers, 4096)
	req := m.request(transport.Read, 8)
	head, _, answer, data := m.sizes(req)
	m.post(t, req)
	_, _ = io.CopyN(m.down, m.up, int64(head))
	reply := readAll(t, m.down, answer+data)
	_, _ = m.up.Write(reply)
	if x := m.next(t); x.Err != nil {
		t.Fatal(x.Err)
	}
	m.post(t, req)
	readAll(t, m.up, head)
	_, _ = m.up.Write(reply)
	if v, ok := errors.AsType[*violated](m.gone(t)); !ok || v.reason != "header-tag" {
		t.Errorf("lost with %v", v)
	}
	if x := m.next(t); !errors.Is(x.Err, transport.ErrClosed) {
		t.Errorf("%+v", x)
	}
}

// TestFlippedPayload changes bytes of payloads and of their tags, of small and large pieces: the
// request fails, others do not.
func TestFlippedPayload(t *testing.T) {
	noLeaks(t)
	m := newBetween(t, transport.Payload, 1<<20)
	fillRandom(bytesOf(m.mine), 1)
	fillRandom(bytesOf(m.theirs), 2)
	good := func(req *transport.Request) {
		t.Helper()
		if err := m.through(t, req, func([]byte) {}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytesOf(m.mine)[:req.Bytes], bytesOf(m.theirs)[:req.Bytes]) {
			t.Fatal("the bytes are not the same")
		}
	}
	bad := func(req *transport.Request, at int) {
		t.Helper()
		err := m.through(t, req, func(payload []byte) { payload[at] ^= 0x10 })
		if !errors.Is(err, transport.ErrChecksum) {
			t.Fatalf("op %d of %d bytes, byte %d: %v", req.Op, req.Bytes, at, err)
		}
	}
	for _, op := range []transport.Op{transport.Write, transport.Read} {
		small := m.request(op, 5, 0, 70)
		good(small)
		for at := range 5 + 70 + 2*tagBytes {
			bad(small, at)
		}
		// Several pieces of one span, which come straight to their place, and a piece's end that
		// is not the span's.
		large := m.request(op, 10000, 3*pieceBytes, 2*pieceBytes+1, 1)
		good(large)
		_, payload, _, data := m.sizes(large)
		size := payload + data
		for _, at := range []int{0, 9999, 10000, 10000 + pieceBytes, 10000 + 3*pieceBytes - 1, int(large.Bytes) - 1, int(large.Bytes), size - tagBytes, size - 1} {
			bad(large, at)
		}
		good(large)
	}
	// Two pieces of a length change places, with their tags.
	req := m.request(transport.Write, pieceBytes, pieceBytes)
	if err := m.through(t, req, func(payload []byte) {
		swap(payload[:pieceBytes], payload[pieceBytes:2*pieceBytes])
		swap(payload[2*pieceBytes:2*pieceBytes+tagBytes], payload[2*pieceBytes+tagBytes:])
	}); !errors.Is(err, transport.ErrChecksum) {
		t.Errorf("two pieces change places: %v", err)
	}
	// The payload of one WRITE with its tags in the place of another's.
	var before []byte
	for range 2 {
		if err := m.through(t, m.request(transport.Write, 50), func(payload []byte) {
			if before != nil {
				copy(payload, before)
			}
			before = bytes.Clone(payload)
		}); (err == nil) != bytes.Equal(bytesOf(m.mine)[:50], bytesOf(m.theirs)[:50]) {
			t.Errorf("the payload of another: %v", err)
		}
		fillRandom(bytesOf(m.mine), 7)
	}
	// A refused WRITE's tags are skipped.
	refused := m.request(transport.Write, 200, 3*pieceBytes)
	refused.Spans[0].RemoteOffset = 1 << 30
	if err := m.through(t, refused, func([]byte) {}); !errors.Is(err, transport.ErrRefused) {
		t.Errorf("a WRITE outside of the region: %v", err)
	}
	good(m.request(transport.Write, 300))
	m.Close(nil)
	_ = m.gone(t)
}

// through hands a request and its answer over, with their payloads as change leaves them.
func (m *between) through(t testing.TB, req *transport.Request, change func(payload []byte)) error {
	t.Helper()
	m.post(t, req)
	head, payload, answer, data := m.sizes(req)
	asked := readAll(t, m.up, head+payload)
	if payload > 0 {
		change(asked[head:])
	}
	sent := make(chan struct{})
	go func() { defer close(sent); _, _ = m.down.Write(asked) }()
	reply := readAll(t, m.down, answer+data)
	<-sent
	if data > 0 {
		change(reply[answer:])
	}
	_, _ = m.up.Write(reply)
	return m.next(t).Err
}

func swap(a, b []byte) {
	c := bytes.Clone(a)
	copy(a, b)
	copy(b, c)
}

// The level of a connection is the higher of both ends', and an answer below what this end
// accepts is refused.
func TestLevels(t *testing.T) {
	noLeaks(t)
	for ours := transport.Open; ours <= mostProtection; ours++ {
		for theirs := transport.Open; theirs <= mostProtection; theirs++ {
			a, b := newSide(t, Options{Protection: ours}), newSide(t, Options{Protection: theirs})
			c := dial(t, a, b, b.listen(t))
			want := map[transport.Protection]string{transport.Open: "crc32 if asked for", transport.Headers: "AES-GMAC headers, crc32 if asked for", transport.Payload: "AES-GMAC headers and payload", transport.Sealed: "TLS 1.3"}[max(ours, theirs)]
			if got := c.Describe(); !strings.HasSuffix(got, ", "+want) || strings.Contains(got, "GMAC") != strings.Contains(want, "GMAC") {
				t.Errorf("%v and %v: %s", ours, theirs, got)
			}
			c.Close(nil)
			_ = c.gone(t)
		}
	}
	a, b := newSide(t, Options{Protection: transport.Headers}), newSide(t, Options{})
	for name, answer := range map[string]func(*grant){
		"less":       func(g *grant) { g.level = transport.Open },
		"unknown":    func(g *grant) { g.level = 9 },
		"other keys": func(g *grant) { g.key[5]++ },
	} {
		a.dial = plainDial
		id := transport.ConnID(lastConn.Add(1))
		_, err := a.Dial(t.Context(), transport.Dial{
			Session: mySession, Conn: id, Remote: transport.Endpoint{Transport: "tcp", Address: b.listen(t)},
			Exchange: func(ctx context.Context, request []byte) ([]byte, error) {
				reply, err := b.Accept(ctx, transport.Origin{Session: mySession, Conn: id}, request)
				g, _ := getGrant(reply)
				answer(&g)
				return g.put(), err
			},
		})
		if err == nil || name != "other keys" && !strings.Contains(err.Error(), `"headers"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	request := offer{level: 9, spans: 1, posted: 1, bytes: 1}.put()
	if _, err := b.Accept(t.Context(), transport.Origin{Session: mySession, Conn: 1}, request); err == nil || !strings.Contains(err.Error(), `"level 9"`) {
		t.Errorf("an unknown level is accepted: %v", err)
	}
}

// TestFlippedTLS changes one byte of a stream within TLS, at several places of either direction:
// the request fails, and no wrong byte is in place.
func TestFlippedTLS(t *testing.T) {
	noLeaks(t)
	const size = 64 << 10
	a, b := newSide(t, Options{Protection: transport.Sealed}), newSide(t, Options{})
	mine, theirs := a.region(t, size, memory.None, memory.Options{}), b.region(t, size, both, memory.Options{})
	server := b.listen(t)
	for _, op := range []transport.Op{transport.Write, transport.Read} {
		for _, at := range []int{5000, 30_000, size} {
			from, to := bytesOf(mine), bytesOf(theirs)
			if op == transport.Read {
				from, to = to, from
			}
			fillRandom(from, uint64(at))
			clear(to)
			c := dial(t, a, b, flipping(t, server, op == transport.Write, at))
			if x := c.do(t, request(op, mine, 0, remote(theirs), 0, size)); !errors.Is(x.Err, transport.ErrClosed) || x.Request.Op != op {
				t.Errorf("op %d, byte %d: %+v", op, at, x)
			}
			if err := c.gone(t); err == nil {
				t.Errorf("op %d, byte %d: lost without an error", op, at)
			}
			eventually(t, "the other end has ended", func() bool { return b.Served().Conns == 0 })
			for i := range to {
				if to[i] != from[i] && to[i] != 0 {
					t.Fatalf("op %d, byte %d: byte %d is wrong", op, at, i)
				}
			}
		}
	}
}

// flipping forwards connections, and changes a byte on the way.
func flipping(t testing.TB, server string, up bool, at int) string {
	t.Helper()
	way := newProxy(t, server)
	way.Update(func(there, back *faulty.Line) {
		line := back
		if up {
			line = there
		}
		line.Change = func(place int64, b []byte) []byte {
			if i := int64(at) - place; i >= 0 && i < int64(len(b)) {
				b[i] ^= 4
			}
			return b
		}
	})
	return way.Address()
}

// A connection without TLS is not let in where TLS was agreed on, and the other way round.
func TestNotSealed(t *testing.T) {
	noLeaks(t)
	for _, level := range []transport.Protection{transport.Headers, transport.Sealed} {
		b := newSide(t, Options{Protection: level})
		id := transport.ConnID(lastConn.Add(1))
		if _, err := b.Accept(t.Context(), transport.Origin{Session: mySession, Conn: id}, offer{spans: 1, posted: 1, bytes: 1}.put()); err != nil {
			t.Fatal(err)
		}
		ours, theirs := sockets(t)
		defer ours.Close()
		if level != transport.Sealed {
			theirs = tls.Server(theirs, &tls.Config{})
		}
		if err := b.Serve(mySession, id, "peer", theirs); err == nil || !strings.Contains(err.Error(), level.String()) {
			t.Errorf("%v: %v", level, err)
		}
		a := newSide(t, Options{Protection: level})
		a.dial = func(context.Context, session.DataDial) (net.Conn, error) {
			ours, theirs := sockets(t)
			ours.Close()
			if level != transport.Sealed {
				theirs = tls.Client(theirs, &tls.Config{})
			}
			return theirs, nil
		}
		if _, err := a.Dial(t.Context(), transport.Dial{
			Session: mySession, Conn: id, Remote: transport.Endpoint{Address: "127.0.0.1:1"},
			Exchange: func(context.Context, []byte) ([]byte, error) {
				return grant{offer: offer{level: level, spans: 1, posted: 1, bytes: 1}}.put(), nil
			},
		}); err == nil || !strings.Contains(err.Error(), `protection "`+level.String()+`"`) {
			t.Errorf("dialling %v: %v", level, err)
		}
	}
}

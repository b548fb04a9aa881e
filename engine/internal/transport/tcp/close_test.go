package tcp

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// TestClosedWhileSomebodyPolls ends a connection while somebody else than the
// reader takes bytes in, with a peer that does no more: nothing is received from
// then on, it is not over before the other gives the turn back, and then it is.
func TestClosedWhileSomebodyPolls(t *testing.T) {
	noLeaks(t)
	a := newSide(t, Options{})
	mine := a.region(t, 4096, memory.None, memory.Options{})
	// A TCP socket still gives what had come when it was shut down.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	im := newImposterOn(t, a, mine, ours, theirs)
	req := request(transport.Read, mine, 0, anyRemote, 0, 10)
	im.post(t, req)
	c := im.Conn.(*conn)
	c.turn.Lock()
	im.answer(header{kind: frameData, id: im.asked(0).id, bytes: 10}, bytes.Repeat([]byte{1}, 10)...)
	time.Sleep(20 * time.Millisecond) // it is all there
	im.Close(nil)
	if err := c.raw.Control(func(fd uintptr) {
		if !c.receive(fd) || c.in.n != 0 {
			t.Errorf("%d bytes were received", c.in.n)
		}
	}); err != nil {
		t.Error(err)
	}
	time.Sleep(20 * time.Millisecond) // the reader has seen that it is not its turn
	if len(im.lost) > 0 {
		t.Error("it is over while somebody may touch memory")
	}
	c.turn.Unlock()
	if err := im.gone(t); err != nil {
		t.Errorf("lost with %v", err)
	}
	if x := im.next(t); x.Request != req || x.Err == nil {
		t.Errorf("completion %+v", x)
	}
}

// A peer that hears that its frames were not as it sent them leaves at once: that can end the
// connection before the reader does, which has sent the alert.
func TestRefusedAfterTheEnd(t *testing.T) {
	noLeaks(t)
	b := newSide(t, Options{})
	_, id := intrude(t, b)
	b.Transport.mu.Lock()
	p, _ := b.ends.Find(transport.ConnKey{Session: mySession, Conn: id})
	b.Transport.mu.Unlock()
	p.turn.Lock() // the reader goes on after this
	p.fail(errLeft)
	p.refuse(violation(headerTag, "as it was not sent"))
	p.fail(errStuck)
	p.refuse(io.EOF)
	p.turn.Unlock()
	if err := b.Leave(t.Context(), transport.Origin{Session: mySession}, id); err != nil {
		t.Fatal(err)
	}
	if got := b.Served().Dropped; len(got) != 1 || got[headerTag] != 1 {
		t.Errorf("dropped: %v", got)
	}
}

// endedMeanwhile ends the connection after the alert is sent and before Read returns.
type endedMeanwhile struct {
	net.Conn
	link *link
}

func (c *endedMeanwhile) Read([]byte) (int, error) {
	c.link.dead.Store(true)
	return 0, tls.RecordHeaderError{}
}

func TestRecordRefusedWhileItEnds(t *testing.T) {
	l := &link{}
	l.conn = &endedMeanwhile{link: l}
	l.in.init()
	if l.receiveSealed(); dropReason(l.in.err) != record {
		t.Errorf("read: %v", l.in.err)
	}
}

// TestNothingIsReceivedAfterTheEnd has a whole WRITE in the socket when the
// connection is ended: it must not land.
func TestNothingIsReceivedAfterTheEnd(t *testing.T) {
	noLeaks(t)
	b := newSide(t, Options{})
	r := b.region(t, 4096, both, memory.Options{})
	c, id := intrude(t, b)
	b.Transport.mu.Lock()
	p, _ := b.ends.Find(transport.ConnKey{Session: mySession, Conn: id})
	b.Transport.mu.Unlock()
	p.turn.Lock()
	if _, err := c.Write(frame(header{kind: frameWrite, bytes: 8}, []desc{{r.ID(), 0, 8}}, 1, 2, 3, 4, 5, 6, 7, 8)); err != nil {
		t.Fatal(err)
	}
	p.fail(errLeft)
	p.turn.Unlock()
	if err := b.Leave(t.Context(), transport.Origin{Session: mySession}, id); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytesOf(r), make([]byte, 4096)) {
		t.Error("a WRITE landed after the connection had ended")
	}
}

// A READ ends, and what follows it is against the rules: what comes after that
// goes nowhere, although others look at the connection before it is closed.
func TestNothingIsReceivedAfterViolation(t *testing.T) {
	noLeaks(t)
	a := newSide(t, Options{})
	mine := a.region(t, 1<<20, memory.None, memory.Options{})
	theirs, ours := sockets(t)
	defer theirs.Close()
	defer ours.Close()
	var done []transport.Completion
	c := newConn(a.Transport, transport.Dial{Events: transport.Events{
		Done: func(_ transport.Conn, list []transport.Completion) { done = append(done, list...) },
	}}, grant{offer: a.offer})
	if err := c.init(c, ours, 0); err != nil {
		t.Fatal(err)
	}
	const size = 2 * stageBytes
	c.enqueue(request(transport.Read, mine, 0, anyRemote, 0, size))
	i, _, id := c.next()
	c.places[i].state = placeSent
	more := func(b []byte) {
		t.Helper()
		if _, err := theirs.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := c.raw.Control(func(fd uintptr) {
			there := make([]byte, size)
			eventually(t, "it is all there", func() bool {
				n, _, _ := unix.Recvfrom(int(fd), there, unix.MSG_PEEK|unix.MSG_DONTWAIT)
				return n >= len(b)
			})
		}); err != nil {
			t.Fatal(err)
		}
	}
	look := func() error {
		came := false
		if err := c.raw.Control(func(fd uintptr) { came = c.in.receive(fd) }); err != nil || !came {
			t.Fatalf("nothing came: %v", err)
		}
		return c.take()
	}
	data := frame(header{kind: frameData, id: id, bytes: size}, nil, bytes.Repeat([]byte{1}, size)...)
	c.in.aim()
	more(data[:stageBytes])
	if err := look(); err != nil {
		t.Fatal(err)
	}
	more(append(data[stageBytes:], bytes.Repeat([]byte{9}, headBytes)...))
	if err := look(); err == nil || len(done) != 1 || done[0].Err != nil {
		t.Fatalf("%v, done %+v", err, done)
	}
	clear(bytesOf(mine)) // it is ours again
	more(bytes.Repeat([]byte{2}, 1000))
	if err := look(); err == nil {
		t.Error("no error")
	}
	if !bytes.Equal(bytesOf(mine), make([]byte, 1<<20)) {
		t.Error("bytes landed after the completion")
	}
}

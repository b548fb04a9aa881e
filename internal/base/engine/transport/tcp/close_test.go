package tcp

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
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

package tcp

import (
	"bytes"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

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
	}}, a.offer)
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
		time.Sleep(50 * time.Millisecond) // it is all there
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

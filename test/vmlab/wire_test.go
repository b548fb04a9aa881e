package vmlab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// cable gives a cable with both ends plugged in, and the machines' sides of them.
func cable(t *testing.T) (c *Cable, ends [3]net.Conn) {
	t.Helper()
	c = newCable()
	t.Cleanup(c.Close)
	for host := 1; host <= 2; host++ {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		if err := c.Plug(host, ours); err != nil {
			t.Fatal(err)
		}
		ends[host] = theirs
	}
	return c, ends
}

func frame(text string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write(frame(text)); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	buf := make([]byte, 4+len(want))
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, buf); err != nil || !bytes.Equal(buf, frame(want)) {
		t.Fatalf("%q, %v; want %q", buf, err, want)
	}
}

// eventually waits for what the goroutines of a cable do.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not after %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestCarries(t *testing.T) {
	c, ends := cable(t)
	for _, text := range []string{"one", "", "three"} {
		send(t, ends[1], text)
		receive(t, ends[2], text)
		send(t, ends[2], text)
		receive(t, ends[1], text)
	}
	eventually(t, "six frames are counted", func() bool {
		return c.Count(1) == Count{Frames: 3, Bytes: 8} && c.Count(2) == c.Count(1)
	})
	ours, _ := net.Pipe()
	if err := c.Plug(1, ours); err == nil {
		t.Error("two machines are plugged into one end")
	}
}

// A cut is in one direction or in both, and ends.
func TestCut(t *testing.T) {
	c, ends := cable(t)
	c.SetRule(Rule{Cut: [3]bool{1: true}})
	send(t, ends[1], "lost")
	send(t, ends[2], "passes")
	receive(t, ends[1], "passes")
	eventually(t, "a frame is cut", func() bool { return c.Count(2).Cut == 1 })
	c.SetRule(Rule{Cut: [3]bool{1: true, 2: true}})
	send(t, ends[2], "lost too")
	eventually(t, "a frame is cut", func() bool { return c.Count(1).Cut == 1 })
	c.SetRule(Rule{})
	send(t, ends[1], "first")
	receive(t, ends[2], "first")
	send(t, ends[2], "second")
	receive(t, ends[1], "second")
}

func TestLoss(t *testing.T) {
	values := []float64{0.1, 0.5, 0.249, 0.25}
	dice := func() float64 { v := values[0]; values = values[1:]; return v }
	r := Rule{LossPercent: 25}
	for i, want := range []bool{true, false, true, false} {
		if got := r.drops(1, dice); got != want {
			t.Errorf("frame %d: %v", i, got)
		}
	}
	if r = (Rule{}); r.drops(1, dice) {
		t.Error("a rule without loss drops")
	}
}

// A machine that takes nothing never stops the other one.
func TestNeverPushesBack(t *testing.T) {
	c, ends := cable(t)
	big := string(make([]byte, 64<<10))
	const frames = 3 * queueBytes / (64 << 10)
	for range frames {
		send(t, ends[1], big) // nobody reads at the other end
	}
	eventually(t, "frames are dropped", func() bool { return c.Count(2).Overflowed > frames/2 })
	held := c.ends[2].held.Load()
	if held > queueBytes+64<<10+4 {
		t.Errorf("%d bytes wait", held)
	}
	send(t, ends[2], "the other way")
	receive(t, ends[1], "the other way")
}

// An end that nobody has plugged in takes all and keeps nothing.
func TestUnplugged(t *testing.T) {
	c := newCable()
	defer c.Close()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	if err := c.Plug(1, ours); err != nil {
		t.Fatal(err)
	}
	send(t, theirs, "to nobody")
	eventually(t, "it is dropped", func() bool { return c.Count(2).Overflowed == 1 })
}

// A length that no frame has ends the connection.
func TestHugeFrame(t *testing.T) {
	_, ends := cable(t)
	if err := ends[1].SetReadDeadline(time.Now().Add(patience)); err != nil { // a pipe that is closed takes none
		t.Fatal(err)
	}
	if _, err := ends[1].Write(binary.BigEndian.AppendUint32(nil, maxFrame+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := ends[1].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the end", err)
	}
}

package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/memory"
)

func TestRawRound(t *testing.T) {
	address, _ := serve(t, memory.PeerRead|memory.PeerWrite)
	before := runtime.NumGoroutine()
	r := &run{o: quick(address), fillTime: fillTime, left: unlimited}
	if err := r.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		size    int64
		streams int
	}{{1000, 1}, {4096, 2}, {64 << 10, 1}, {1 << 20, 1}} {
		l, err := newLayout(r.memory, tt.size, tt.streams, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, read := range []bool{false, true} {
			s, err := r.rawRound(t.Context(), read, l, 20*time.Millisecond)
			if err != nil {
				t.Fatalf("%+v, read %v: %v", tt, read, err)
			}
			if s.bytes < tt.size || s.bytes%tt.size != 0 || s.elapsed < 20*time.Millisecond || s.self <= 0 || !s.peerKnown {
				t.Errorf("%+v, read %v: %+v", tt, read, s)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	l, err := newLayout(r.memory, 4096, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, stop)
	if _, err := r.rawRound(ctx, false, l, time.Minute); err == nil {
		t.Error("an interrupted round went on")
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
	settled(t, before)
}

// A stranger who connects first gets nothing.
func TestRawStranger(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	stranger, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	near, far, err := connectRaw(t.Context(), ln)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	defer far.Close()
	if far.RemoteAddr().String() != near.LocalAddr().String() {
		t.Errorf("%v is connected with %v", near.LocalAddr(), far.RemoteAddr())
	}
	if n, err := stranger.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the stranger read %d bytes: %v", n, err)
	}
}

// What is sent is what was in the places that the layout says, and it arrives in
// those of the other side.
func TestRawBytes(t *testing.T) {
	const memory = 1 << 20
	l, err := newLayout(memory, 1000, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	from, to := make([]byte, memory), make([]byte, memory)
	pattern(3).fill(from, 0)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return
		}
		w := walk{layout: l, mem: from}
		for sent := int64(0); sent < l.slots; sent += min(rawPieces, rawCall/l.size) {
			if _, err := sendSome(c.(*net.TCPConn), &w); err != nil {
				break
			}
		}
		c.Close()
	}()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n, err := receiveOps(c.(*net.TCPConn), &walk{layout: l, mem: to, far: true})
	if err != nil || n < l.slots*l.size {
		t.Fatalf("%d bytes of %d: %v", n, l.slots*l.size, err)
	}
	for k := range l.slots {
		if wrong, _ := pattern(3).differs(to[l.far(0, k):][:l.size], l.near(0, k)); wrong != 0 {
			t.Fatalf("op %d: %d bytes differ", k, wrong)
		}
	}
}

func TestCopyRound(t *testing.T) {
	const memory = 4 << 20
	from, to := make([]byte, memory), make([]byte, memory)
	pattern(1).fill(from, 0)
	l, err := newLayout(memory, 4096, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	missing := func() string {
		for part := range 2 {
			for k := range l.slots {
				if wrong, _ := pattern(1).differs(to[l.far(part, k):][:l.size], l.near(part, k)); wrong != 0 {
					return fmt.Sprintf("part %d, op %d: %d bytes differ", part, k, wrong)
				}
			}
		}
		return ""
	}
	// A busy machine takes longer for all of it, and one part may be done twice before the other is once.
	for turn := 30 * time.Millisecond; missing() != ""; turn *= 2 {
		s, err := copyRound(t.Context(), to, from, l, turn, func(dst, src []byte) int { return copy(dst, src) })
		if err != nil || s.bytesPerSec() <= 0 {
			t.Fatalf("%+v, %v", s, err)
		}
		if turn > 10*time.Second {
			t.Fatal(missing())
		}
	}
}

func TestProcessCPU(t *testing.T) {
	self := selfCPU()
	if self <= 0 {
		t.Error("this process takes no time")
	}
	if runtime.GOOS != "linux" {
		t.Skip("no /proc outside Linux: the time of other processes is not known")
	}
	now, ok := processCPU(os.Getpid())
	if !ok || now < self-50*time.Millisecond || now > selfCPU()+50*time.Millisecond {
		t.Errorf("by its clock %v, by getrusage %v", now, self)
	}
	if _, ok := processCPU(1 << 30); ok {
		t.Error("a process that does not exist has a clock")
	}
	if _, ok := processCPU(0); ok {
		t.Error("no process has a clock")
	}
}

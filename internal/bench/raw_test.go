package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"
)

// startRawEnd runs the other end in this process.
func startRawEnd(t *testing.T, memory int64) *RawEnd {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ServeRaw(context.Background(), inR, outW) }()
	token := make([]byte, rawTokenBytes)
	copy(token, "the token of this test")
	line, err := json.Marshal(RawConfig{Listen: "127.0.0.1:0", Token: token, Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	go inW.Write(append(line, '\n'))
	text, err := bufio.NewReader(outR).ReadBytes('\n')
	if err != nil {
		t.Fatal(err, <-ended)
	}
	var ready RawReady
	if err := json.Unmarshal(text, &ready); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" && ready.CongestionControl != "cubic" && ready.CongestionControl != "reno" {
		t.Errorf("congestion control %q, want cubic, or reno, which is always allowed", ready.CongestionControl)
	}
	return &RawEnd{Address: netip.MustParseAddrPort(ready.Address), Token: token, PID: os.Getpid(), CongestionControl: ready.CongestionControl,
		Stop: func() error { inW.Close(); return <-ended }}
}

func TestRawRound(t *testing.T) {
	const memory = 4 << 20
	before := runtime.NumGoroutine()
	end := startRawEnd(t, memory)
	mem := make([]byte, memory)
	for _, tt := range []struct {
		size    int64
		streams int
	}{{1000, 1}, {4096, 2}, {64 << 10, 1}, {2 << 20, 1}} {
		l, err := newLayout(memory, tt.size, tt.streams, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, read := range []bool{false, true} {
			s, err := rawRound(t.Context(), end, read, mem, l, 20*time.Millisecond)
			if err != nil {
				t.Fatalf("%+v, read %v: %v", tt, read, err)
			}
			if s.bytes < tt.size || s.bytes%tt.size != 0 || s.elapsed < 20*time.Millisecond || s.self <= 0 {
				t.Errorf("%+v, read %v: %+v", tt, read, s)
			}
			if runtime.GOOS == "linux" && (!s.peerKnown || s.peer <= 0) {
				t.Errorf("%+v: the other end's processor time: %v, %v", tt, s.peer, s.peerKnown)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	l, err := newLayout(memory, 4096, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, stop)
	if _, err := rawRound(ctx, end, false, mem, l, time.Minute); err == nil {
		t.Error("an interrupted round went on")
	}
	if err := end.Stop(); err != nil {
		t.Error(err)
	}
	settled(t, before)
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
		left := l.slots
		w := walk{layout: l, mem: from}
		sendOps(c.(*net.TCPConn), &w, func() bool { left -= min(rawPieces, rawCall/l.size); return left <= 0 })
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

// Requests without the token, or that do not fit the memory, get nothing.
func TestRawRefuses(t *testing.T) {
	end := startRawEnd(t, 1<<20)
	defer end.Stop()
	good := rawHello{Size: 4096, Parts: 1, Memory: 1 << 20}
	for name, change := range map[string]func(*RawEnd, *rawHello){
		"token":  func(e *RawEnd, _ *rawHello) { e.Token = make([]byte, rawTokenBytes) },
		"size":   func(_ *RawEnd, h *rawHello) { h.Size = 2 << 20 },
		"none":   func(_ *RawEnd, h *rawHello) { h.Size = 0 },
		"part":   func(_ *RawEnd, h *rawHello) { h.Part = 1 },
		"parts":  func(_ *RawEnd, h *rawHello) { h.Parts = 1 << 30 },
		"memory": func(_ *RawEnd, h *rawHello) { h.Memory = 2 << 20 },
	} {
		e, h := *end, good
		change(&e, &h)
		if c, err := dialRaw(t.Context(), &e, h); err == nil {
			c.Close()
			t.Errorf("%s: let in", name)
		}
	}
	c, err := dialRaw(t.Context(), end, good)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
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

package faulty_test

import (
	"bytes"
	"errors"
	"io"
	"math/bits"
	"math/rand/v2"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
)

// line is a server that a test reads from, a proxy before it and one client.
type line struct {
	t        *testing.T
	proxy    *faulty.Proxy
	listener net.Listener
	client   *net.TCPConn
	server   *net.TCPConn
}

func newLine(t *testing.T, change func(up, down *faulty.Line)) *line {
	t.Helper()
	before := runtime.NumGoroutine()
	l := &line{t: t}
	var err error
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if l.proxy, err = faulty.Listen("127.0.0.1:0", l.listener.Addr().String(), 1); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		l.proxy.Update(change)
	}
	l.connect()
	t.Cleanup(func() {
		l.client.Close()
		l.server.Close()
		l.listener.Close()
		if err := l.proxy.Close(); err != nil {
			t.Error(err)
		}
		if l.proxy.Conns() != 0 {
			t.Errorf("%d connections are left", l.proxy.Conns())
		}
		for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
			}
		}
	})
	return l
}

func (l *line) connect() {
	l.t.Helper()
	c, err := net.Dial("tcp", l.proxy.Address())
	if err != nil {
		l.t.Fatal(err)
	}
	s, err := l.listener.Accept()
	if err != nil {
		l.t.Fatal(err)
	}
	l.client, l.server = c.(*net.TCPConn), s.(*net.TCPConn)
	for _, c := range []net.Conn{c, s} {
		c.SetDeadline(time.Now().Add(time.Minute))
	}
}

func noise(n int) []byte {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// read gets n bytes from c and says what is wrong with them.
func (l *line) read(c net.Conn, want []byte) {
	l.t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil {
		l.t.Fatalf("read: %v", err)
	}
	if !bytes.Equal(got, want) {
		l.t.Fatal("other bytes arrived")
	}
}

// silent makes sure that nothing arrives for a while.
func (l *line) silent(c net.Conn) {
	l.t.Helper()
	c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ETIMEDOUT) && !isTimeout(err) {
		l.t.Fatalf("something arrived: %d bytes, %v", n, err)
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
}

func (l *line) until(what string, is func() bool) {
	l.t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("not within a minute: %s", what)
		}
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func TestProxyForwards(t *testing.T) {
	l := newLine(t, nil)
	up, down := noise(3<<20), noise(1<<20)
	go l.client.Write(up)
	go l.server.Write(down)
	l.read(l.server, up)
	l.read(l.client, down)
	l.client.CloseWrite()
	if n, err := l.server.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("after the client's end: %d bytes, %v", n, err)
	}
	l.server.Write(down)
	l.read(l.client, down)
}

func TestProxyCut(t *testing.T) {
	l := newLine(t, nil)
	l.client.Write([]byte("x"))
	l.read(l.server, []byte("x"))
	if n := l.proxy.Cut(); n != 1 {
		t.Errorf("cut %d connections", n)
	}
	for _, c := range []net.Conn{l.client, l.server} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after a cut: %v", err)
		}
	}
	l.client.Close()
	l.server.Close()
	l.connect() // the next one works
	l.client.Write([]byte("y"))
	l.read(l.server, []byte("y"))
}

func TestProxyStall(t *testing.T) {
	l := newLine(t, func(up, _ *faulty.Line) { up.Stall = true })
	data := noise(32 << 20) // more than sockets and proxy take
	wrote := make(chan struct{})
	go func() {
		l.client.Write(data)
		close(wrote)
	}()
	l.silent(l.server)
	l.server.Write([]byte("other way"))
	l.read(l.client, []byte("other way"))
	select {
	case <-wrote:
		t.Error("a proxy that stands still takes everything")
	default:
	}
	l.proxy.Update(func(up, _ *faulty.Line) { up.Stall = false })
	l.read(l.server, data)
	<-wrote
}

// What is held arrives even when the sender is gone, in whatever way.
func TestProxyHold(t *testing.T) {
	for _, how := range []string{"closed", "reset"} {
		l := newLine(t, nil)
		l.client.Write([]byte("first"))
		l.read(l.server, []byte("first"))
		l.proxy.Update(func(up, _ *faulty.Line) { up.Hold = true })
		data := noise(16 << 20)
		l.client.Write(data)
		if how == "reset" {
			// RST makes the receiver forget what it has not read.
			l.until("the proxy has all", func() bool { return l.proxy.Taken() == len(data) })
			l.client.SetLinger(0)
		}
		l.client.Close()
		l.silent(l.server)
		l.proxy.Update(func(up, _ *faulty.Line) { up.Hold = false })
		l.read(l.server, data)
		if _, err := l.server.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("%s: the server does not learn that the client is gone: %v", how, err)
		}
	}
}

func TestProxyDelay(t *testing.T) {
	l := newLine(t, func(up, _ *faulty.Line) { up.Delay = 50 * time.Millisecond })
	start := time.Now()
	data := noise(1 << 20)
	go l.client.Write(data)
	l.read(l.server, data)
	if took := time.Since(start); took < 50*time.Millisecond {
		t.Errorf("a delay of 50 ms took %v", took)
	}
}

func TestProxyCorrupts(t *testing.T) {
	const after, every = 100_000, 10_000
	l := newLine(t, func(up, _ *faulty.Line) { up.CorruptEvery, up.CorruptAfter = every, after })
	data := noise(4 << 20)
	go l.client.Write(data)
	got := make([]byte, len(data))
	if _, err := io.ReadFull(l.server, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[:after], data[:after]) {
		t.Error("the first bytes are to be left alone")
	}
	flips := int64(0)
	for i := range got {
		if n := bits.OnesCount8(got[i] ^ data[i]); n == 1 {
			flips++
		} else if n > 1 {
			t.Fatalf("byte %d has %d flipped bits", i, n)
		}
	}
	if flips != l.proxy.Flipped() || flips < 250 || flips > 650 {
		t.Errorf("%d bits differ, %d were flipped, about %d expected", flips, l.proxy.Flipped(), (len(data)-after)/every)
	}
}

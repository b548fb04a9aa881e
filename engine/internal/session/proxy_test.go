package session_test

import (
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy passes bytes on until it is told otherwise.
type proxy struct {
	addr    netip.AddrPort
	to      netip.AddrPort
	swallow atomic.Bool  // bytes of all connections go nowhere
	budget  atomic.Int64 // bytes until each new connection is cut, 0: never
	conns   atomic.Int64 // that were let in

	l    net.Listener
	mu   sync.Mutex
	open map[net.Conn]bool
	sent []byte // what clients sent, where it is recorded
	rec  bool
	wg   sync.WaitGroup
}

func newProxy(t *testing.T, to netip.AddrPort, record bool) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, addr: l.Addr().(*net.TCPAddr).AddrPort(), to: to, open: map[net.Conn]bool{}, rec: record}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.conns.Add(1)
			p.wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(p.close)
	return p
}

func (p *proxy) serve(c net.Conn) {
	up, err := net.Dial("tcp", p.to.String())
	if err != nil {
		_ = c.Close()
		return
	}
	p.mu.Lock()
	p.open[c], p.open[up] = true, true
	p.mu.Unlock()
	var left atomic.Int64
	left.Store(p.budget.Load())
	limited := left.Load() > 0
	both := func() { _ = c.Close(); _ = up.Close() }
	pass := func(dst, src net.Conn, record bool) {
		defer both()
		b := make([]byte, 32<<10)
		for {
			n, err := src.Read(b)
			if p.swallow.Load() {
				if err != nil {
					return
				}
				continue
			}
			if record {
				p.mu.Lock()
				p.sent = append(p.sent, b[:n]...)
				p.mu.Unlock()
			}
			if limited {
				if over := left.Add(-int64(n)); over < 0 {
					n = max(0, n+int(over)) // cut in the middle of a message
					err = io.EOF
				}
			}
			if _, werr := dst.Write(b[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	p.wg.Go(func() { pass(up, c, p.rec) })
	pass(c, up, false)
	p.mu.Lock()
	delete(p.open, c)
	delete(p.open, up)
	p.mu.Unlock()
}

// cut resets all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		if rand.IntN(2) == 0 {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		_ = c.Close()
	}
}

func (p *proxy) close() {
	_ = p.l.Close()
	p.cut()
	p.wg.Wait()
}

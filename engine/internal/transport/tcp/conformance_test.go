package tcp

import (
	"net"
	"sync"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
)

// middle forwards connections, and can hold back what goes to the server.
type middle struct {
	l      net.Listener
	server string
	wg     sync.WaitGroup

	mu      sync.Mutex
	change  sync.Cond
	stalled bool
	over    bool
	held    map[string]bool // by the client's address
	conns   []net.Conn
}

func newMiddle(t testing.TB, server string) *middle {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &middle{l: l, server: server, held: map[string]bool{}}
	m.change.L = &m.mu
	m.wg.Go(m.accept)
	t.Cleanup(m.close)
	return m
}

func (m *middle) close() {
	m.mu.Lock()
	m.over = true
	m.l.Close()
	for _, c := range m.conns {
		c.Close()
	}
	m.change.Broadcast()
	m.mu.Unlock()
	m.wg.Wait()
}

func (m *middle) accept() {
	for {
		client, err := m.l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", m.server)
		if err != nil {
			client.Close()
			continue
		}
		m.mu.Lock()
		m.conns = append(m.conns, client, server)
		if m.over {
			client.Close()
			server.Close()
		}
		m.mu.Unlock()
		m.wg.Go(func() { m.up(client, server) })
		m.wg.Go(func() {
			forward(client, server)
			client.Close()
		})
	}
}

func forward(to, from net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if _, werr := to.Write(b[:n]); werr != nil || err != nil {
			return
		}
	}
}

// up forwards to the server. What is held back is read all the same: the client's
// end must not take it away.
func (m *middle) up(client, server net.Conn) {
	defer server.Close()
	name := client.RemoteAddr().String()
	var kept []byte
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		m.mu.Lock()
		for m.stalled && !m.over {
			m.change.Wait()
		}
		kept = append(kept, b[:n]...)
		for err != nil && m.held[name] && !m.over {
			m.change.Wait()
		}
		held := m.held[name]
		m.mu.Unlock()
		if !held {
			if _, werr := server.Write(kept); werr != nil {
				return
			}
			kept = kept[:0]
		}
		if err != nil {
			return
		}
	}
}

func (m *middle) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	m.change.Broadcast()
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{New: suiteEnds(transport.Open)})
}

func TestConformanceOverPayload(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{New: suiteEnds(transport.Payload), Requests: 300, Cycles: 20})
}

func TestConformanceOverTLS(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{New: suiteEnds(transport.Sealed), Requests: 300, Cycles: 20})
}

// suiteEnds are two ends with a middle between them, which the suite closes.
func suiteEnds(level transport.Protection) func(t testing.TB) *transporttest.Ends {
	return func(t testing.TB) *transporttest.Ends { return protectedEnds(t, level) }
}

func protectedEnds(t testing.TB, level transport.Protection) *transporttest.Ends {
	a, regions := bare(t, level)
	a.dial = plainDial
	b := suiteEnd(t)
	m := newMiddle(t, b.Endpoint.Address)
	b.Endpoint.Address = m.l.Addr().String()
	return &transporttest.Ends{
		Active:  transporttest.End{Transport: a, Regions: regions},
		Passive: b,
		Stall:   func(on bool) { m.set(func() { m.stalled = on }) },
		Hold: func(c transport.Conn) func() {
			if w, ok := c.(interface{ Unwrap() transport.Conn }); ok {
				c = w.Unwrap()
			}
			name := c.(*conn).link.conn.LocalAddr().String()
			m.set(func() { m.held[name] = true })
			return func() { m.set(func() { m.held[name] = false }) }
		},
		Restart: suiteEnd,
	}
}

// suiteEnd is a passive end that the suite closes.
func suiteEnd(t testing.TB) transporttest.End {
	b, regions := bare(t, transport.Open)
	address := (&side{Transport: b}).listen(t)
	return transporttest.End{Transport: b, Regions: regions, Endpoint: transport.Endpoint{Transport: "tcp", Address: address}}
}

// bare is a transport that the suite closes.
func bare(t testing.TB, level transport.Protection) (*Transport, *memory.Table) {
	t.Helper()
	regions := memory.NewTable(64)
	x, err := New(Options{Regions: regions, Protection: level})
	if err != nil {
		t.Fatal(err)
	}
	return x, regions
}

var (
	_ transport.Transport  = (*Transport)(nil)
	_ transport.DataServer = (*Transport)(nil)
	_ transport.Conn       = (*conn)(nil)
)

package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/topoctl/topoctl/engine/internal/transport/fake"
)

// Network connects engines of this process, in place of the host's network: their sessions, and their bytes over the
// transports that it gives. Nothing of it waits for the system, so that a test in a bubble of testing/synctest has a
// clock that runs as fast as the test does. A test decides what peers meet: Silence, Resume, Kill.
type Network struct {
	fake *fake.Network

	mu        sync.Mutex
	ports     uint16 // the last one that was given out
	listeners map[netip.AddrPort]*listener
	links     map[*link]bool
	silenced  map[string]bool
	resumed   chan struct{} // closed, and made anew, when one is not silenced any more, or a link has ended
}

// NewNetwork makes a network of its own.
func NewNetwork() *Network {
	return &Network{
		fake: fake.NewNetwork(), ports: 1 << 14, listeners: map[netip.AddrPort]*listener{}, links: map[*link]bool{}, silenced: map[string]bool{},
		resumed: make(chan struct{}),
	}
}

// Silence lets nothing from or to the engine of that name arrive until Resume, as if its process were stopped.
// Addresses still take connections.
func (n *Network) Silence(engine string) { n.silence(engine, true) }

// Resume lets go on what Silence held.
func (n *Network) Resume(engine string) { n.silence(engine, false) }

func (n *Network) silence(engine string, on bool) {
	n.mu.Lock()
	n.silenced[engine] = on
	n.wake()
	n.mu.Unlock()
	for _, c := range n.fake.Conns(engine) {
		c.Stall(on)
	}
}

// Kill ends all connections of the engine of that name, and its addresses refuse new ones, as if its process had been
// killed. The engine is to be closed afterwards; another one may take its name and its addresses.
func (n *Network) Kill(engine string) {
	n.mu.Lock()
	for at, l := range n.listeners {
		if l.engine == engine {
			delete(n.listeners, at)
			close(l.over)
		}
	}
	for l := range n.links {
		if l.between[0] == engine || l.between[1] == engine {
			l.close()
		}
	}
	delete(n.silenced, engine)
	n.wake()
	n.mu.Unlock()
	for _, c := range n.fake.Conns(engine) {
		c.Kill(errors.New("the peer was killed"))
	}
}

// wake has links look again. mu is held.
func (n *Network) wake() {
	close(n.resumed)
	n.resumed = make(chan struct{})
}

// sessions are what engines see of a network.
type sessions struct{ *Network }

// Listen takes any address of the host, with a port of this network where it asks for none.
func (n sessions) Listen(engine, address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen %q: want IP:port on this network", address)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Port() == 0 {
		n.ports++
		at = netip.AddrPortFrom(at.Addr(), n.ports)
	}
	if n.listeners[at] != nil {
		return nil, fmt.Errorf("listen %s: %w", at, syscall.EADDRINUSE)
	}
	l := &listener{network: n.Network, engine: engine, at: at, dialled: make(chan net.Conn), over: make(chan struct{})}
	n.listeners[at] = l
	return l, nil
}

// Dial connects to who listens there.
func (n sessions) Dial(ctx context.Context, engine string, to netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[to]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: %w", to, syscall.ECONNREFUSED)
	}
	near, a := net.Pipe()
	b, far := net.Pipe()
	x := &link{network: n.Network, between: [2]string{engine, l.engine}, ends: [2]net.Conn{a, b}}
	select {
	case l.dialled <- far:
	case <-l.over:
		return nil, fmt.Errorf("dial %s: %w", to, syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	n.links[x] = true
	n.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { x.carry(b, a) })
	both.Go(func() { x.carry(a, b) })
	go func() {
		both.Wait()
		n.mu.Lock()
		delete(n.links, x)
		n.mu.Unlock()
	}()
	return conn{near, net.TCPAddrFromAddrPort(netip.AddrPortFrom(to.Addr(), 0)), net.TCPAddrFromAddrPort(to), new(atomic.Uint64)}, nil
}

// listener is an engine's address.
type listener struct {
	network *Network
	engine  string
	at      netip.AddrPort
	dialled chan net.Conn
	over    chan struct{} // closed once the address is no one's any more
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialled:
		return conn{c, l.Addr(), net.TCPAddrFromAddrPort(netip.AddrPortFrom(l.at.Addr(), 0)), new(atomic.Uint64)}, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.network.listeners[l.at] == l {
		delete(l.network.listeners, l.at)
		close(l.over)
	}
	return nil
}

// conn has the addresses that a socket would have. What is written is taken at once.
type conn struct {
	net.Conn
	local, remote net.Addr
	written       *atomic.Uint64
}

func (c conn) Write(b []byte) (int, error) {
	k, err := c.Conn.Write(b)
	c.written.Add(uint64(k))
	return k, err
}

func (c conn) Delivered() (bytes uint64, all bool) { return c.written.Load(), true }

func (c conn) LocalAddr() net.Addr  { return c.local }
func (c conn) RemoteAddr() net.Addr { return c.remote }

// link is a connection of two engines.
type link struct {
	network *Network
	between [2]string
	ends    [2]net.Conn
	over    bool // of network.mu
}

// close ends both sides. mu is held.
func (l *link) close() {
	if !l.over {
		l.over = true
		l.network.wake()
	}
	for _, c := range l.ends {
		_ = c.Close()
	}
}

// carry moves bytes one way until either end is closed. What is written while an end is silenced waits here, as it would
// in the buffers of a host.
func (l *link) carry(to io.Writer, from io.Reader) {
	buffered := make(chan []byte, 1<<10)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(buffered)
		for {
			b := make([]byte, 4<<10)
			k, err := from.Read(b)
			if err != nil {
				return
			}
			buffered <- b[:k]
		}
	})
	for b := range buffered {
		if !l.wait() {
			break
		}
		if _, err := to.Write(b); err != nil {
			break
		}
	}
	l.wait() // an end is no sooner heard of than what was written before it
	l.network.mu.Lock()
	l.close()
	l.network.mu.Unlock()
	for range buffered { // until its reader has ended
	}
	reading.Wait()
}

// wait waits until neither end is silenced; false: the connection is over.
func (l *link) wait() bool {
	for {
		l.network.mu.Lock()
		silenced, resumed, over := l.network.silenced[l.between[0]] || l.network.silenced[l.between[1]], l.network.resumed, l.over
		l.network.mu.Unlock()
		if over || !silenced {
			return !over
		}
		<-resumed
	}
}

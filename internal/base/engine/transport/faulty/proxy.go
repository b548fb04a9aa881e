package faulty

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Line is what a proxy does to the bytes of one direction. The zero value forwards
// them as they come.
type Line struct {
	Delay       time.Duration
	BytesPerSec int64 // 0: no limit
	// Stall forwards nothing and takes little: the sender feels it.
	Stall bool
	// Hold takes everything and forwards nothing, and hides that the sender is gone:
	// what was held arrives when Hold ends, whatever happened to the sender.
	Hold bool
	// CorruptEvery flips one bit in about so many bytes, 0 none, but not in the first
	// CorruptAfter bytes of a connection.
	CorruptEvery, CorruptAfter int64
	// CorruptAt flips the lowest bit of the byte at this place of each connection, 0
	// none.
	CorruptAt int64
}

// Proxy forwards TCP connections. Its methods may be used by many goroutines.
type Proxy struct {
	listener net.Listener
	seed     uint64
	running  sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond
	target   string
	up, down Line
	refuse   bool
	closed   bool
	pipes    map[*pipe]bool
	accepted uint64
	flipped  int64
	carried  int64
}

// Listen starts a proxy on an address ("127.0.0.1:0") that forwards to a target.
// What it does at random hangs on the seed and on how the bytes come in pieces.
func Listen(address, target string, seed uint64) (*Proxy, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("faulty: proxy: %w", err)
	}
	p := &Proxy{listener: l, target: target, seed: seed, pipes: map[*pipe]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	return p, nil
}

// Address is where it listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Update changes what happens in each direction, from now on: up is from the side
// that dials.
func (p *Proxy) Update(change func(up, down *Line)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.up, &p.down)
	p.changed.Broadcast()
}

// SetTarget forwards new connections to another address.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Refuse resets new connections as soon as they are accepted, or no more.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Cut resets all connections on both sides and drops what was on the way. It says
// how many there were.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pipes {
		c.cut()
	}
	p.changed.Broadcast()
	return len(p.pipes)
}

// Conns is how many connections are forwarded now, those whose sender is gone and
// whose bytes are held included.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pipes)
}

// Flipped is how many bits were flipped so far.
func (p *Proxy) Flipped() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flipped
}

// Carried is how many bytes were forwarded so far, both directions together.
func (p *Proxy) Carried() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.carried
}

// Close cuts all connections and waits for all goroutines.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.pipes {
		c.cut()
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.refuse || p.closed
		target := p.target
		p.accepted++
		n := p.accepted
		p.mu.Unlock()
		if refuse {
			reset(c)
			continue
		}
		p.running.Go(func() { p.forward(c.(*net.TCPConn), target, n) })
	}
}

// forward runs one connection.
func (p *Proxy) forward(client *net.TCPConn, target string, n uint64) {
	d := net.Dialer{Timeout: 10 * time.Second}
	s, err := d.Dial("tcp", target)
	if err != nil {
		reset(client)
		return
	}
	c := &pipe{client: client, server: s.(*net.TCPConn)}
	c.up = &flow{proxy: p, pipe: c, from: c.client, to: c.server, line: &p.up, rng: rand.New(rand.NewPCG(p.seed, 2*n))}
	c.down = &flow{proxy: p, pipe: c, from: c.server, to: c.client, line: &p.down, rng: rand.New(rand.NewPCG(p.seed, 2*n+1))}
	p.mu.Lock()
	if p.closed {
		c.cut()
	}
	p.pipes[c] = true
	p.mu.Unlock()
	var flows sync.WaitGroup
	for _, f := range []*flow{c.up, c.down} {
		flows.Go(f.read)
		flows.Go(f.write)
	}
	flows.Wait()
	_ = client.Close()
	_ = s.Close()
	p.mu.Lock()
	delete(p.pipes, c)
	p.mu.Unlock()
}

// pipe is one connection through the proxy.
type pipe struct {
	client, server *net.TCPConn
	up, down       *flow
	dead           bool
}

// cut resets both sides, in the proxy's lock.
func (c *pipe) cut() {
	c.dead = true
	reset(c.client)
	reset(c.server)
}

// reset closes a connection with RST. It is closed either way.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

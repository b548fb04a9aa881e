package faulty

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Line is what a proxy does to the bytes of one direction. The zero value forwards
// them as they come.
type Line struct {
	Delay time.Duration
	// Stall forwards nothing and takes little: the sender feels it.
	Stall bool
	// Hold takes everything and forwards nothing, and hides that the sender is gone:
	// what was held arrives when Hold ends, whatever happened to the sender.
	Hold bool
	// CorruptEvery flips one bit in about that many bytes, 0 none, but not in the first
	// CorruptAfter bytes of a connection.
	CorruptEvery, CorruptAfter int64
	// CutAfter cuts a connection when so many bytes of it have gone this way, 0 never.
	CutAfter int64
	// Change is given what has come, from a place of the connection on, and says what goes on. It
	// is that of connections from now on.
	Change func(at int64, b []byte) []byte
}

// Proxy forwards TCP connections. Its methods may be used by many goroutines.
type Proxy struct {
	listener net.Listener
	target   string
	seed     uint64
	running  sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond
	up, down Line
	closed   bool
	pipes    map[*pipe]bool
	accepted uint64
	flipped  int64
}

// Listen starts a proxy on an address ("127.0.0.1:0") that forwards to a target.
// What it does at random depends on the seed and on how the bytes come in pieces.
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

// Accepted is how many connections there were so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.accepted)
}

// Flipped is how many bits were flipped so far.
func (p *Proxy) Flipped() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flipped
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
		p.accepted++
		n, closed, target := p.accepted, p.closed, p.target
		p.mu.Unlock()
		if closed {
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
	c.up.change, c.down.change = p.up.Change, p.down.Change
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

const (
	chunkBytes = 32 << 10
	// A flow keeps so much on the way, or as much as comes where bytes are held.
	flowBytes = 4 << 20
)

// flow is one direction of a connection: one goroutine reads, one writes. Its
// fields are in the proxy's lock.
type flow struct {
	proxy    *Proxy
	pipe     *pipe
	from, to *net.TCPConn
	line     *Line
	rng      *rand.Rand

	chunks []chunk
	bytes  int
	ended  error // of the sender: io.EOF or worse; nothing comes any more
	hidden bool  // the sender's end: it happened while bytes were held
	failed bool  // the receiver is gone; nothing goes any more
	place  int64 // of the next byte in the connection
	wrote  int64 // bytes that the receiver was given
	next   int64 // place of the next bit that flips, 0 not drawn
	change func(at int64, b []byte) []byte
}

type chunk struct {
	bytes []byte
	at    time.Time
}

// read takes what the sender sends.
func (f *flow) read() {
	p := f.proxy
	for {
		p.mu.Lock()
		for f.bytes >= flowBytes && !f.line.Hold && !f.pipe.dead && !f.failed {
			p.changed.Wait()
		}
		stop := f.pipe.dead || f.failed
		p.mu.Unlock()
		if stop {
			return
		}
		buffer := make([]byte, chunkBytes)
		n, err := f.from.Read(buffer)
		p.mu.Lock()
		if n > 0 {
			f.chunks = append(f.chunks, chunk{buffer[:n], time.Now()})
			f.bytes += n
		}
		if err != nil {
			f.ended, f.hidden = err, f.line.Hold
		}
		p.changed.Broadcast()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// write gives it to the receiver when its time has come.
func (f *flow) write() {
	p := f.proxy
	for {
		b, ended := f.take()
		if ended != nil {
			f.end(ended)
			return
		}
		_, err := f.to.Write(b)
		if f.spent(len(b)) {
			return
		}
		if err != nil {
			p.mu.Lock()
			f.failed, f.chunks = true, nil
			p.changed.Broadcast()
			p.mu.Unlock()
			// The sender learns it, unless there is nobody who listens: then what the
			// other direction still holds goes on.
			if f == f.pipe.up {
				reset(f.from)
			}
			return
		}
	}
}

// take waits for bytes that may go on, or for the end of the direction.
func (f *flow) take() (b []byte, ended error) {
	p := f.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if f.pipe.dead {
			return nil, net.ErrClosed
		}
		if f.line.Stall || f.line.Hold {
			p.changed.Wait()
			continue
		}
		if len(f.chunks) == 0 {
			if f.ended != nil {
				return nil, f.ended
			}
			p.changed.Wait()
			continue
		}
		wait := time.Until(f.chunks[0].at.Add(f.line.Delay))
		if wait <= 0 {
			return f.pop(), nil
		}
		timer := time.AfterFunc(wait, func() {
			p.mu.Lock() // else it may come before Wait listens
			defer p.mu.Unlock()
			p.changed.Broadcast()
		})
		p.changed.Wait()
		timer.Stop()
	}
}

// pop takes the first chunk, in the lock, and does to it what the line does.
func (f *flow) pop() []byte {
	b := f.chunks[0].bytes
	f.chunks = f.chunks[1:]
	f.bytes -= len(b)
	f.proxy.changed.Broadcast()
	f.corrupt(b)
	at := f.place
	f.place += int64(len(b))
	if f.change != nil {
		b = f.change(at, b)
	}
	if most := f.line.CutAfter; most > 0 {
		b = b[:min(int64(len(b)), max(most-f.wrote, 0))]
	}
	return b
}

// spent cuts the connection where the line is to be cut after what was written.
func (f *flow) spent(wrote int) bool {
	p := f.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	f.wrote += int64(wrote)
	if f.line.CutAfter == 0 || f.wrote < f.line.CutAfter {
		return false
	}
	f.pipe.cut()
	p.changed.Broadcast()
	return true
}

// corrupt flips the bits whose place is in these bytes.
func (f *flow) corrupt(b []byte) {
	end := f.place + int64(len(b))
	every := f.line.CorruptEvery
	if every <= 0 {
		f.next = 0
		return
	}
	for {
		if f.next == 0 {
			from := max(f.place, f.line.CorruptAfter)
			f.next = from + 1 + int64(f.rng.ExpFloat64()*float64(every))
		}
		if f.next >= end {
			return
		}
		if f.next >= f.place {
			b[f.next-f.place] ^= 1 << f.rng.IntN(8)
			f.proxy.flipped++
		}
		f.next += 1 + int64(f.rng.ExpFloat64()*float64(every))
	}
}

// end hands the sender's end on, when all its bytes have gone.
func (f *flow) end(ended error) {
	// A reset would make the receiver forget bytes that it has not read.
	f.proxy.mu.Lock()
	hidden := f.hidden
	f.proxy.mu.Unlock()
	if errors.Is(ended, io.EOF) || hidden {
		_ = f.to.CloseWrite()
		return
	}
	// The sender was reset, and so is the receiver. The other direction ends by that.
	reset(f.to)
}

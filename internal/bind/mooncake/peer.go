package mooncake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// Op is a range of a transfer: Length bytes at address Local here and at Remote at the peer.
type Op struct{ Local, Remote, Length uint64 }

// Peer is a segment that this node has opened.
type Peer struct {
	node   *Node
	name   string
	ctx    context.Context // ends with the peer, and with the node
	cancel context.CancelFunc

	mu     sync.Mutex
	last   *found // what it said latest; nil: ask
	idle   []*lane
	lanes  int           // open, idle ones included
	room   chan struct{} // closed when a lane was given back
	closed bool
}

// Open finds a segment by its name: host:port with P2P, else what it calls itself.
func (n *Node) Open(ctx context.Context, name string) (*Peer, error) {
	p := &Peer{node: n, name: name, room: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(n.ctx)
	ctx, cancel := bounded(ctx, p.ctx)
	defer cancel()
	if _, err := p.find(ctx, true); err != nil {
		p.cancel()
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		p.cancel()
		return nil, p.errorf("%w", ErrClosed)
	}
	n.peers[p] = true
	return p, nil
}

func (p *Peer) errorf(format string, args ...any) error {
	return errorf("peer %.80q: %w", p.name, fmt.Errorf(format, args...))
}

// find gives what is known of the peer, or asks.
func (p *Peer) find(ctx context.Context, again bool) (*found, error) {
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	if last != nil && !again {
		return last, nil
	}
	f, err := p.node.directory.find(ctx, p.name)
	if err != nil {
		p.forget()
		return nil, p.errorf("%w", err)
	}
	p.mu.Lock()
	p.last = f
	p.mu.Unlock()
	return f, nil
}

// forget has the peer asked again when it is used next.
func (p *Peer) forget() {
	p.mu.Lock()
	p.last = nil
	p.mu.Unlock()
}

// Engine says whether a topoctl engine is there, which speaks its own protocol at address.
func (p *Peer) Engine(ctx context.Context) (name, address string, ok bool, err error) {
	ctx, cancel := bounded(ctx, p.ctx)
	defer cancel()
	f, err := p.find(ctx, false)
	if err != nil || f.Topoctl == nil {
		return "", "", false, err
	}
	return f.Topoctl.Name, f.address, true, nil
}

// Ranges asks the peer what it offers now, in the order of addresses.
func (p *Peer) Ranges(ctx context.Context) ([]Range, error) {
	ctx, cancel := bounded(ctx, p.ctx)
	defer cancel()
	f, err := p.find(ctx, true)
	if err != nil {
		return nil, err
	}
	return f.ranges(), nil
}

// Probe asks whether the peer is alive.
func (p *Peer) Probe(ctx context.Context) error {
	var answer probeAnswer
	err := p.call(ctx, frameProbe, struct{}{}, &answer)
	if errors.Is(err, ErrMalformed) && p.node.directory.p2p() {
		_, err = p.Ranges(ctx) // peers before 2026 know no probes
		return err
	}
	if err == nil && answer.Status != notifyTaken {
		err = p.errorf("%w: it says %.40q", ErrRefused, answer.Status)
	}
	return err
}

// Notify sends a message, which is text in this protocol, under the node's name. A JSON object with
// name and notify_msg is sent as these, so that a caller can choose the name.
func (p *Peer) Notify(ctx context.Context, message string) error {
	if !utf8.ValidString(message) {
		return p.errorf("a notification that is not UTF-8: %w", ErrRefused)
	}
	request := notifyRequest{p.node.o.Name, message}
	var given struct {
		Name    *string `json:"name"`
		Message *string `json:"notify_msg"`
	}
	if parse([]byte(message), &smallLimits, &given) == nil && given.Name != nil && given.Message != nil {
		request = notifyRequest{*given.Name, *given.Message}
	}
	var answer notifyRequest
	err := p.call(ctx, frameNotify, request, &answer)
	if err == nil && answer.Message != notifyTaken {
		err = p.errorf("notification: %w", ErrRefused)
	}
	return err
}

// call asks the peer's handshake port. Where it is not there, it may be elsewhere by now.
func (p *Peer) call(ctx context.Context, kind frameType, request, answer any) error {
	ctx, cancel := bounded(ctx, p.ctx)
	defer cancel()
	f, err := p.find(ctx, false)
	if err != nil {
		return err
	}
	body, err := exchange(ctx, f.address, kind, encode(request), maxRequest)
	if err == nil {
		err = parse(body, &smallLimits, answer)
	}
	if err != nil {
		p.forget()
		return p.errorf("%w", err)
	}
	return nil
}

// Close closes the connections to the peer; calls and transfers that run fail, and end soon.
func (p *Peer) Close() {
	p.cancel()
	p.node.mu.Lock()
	delete(p.node.peers, p)
	p.node.mu.Unlock()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.dropIdle()
}

const (
	pieceBytes = 4 << 20 // that one lane carries at once
	laneBytes  = 1 << 20 // of a transfer for each lane that it uses
	tries      = 3       // without getting on
	tryPause   = 20 * time.Millisecond
)

// Transfer writes all ops to the peer, or reads them from it, and returns when the peer has
// confirmed each. When it returns, with an error or without, nothing of it touches memory of this
// process any more. A WRITE whose error wraps ErrUnconfirmed may still land at the peer, at no time
// that could be known: this protocol has no way to take it back.
func (p *Peer) Transfer(ctx context.Context, write bool, ops []Op) error {
	if !p.node.begin() {
		return p.errorf("%w", ErrClosed)
	}
	defer p.node.tasks.Done()
	ctx, cancel := bounded(ctx, p.ctx)
	defer cancel()
	for _, op := range ops {
		if op.Length == 0 {
			continue
		}
		if err := p.node.o.Own.Check(Range{op.Local, op.Length}, !write); err != nil {
			return p.errorf("%w", err)
		}
	}
	var err error
	again := false
	for left, try := ops, 0; try < tries; try++ {
		var now []Op
		if now, err = p.round(ctx, write, left, again); err == nil {
			return nil
		}
		if !errors.Is(err, errLost) || errors.Is(err, ErrUnconfirmed) || ctx.Err() != nil {
			break
		}
		if size(now) < size(left) {
			try = 0
		}
		left, again = now, true
		p.dropIdle() // they are as dead as the one that was tried
		select {
		case <-ctx.Done():
		case <-time.After(tryPause):
		}
	}
	p.forget()
	return p.errorf("%w", err)
}

func size(ops []Op) (n uint64) {
	for _, op := range ops {
		n += op.Length
	}
	return n
}

// round carries ops, and gives those that are left. again says that what is known of the peer is
// not to be believed.
func (p *Peer) round(ctx context.Context, write bool, ops []Op, again bool) (left []Op, err error) {
	known, err := p.find(ctx, again)
	if err != nil {
		return ops, err
	}
	pieces, err := cut(ops, known.ranges())
	if err != nil && !again { // it may have registered more since
		if known, err = p.find(ctx, true); err != nil {
			return ops, err
		}
		pieces, err = cut(ops, known.ranges())
	}
	if err != nil || len(pieces) == 0 {
		return ops, err
	}
	b := &batch{write: write, v2: known.ProtoVersion >= 2, waiting: pieces}
	carry := func(must bool) {
		for b.more() {
			l, err := p.lane(ctx, known, must)
			if err != nil {
				if must {
					b.fail(err, nil)
				}
				return
			}
			p.giveBack(l, l.run(ctx, p.node.o.Own, b))
		}
	}
	var others sync.WaitGroup
	for range min(uint64(len(pieces)), size(pieces)/laneBytes, uint64(p.node.o.Limits.Lanes)/2) {
		others.Go(func() { carry(false) })
	}
	carry(true)
	others.Wait()
	return b.result()
}

// cut makes pieces of ops: each lies in one range of the peer and is no longer than pieceBytes. Ops
// that follow one another on both sides are one.
func cut(ops []Op, ranges []Range) ([]Op, error) {
	var out []Op
	for _, op := range ops {
		for op.Length > 0 {
			i, ok := slices.BinarySearchFunc(ranges, op.Remote, func(r Range, at uint64) int { return cmp.Compare(r.Address, at) })
			if !ok {
				i--
			}
			if i < 0 || op.Remote-ranges[i].Address >= ranges[i].Length {
				return nil, fmt.Errorf("%w: %d bytes at %#x", ErrNoRange, op.Length, op.Remote)
			}
			room := ranges[i].Length - (op.Remote - ranges[i].Address)
			if n := len(out); n > 0 && out[n-1].Local+out[n-1].Length == op.Local && out[n-1].Remote+out[n-1].Length == op.Remote &&
				out[n-1].Remote >= ranges[i].Address && out[n-1].Length < pieceBytes {
				k := min(op.Length, room, pieceBytes-out[n-1].Length)
				out[n-1].Length += k
				op = op.after(k)
				continue
			}
			k := min(op.Length, room, pieceBytes)
			out = append(out, Op{op.Local, op.Remote, k})
			op = op.after(k)
		}
	}
	return out, nil
}

// after is an op without its first k bytes.
func (op Op) after(k uint64) Op { return Op{op.Local + k, op.Remote + k, op.Length - k} }

// lane gives a connection to the peer that nothing else uses: an idle one, or a new one, or, with
// wait, the next that another transfer gives back.
func (p *Peer) lane(ctx context.Context, f *found, wait bool) (*lane, error) {
	host, _, err := net.SplitHostPort(f.address)
	if err != nil {
		return nil, fmt.Errorf("%w: handshake address %.80q", ErrMalformed, f.address)
	}
	address := net.JoinHostPort(host, strconv.Itoa(f.DataPort))
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, ErrClosed
		}
		for len(p.idle) > 0 {
			l := p.idle[len(p.idle)-1]
			p.idle = p.idle[:len(p.idle)-1]
			if l.address == address && time.Since(l.since) < idleTime {
				p.mu.Unlock()
				return l, nil
			}
			p.lanes--
			_ = l.conn.Close()
		}
		if p.lanes < p.node.o.Limits.Lanes {
			p.lanes++
			p.mu.Unlock()
			d := net.Dialer{Timeout: dialTimeout}
			c, err := d.DialContext(ctx, "tcp", address)
			if err != nil {
				p.freed()
				if cause := context.Cause(ctx); cause != nil {
					return nil, cause
				}
				return nil, fmt.Errorf("%w: %w: %w", errLost, ErrNoPeer, err)
			}
			return newLane(c, address), nil
		}
		room := p.room
		p.mu.Unlock()
		if !wait {
			return nil, ErrNoPeer
		}
		select {
		case <-room:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// freed says that there is one lane less.
func (p *Peer) freed() {
	p.mu.Lock()
	p.lanes--
	p.wake()
	p.mu.Unlock()
}

// wake has the transfers that wait for a lane look again. The mutex is held.
func (p *Peer) wake() {
	close(p.room)
	p.room = make(chan struct{})
}

// giveBack takes a lane that its user has done with; one that failed is closed.
func (p *Peer) giveBack(l *lane, good bool) {
	p.mu.Lock()
	good = good && !p.closed
	if good {
		l.since = time.Now()
		p.idle = append(p.idle, l)
		p.wake()
	}
	p.mu.Unlock()
	if !good {
		_ = l.conn.Close()
		p.freed()
	}
}

func (p *Peer) dropIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.idle {
		_ = l.conn.Close()
	}
	p.lanes -= len(p.idle)
	p.idle = nil
	p.wake()
}

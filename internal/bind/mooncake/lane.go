package mooncake

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// errLost: the peer has closed the connection, so that nothing of it can land any more, or was not
// reached. What was not confirmed is sent again.
var errLost = errors.New("the connection was lost")

const (
	window   = 32 // requests on a lane that have no answer yet
	idleTime = time.Minute
)

// batch is what lanes take pieces of.
type batch struct {
	write, v2 bool

	mu          sync.Mutex
	waiting     []Op
	lost        []Op // that were in flight when their connection was lost
	err         error
	lostErr     error
	unconfirmed bool
}

func (b *batch) take() (Op, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil || len(b.waiting) == 0 {
		return Op{}, false
	}
	op := b.waiting[0]
	b.waiting = b.waiting[1:]
	return op, true
}

// more says whether there is something that a lane could do.
func (b *batch) more() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == nil && b.lostErr == nil && len(b.waiting) > 0
}

// fail ends the batch, or, where the connection was lost, leaves the ops that were in flight to
// another.
func (b *batch) fail(err error, inFlight []Op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(err, errLost) && (b.v2 || !b.write) {
		b.lost, b.lostErr = append(b.lost, inFlight...), err
		return
	}
	// After a refusal, the peer has closed the connection and reads no more of it.
	b.unconfirmed = b.unconfirmed || b.write && len(inFlight) > 0 && !errors.Is(err, ErrNoRange)
	if b.err == nil {
		b.err = err
	}
}

// result is what is left, and why.
func (b *batch) result() ([]Op, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := slices.Concat(b.lost, b.waiting)
	switch {
	case b.unconfirmed:
		return left, fmt.Errorf("%w: %w", ErrUnconfirmed, b.err)
	case b.err != nil:
		return left, b.err
	case len(left) > 0:
		return left, b.lostErr
	}
	return nil, nil
}

// lane is a data connection to a peer. One transfer uses it at a time.
type lane struct {
	address string
	conn    net.Conn
	r       *bufio.Reader
	since   time.Time // idle
}

func newLane(c net.Conn, address string) *lane {
	return &lane{address: address, conn: c, r: bufio.NewReaderSize(c, 64<<10)}
}

// run carries pieces of the batch until none is left, and says whether the lane can be used again.
// Requests are sent while answers to earlier ones come in: peers answer in order.
func (l *lane) run(ctx context.Context, m Memory, b *batch) (again bool) {
	if err := l.conn.SetDeadline(time.Time{}); err != nil {
		b.fail(lostOr(err), nil)
		return false
	}
	stop := context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() {
			again = false // the deadline is in the past, or will be
		}
	}()
	sent := make(chan Op, window)
	var sendErr error
	var sender sync.WaitGroup
	sender.Go(func() {
		defer close(sent)
		sendErr = l.send(m, b, sent)
		var refused *memoryError
		switch {
		case sendErr == nil || ctx.Err() != nil:
		case errors.As(sendErr, &refused):
			_ = l.conn.SetReadDeadline(time.Unix(1, 0)) // the peer waits for bytes that do not come
		default:
			_ = l.conn.SetReadDeadline(time.Now().Add(lingerTime)) // for what the peer has said
		}
	})
	var err error
	var inFlight []Op
	for op := range sent {
		if err == nil {
			if err = l.await(m, b, op); err != nil {
				_ = l.conn.SetWriteDeadline(time.Unix(1, 0))
			}
		}
		if err != nil {
			inFlight = append(inFlight, op)
		}
	}
	sender.Wait()
	if err == nil {
		err = sendErr
	}
	var refused *memoryError
	switch {
	case err == nil:
		return b.v2
	case errors.Is(err, ErrNoRange), errors.Is(err, ErrMalformed), errors.As(err, &refused):
	case errors.As(sendErr, &refused):
		err = sendErr
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case sendErr != nil && closedByPeer(sendErr):
		err = lostOr(sendErr)
	default:
		err = lostOr(err)
	}
	b.fail(err, inFlight)
	return false
}

// lostOr marks an error that says that the peer has closed the connection.
func lostOr(err error) error {
	if closedByPeer(err) {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// send sends requests. Each is in the channel before its first byte is on the way.
func (l *lane) send(m Memory, b *batch, sent chan<- Op) error {
	buf := buffers.Get().(*[128 << 10]byte)
	defer buffers.Put(buf)
	none := func() error { return nil } // the transfer has a deadline
	for {
		op, ok := b.take()
		if !ok {
			return nil
		}
		sent <- op
		h := header{size: op.Length, address: op.Remote, write: b.write, v2: b.v2}
		head := len(h.append(buf[:0]))
		n := op.Length
		if !b.write {
			n = 0
		}
		if err := send(l.conn, head, m, op.Local, n, buf[:], none); err != nil {
			return err
		}
		if b.v2 {
			continue
		}
		if b.write {
			// Nothing answers a WRITE of version 1. Requests are carried out in order, so the
			// answer to a READ of its last byte says that it is over.
			h = header{size: 1, address: op.Remote + op.Length - 1}
			_, err := l.conn.Write(h.append(buf[:0]))
			return err
		}
		return nil // peers that know no other version close the connection after each request
	}
}

// await takes the answer to a request.
func (l *lane) await(m Memory, b *batch, op Op) error {
	if b.v2 {
		head, err := l.r.Peek(statusBytes)
		if err != nil {
			return err
		}
		s, err := parseStatus(head)
		if err != nil {
			return err
		}
		if s != statusOK {
			return fmt.Errorf("%w: %d bytes at %#x (status %d)", ErrNoRange, op.Length, op.Remote, uint32(s))
		}
		_, _ = l.r.Discard(statusBytes)
	}
	if b.write {
		if b.v2 {
			return nil
		}
		_, err := l.r.ReadByte()
		return err
	}
	buf := buffers.Get().(*[128 << 10]byte)
	defer buffers.Put(buf)
	return receive(l.r, m, op.Local, op.Length, buf[:], func() error { return nil })
}

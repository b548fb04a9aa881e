package mooncake

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Serve takes over a connection to Options.Address and returns at once. One that does not begin
// with a handshake frame is closed.
func (n *Node) Serve(c net.Conn) {
	n.serve(n.handshakes, n.o.Limits.Handshakes, c, func(*guest) error { return n.handshake(c) })
}

func (n *Node) handshake(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(min(maxHandshake, n.o.Limits.Stall))); err != nil {
		return err
	}
	kind, body, err := readFrame(c, maxRequest)
	if err != nil {
		return err
	}
	answer, err := n.answer(kind, body)
	if err != nil {
		return err
	}
	if _, err := c.Write(encodeFrame(kind, answer)); err != nil {
		return err
	}
	return linger(c)
}

func (n *Node) answer(kind frameType, body []byte) ([]byte, error) {
	switch kind {
	case frameMetadata:
		return encode(n.descriptor()), nil // the sender's own is not needed
	case frameNotify:
		var in notifyRequest
		if err := parse(body, &smallLimits, &in); err != nil {
			return nil, err
		}
		var out notifyRequest
		if n.o.Notified != nil && n.o.Notified(in.Name, in.Message) {
			out.Message = notifyTaken
		}
		return encode(out), nil
	case frameProbe:
		return encode(probeAnswer{notifyTaken}), nil
	default:
		return encode(connectionAnswer{"this process has no RDMA for Mooncake: use protocol tcp"}), nil
	}
}

// linger waits a moment until the peer has read what was sent to it: closing a connection on which
// bytes are unread would take that from it.
func linger(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		if err := half.CloseWrite(); err != nil {
			return err
		}
	}
	if err := c.SetReadDeadline(time.Now().Add(lingerTime)); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, c)
	return nil
}

// guest is a connection of a peer.
type guest struct {
	conn net.Conn
	idle atomic.Int64 // since when, in nanoseconds since 1970; 0 while a request is carried out
}

// serve has f serve a connection. Where there are as many as are taken, the one that has been idle
// the longest makes room, else the new one goes.
func (n *Node) serve(guests map[*guest]bool, most int, c net.Conn, f func(*guest) error) {
	g := &guest{conn: c}
	g.idle.Store(time.Now().UnixNano())
	n.mu.Lock()
	ok := !n.closed
	if ok && len(guests) >= most {
		var oldest *guest
		var since int64
		for h := range guests {
			if idle := h.idle.Load(); idle != 0 && (oldest == nil || idle < since) {
				oldest, since = h, idle
			}
		}
		if ok = oldest != nil; ok {
			delete(guests, oldest)
			_ = oldest.conn.Close()
		}
	}
	if ok {
		guests[g] = true
		n.tasks.Add(1)
	}
	n.mu.Unlock()
	if !ok {
		_ = c.Close()
		return
	}
	go func() {
		defer n.tasks.Done()
		if err := f(g); err != nil && !errors.Is(err, io.EOF) {
			n.o.Logger.Debug("a connection of Mooncake's failed", "from", c.RemoteAddr(), "error", err)
		}
		_ = c.Close()
		n.mu.Lock()
		delete(guests, g)
		n.mu.Unlock()
	}()
}

const acceptPause = 20 * time.Millisecond

func (n *Node) acceptData() {
	for {
		c, err := n.listener.Accept()
		switch {
		case err == nil:
			n.serve(n.guests, n.o.Limits.DataConns, c, n.serveData)
		case errors.Is(err, net.ErrClosed):
			return
		default: // such as too many open files
			select {
			case <-n.ctx.Done():
				return
			case <-time.After(acceptPause):
			}
		}
	}
}

// buffers are what bytes go through between a socket and memory.
var buffers = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// serveData carries out requests one after another, as they come.
func (n *Node) serveData(g *guest) error {
	r := bufio.NewReaderSize(g.conn, 4<<10)
	for {
		now := time.Now()
		g.idle.Store(now.UnixNano())
		if err := g.conn.SetReadDeadline(now.Add(n.o.Limits.Idle)); err != nil {
			return err
		}
		if _, err := r.Peek(1); err != nil {
			return err
		}
		g.idle.Store(0)
		if err := g.conn.SetDeadline(time.Now().Add(n.o.Limits.Stall)); err != nil {
			return err
		}
		b, err := r.Peek(headerBytes)
		if err != nil {
			return err
		}
		h, err := parseHeader(b)
		if err != nil {
			return err
		}
		_, _ = r.Discard(headerBytes)
		if err := n.request(g.conn, r, h); err != nil {
			return err
		}
	}
}

func (n *Node) request(c net.Conn, r *bufio.Reader, h header) error {
	buf := buffers.Get().(*[128 << 10]byte)
	defer buffers.Put(buf)
	stall := func() error { return c.SetDeadline(time.Now().Add(n.o.Limits.Stall)) }
	out := buf[:0]
	if err := n.o.Offered.Check(Range{h.address, h.size}, h.write); err != nil {
		if h.v2 {
			if _, err := c.Write(statusRejected.append(out)); err != nil {
				return err
			}
			_ = linger(c)
		}
		return err
	}
	if h.write {
		if err := receive(r, n.o.Offered, h.address, h.size, buf[:], stall); err != nil {
			return err
		}
	}
	if h.v2 {
		out = statusOK.append(out)
	}
	if h.write {
		if len(out) == 0 {
			return nil
		}
		_, err := c.Write(out)
		return err
	}
	return send(c, len(out), n.o.Offered, h.address, h.size, buf[:], stall)
}

// receive moves n bytes that come from r into memory. stall is told with each MiB.
func receive(r io.Reader, m Memory, address, n uint64, buf []byte, stall func() error) error {
	for moved := uint64(0); n > 0; {
		k, err := r.Read(buf[:min(uint64(len(buf)), n)])
		if k > 0 {
			if err := m.WriteAt(buf[:k], address); err != nil {
				return &memoryError{err}
			}
			address, n, moved = address+uint64(k), n-uint64(k), moved+uint64(k)
		}
		if n == 0 {
			return nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if moved >= stallBytes {
			moved = 0
			if err := stall(); err != nil {
				return err
			}
		}
	}
	return nil
}

// send writes the first head bytes of buf, which are there, and then n bytes of memory.
func send(w io.Writer, head int, m Memory, address, n uint64, buf []byte, stall func() error) error {
	for moved := uint64(0); head > 0 || n > 0; head = 0 {
		k := min(uint64(len(buf)-head), n)
		if k > 0 {
			if err := m.ReadAt(buf[head:head+int(k)], address); err != nil {
				return &memoryError{err}
			}
		}
		if _, err := w.Write(buf[:head+int(k)]); err != nil {
			return err
		}
		address, n, moved = address+k, n-k, moved+k
		if moved >= stallBytes {
			moved = 0
			if err := stall(); err != nil {
				return err
			}
		}
	}
	return nil
}

// memoryError is a refusal of this process's own memory.
type memoryError struct{ err error }

func (e *memoryError) Error() string { return e.err.Error() }
func (e *memoryError) Unwrap() error { return e.err }

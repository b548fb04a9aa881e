package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// A raw socket shows the best that an engine could do: the same ops from and to the same
// memory, in as many streams, without a protocol. One end is this process, the other another
// process of this host (ServeRaw).

// rawHello opens a stream. It follows the token that both processes got from their parent.
type rawHello struct {
	Read   bool  `json:"read"` // the other end sends
	Size   int64 `json:"size"`
	Parts  int   `json:"parts"`
	Part   int   `json:"part"`
	Memory int64 `json:"memory"`
}

const (
	rawTokenBytes   = 32
	maxRawHello     = 1 << 10
	rawHelloTimeout = 10 * time.Second
	rawCall         = 1 << 20 // bytes per system call
	rawPieces       = 512     // pieces per system call
	rawBatch        = 1       // ops that must fit into a part
)

// RawEnd is the other end of raw sockets: a process of this host that runs
// ServeRaw.
type RawEnd struct {
	Address netip.AddrPort
	Token   []byte
	PID     int
	// CongestionControl is that of its listening socket, "" not known.
	CongestionControl string
	Stop              func() error
}

// rawRound moves bytes for a while over one stream for each part of the layout.
func rawRound(ctx context.Context, end *RawEnd, read bool, mem []byte, l layout, d time.Duration) (sample, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	conns := make([]*net.TCPConn, l.parts)
	for part := range conns {
		c, err := dialRaw(ctx, end, rawHello{Read: read, Size: l.size, Parts: l.parts, Part: part, Memory: int64(len(mem))})
		if err != nil {
			return sample{}, err
		}
		defer c.Close() //nolint:errcheck // the stream ended, or failed with an error of its own
		conns[part] = c
		defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })() //nolint:errcheck // a closed connection waits for nothing
	}
	peer, known := processCPU(end.PID)
	start, cpu := time.Now(), selfCPU()
	moved, errs := make([]int64, l.parts), make([]error, l.parts)
	var running sync.WaitGroup
	for part, c := range conns {
		running.Go(func() {
			w := walk{layout: l, mem: mem, part: part}
			if read {
				moved[part], errs[part] = drainRaw(c, &w, start.Add(d))
			} else {
				moved[part], errs[part] = pushRaw(c, &w, start.Add(d))
			}
			if errs[part] != nil {
				stop()
			}
		})
	}
	running.Wait()
	s := sample{elapsed: time.Since(start), self: selfCPU() - cpu}
	if after, ok := processCPU(end.PID); ok && known {
		s.peer, s.peerKnown = after-peer, true
	}
	for _, n := range moved {
		s.bytes += n
	}
	if err := errors.Join(errs...); err != nil {
		return s, pkgerr.Errorf("bench", "raw socket: %w", err)
	}
	return s, nil
}

func dialRaw(ctx context.Context, end *RawEnd, h rawHello) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: rawHelloTimeout, Control: congestion}
	c, err := d.DialContext(ctx, "tcp", end.Address.String())
	if err != nil {
		return nil, pkgerr.Errorf("bench", "raw socket: %w", err)
	}
	hello, err := json.Marshal(h)
	if err == nil {
		head := append([]byte{}, end.Token...)
		head = binary.BigEndian.AppendUint16(head, uint16(len(hello)))
		_, err = c.Write(append(head, hello...))
	}
	if err == nil { // the other end is ready
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	if err != nil {
		return nil, errors.Join(pkgerr.Errorf("bench", "raw socket: %w", err), c.Close())
	}
	return c.(*net.TCPConn), nil
}

// pushRaw sends until a time, then waits for the count of bytes that have arrived.
func pushRaw(c *net.TCPConn, w *walk, until time.Time) (int64, error) {
	sent, err := sendOps(c, w, func() bool { return time.Now().After(until) })
	if err != nil {
		return sent, err
	}
	if err := c.CloseWrite(); err != nil {
		return sent, err
	}
	var count [8]byte
	if _, err := io.ReadFull(c, count[:]); err != nil {
		return sent, err
	}
	if got := int64(binary.BigEndian.Uint64(count[:])); got != sent {
		return sent, fmt.Errorf("%d bytes sent, %d arrived", sent, got)
	}
	return sent, nil
}

// drainRaw receives, asks the other end to stop at a time, and receives what is still on its way.
func drainRaw(c *net.TCPConn, w *walk, until time.Time) (int64, error) {
	ask := time.AfterFunc(time.Until(until), func() { c.CloseWrite() }) //nolint:errcheck // what is wrong with the connection, receiving tells
	defer ask.Stop()
	return receiveOps(c, w)
}

// sendOps sends ops, several with one system call, until over returns true after one of those.
func sendOps(c *net.TCPConn, w *walk, over func() bool) (int64, error) {
	total := int64(0)
	var pieces [rawPieces][]byte
	for {
		n := 0
		for bytes := int64(0); n < rawPieces && (n == 0 || bytes+w.size <= rawCall); n++ {
			pieces[n] = w.next()
			bytes += w.size
		}
		buffers := net.Buffers(pieces[:n])
		sent, err := buffers.WriteTo(c)
		total += sent
		if err != nil || over() {
			return total, err
		}
	}
}

// receiveOps receives ops into their memory until the other end is done.
func receiveOps(c *net.TCPConn, w *walk) (int64, error) {
	r, err := newScatter(c)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	queue := make([][]byte, 0, 2*rawPieces)
	want := min(rawPieces, max(1, int(rawCall/w.size)))
	for {
		for len(queue) < want {
			queue = append(queue, w.next())
		}
		n, err := r.read(queue[:want])
		total += int64(n)
		if errors.Is(err, io.EOF) {
			return total, nil
		} else if err != nil {
			return total, err
		}
		taken := 0
		for ; n > 0 && n >= len(queue[taken]); taken++ {
			n -= len(queue[taken])
		}
		if n > 0 {
			queue[taken] = queue[taken][n:]
		}
		queue = queue[:copy(queue, queue[taken:])]
	}
}

// rawServer is the end that ServeRaw runs.
type rawServer struct {
	token []byte
	mem   []byte
	open  atomic.Int64
}

// maxRawConns bounds the concurrent streams.
const maxRawConns = 256

func (s *rawServer) serve(c *net.TCPConn) error {
	if s.open.Add(1) > maxRawConns {
		s.open.Add(-1)
		return errors.New("too many streams")
	}
	defer s.open.Add(-1)
	h, err := s.hello(c)
	if err != nil {
		return err
	}
	l, err := newLayout(int64(len(s.mem)), h.Size, h.Parts, rawBatch)
	if err != nil {
		return err
	}
	if _, err := c.Write([]byte{1}); err != nil {
		return err
	}
	w := walk{layout: l, mem: s.mem, part: h.Part, far: true}
	if !h.Read {
		got, err := receiveOps(c, &w)
		if err != nil {
			return err
		}
		_, err = c.Write(binary.BigEndian.AppendUint64(nil, uint64(got)))
		return err
	}
	var over atomic.Bool
	var asked sync.WaitGroup
	asked.Go(func() {
		c.Read(make([]byte, 1)) //nolint:errcheck // the end of the other side, whatever the reason, is what is waited for
		over.Store(true)
	})
	_, err = sendOps(c, &w, over.Load)
	err = errors.Join(err, c.CloseWrite())
	asked.Wait()
	return err
}

// hello checks the token and the request.
func (s *rawServer) hello(c *net.TCPConn) (rawHello, error) {
	var h rawHello
	if err := c.SetReadDeadline(time.Now().Add(rawHelloTimeout)); err != nil {
		return h, err
	}
	head := make([]byte, rawTokenBytes+2)
	if _, err := io.ReadFull(c, head); err != nil {
		return h, err
	}
	n := int(binary.BigEndian.Uint16(head[rawTokenBytes:]))
	if !sameToken(head[:rawTokenBytes], s.token) || n > maxRawHello {
		return h, errors.New("wrong token")
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(c, text); err != nil {
		return h, err
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, err
	}
	if h.Size < 1 || h.Parts < 1 || h.Parts > maxRawConns || h.Part < 0 || h.Part >= h.Parts || h.Memory != int64(len(s.mem)) {
		return h, errors.New("the request does not fit this memory")
	}
	return h, c.SetReadDeadline(time.Time{})
}

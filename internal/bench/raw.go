package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// A raw socket shows the best that an engine could do: the same ops from and to the same
// memory, in as many streams, without a protocol. Both ends are in this process.

const (
	rawCall   = 1 << 20 // bytes per system call
	rawPieces = 512     // pieces per system call
)

// rawStream is one connection with what its ends walk through.
type rawStream struct {
	from, to     *net.TCPConn
	source, sink walk
	sent, got    int64
}

// rawRound moves bytes for a while over one stream for each part of the layout.
func (r *run) rawRound(ctx context.Context, read bool, l layout, d time.Duration) (s sample, err error) {
	defer func() {
		if err != nil {
			err = pkgerr.Errorf("bench", "raw socket: %w", err)
		}
	}()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	listen := net.ListenConfig{Control: congestion}
	ln, err := listen.Listen(ctx, "tcp", netip.AddrPortFrom(r.raw, 0).String())
	if err != nil {
		return sample{}, err
	}
	defer ln.Close()                                      //nolint:errcheck // nothing is accepted any more
	defer context.AfterFunc(ctx, func() { ln.Close() })() //nolint:errcheck // this ends Accept
	r.rawCongestion = congestionOf(ln.(*net.TCPListener))
	streams := make([]rawStream, l.parts)
	for part := range streams {
		near, far, err := connectRaw(ctx, ln)
		if err != nil {
			return sample{}, err
		}
		for _, c := range []*net.TCPConn{near, far} {
			defer c.Close()                                                           //nolint:errcheck // the stream ended, or failed with an error of its own
			defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })() //nolint:errcheck // a closed connection waits for nothing
		}
		here, there := walk{layout: l, mem: r.end.local.Bytes(), part: part}, walk{layout: l, mem: r.copyTo.Bytes(), part: part, far: true}
		streams[part] = rawStream{from: near, to: far, source: here, sink: there}
		if read {
			streams[part] = rawStream{from: far, to: near, source: there, sink: here}
		}
	}
	start, cpu := time.Now(), selfCPU()
	errs := make([]error, 2*l.parts)
	var running sync.WaitGroup
	for i := range streams {
		x := &streams[i]
		running.Go(func() {
			if x.sent, errs[2*i] = sendOps(x.from, &x.source, start.Add(d)); errs[2*i] != nil {
				stop()
			}
		})
		running.Go(func() {
			if x.got, errs[2*i+1] = receiveOps(x.to, &x.sink); errs[2*i+1] != nil {
				stop()
			}
		})
	}
	running.Wait()
	s = sample{elapsed: time.Since(start), self: selfCPU() - cpu, peerKnown: true}
	err = errors.Join(errs...)
	for i := range streams {
		s.bytes += streams[i].got
		if x := &streams[i]; err == nil && x.got != x.sent {
			err = fmt.Errorf("%d bytes sent, %d arrived", x.sent, x.got)
		}
	}
	return s, err
}

// connectRaw makes a connection to a listener of this process. Others that connect there are turned away.
func connectRaw(ctx context.Context, ln net.Listener) (near, far *net.TCPConn, err error) {
	d := net.Dialer{Control: congestion}
	c, err := d.DialContext(ctx, "tcp", ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	for {
		other, err := ln.Accept()
		if err != nil {
			return nil, nil, errors.Join(err, c.Close())
		}
		if other.RemoteAddr().String() == c.LocalAddr().String() {
			return c.(*net.TCPConn), other.(*net.TCPConn), nil
		}
		other.Close() //nolint:errcheck // of a stranger
	}
}

// sendOps sends ops until a time.
func sendOps(c *net.TCPConn, w *walk, until time.Time) (int64, error) {
	total := int64(0)
	for time.Now().Before(until) || total == 0 {
		sent, err := sendSome(c, w)
		if total += sent; err != nil {
			return total, err
		}
	}
	return total, c.CloseWrite()
}

// sendSome sends as many ops as go with one system call.
func sendSome(c *net.TCPConn, w *walk) (int64, error) {
	var pieces [rawPieces][]byte
	n := 0
	for bytes := int64(0); n < rawPieces && (n == 0 || bytes+w.size <= rawCall); n++ {
		pieces[n] = w.next()
		bytes += w.size
	}
	buffers := net.Buffers(pieces[:n])
	return buffers.WriteTo(c)
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

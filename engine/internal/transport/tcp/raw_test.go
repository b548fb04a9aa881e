package tcp

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
)

// Raw sockets, which the benchmarks compare with. A connection begins with a mode,
// the size of each call and the number of calls.

const (
	rawSink   = 'w'       // the peer reads all and answers a byte
	rawSource = 'r'       // the peer writes all
	rawPark   = 'p'       // the peer answers each call with size bytes
	rawSpin   = 's'       // the same, polling before it parks
	rawTLS    = 'a' - 'A' // taken off a mode: within TLS from there on
)

// rawAsk is what a ping-pong's question has, as a READ of one span has.
const rawAsk = headBytes + descBytes

func serveRaw(l net.Listener, region []byte) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var head [17]byte
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return
			}
			size, calls := int(binary.BigEndian.Uint64(head[1:])), int(binary.BigEndian.Uint64(head[9:]))
			mode, c := head[0], c
			if mode < 'a' {
				tc, err := tlsEnds.Server(context.Background(), c, nil)
				if err != nil {
					return
				}
				mode, c = mode-'A'+'a', tc
			}
			switch mode {
			case rawSink:
				rawReadAll(c, region, size, calls)
				_, _ = c.Write([]byte{1})
			case rawSource:
				rawWriteAll(c, region, size, calls)
			case rawPark, rawSpin:
				p := newPonger(c, mode == rawSpin)
				for range calls {
					if p.read(region[:rawAsk]) != nil {
						return
					}
					_, _ = c.Write(region[:size])
				}
			}
		}()
	}
}

func rawDial(b testing.TB, address string, mode byte, size, calls int) net.Conn {
	c, err := (&net.Dialer{Control: soft}).Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	head := binary.BigEndian.AppendUint64([]byte{mode}, uint64(size))
	if _, err := c.Write(binary.BigEndian.AppendUint64(head, uint64(calls))); err != nil {
		b.Fatal(err)
	}
	if mode < 'a' {
		if c, err = tlsEnds.Dial(context.Background(), c, nil, ""); err != nil {
			b.Fatal(err)
		}
	}
	return c
}

// rawReadAll moves through the region; each call takes what there is, up to size.
func rawReadAll(c net.Conn, region []byte, size, calls int) {
	at := 0
	for left := size * calls; left > 0; {
		n, err := c.Read(region[at : at+min(size, left)])
		if err != nil {
			return
		}
		left -= n
		if at += n; at+size > len(region) {
			at = 0
		}
	}
}

func rawWriteAll(c net.Conn, region []byte, size, calls int) {
	at := 0
	for range calls {
		if _, err := c.Write(region[at : at+size]); err != nil {
			return
		}
		if at += size; at+size > len(region) {
			at = 0
		}
	}
}

// ponger reads whole messages, parked or polling as the transport does.
type ponger struct {
	c     net.Conn
	raw   syscall.RawConn
	spin  bool
	vec   *memory.Vector
	polls int
	n     int
	errno syscall.Errno
	call  func(uintptr) bool
}

func newPonger(c net.Conn, spin bool) *ponger {
	p := &ponger{c: c, spin: spin, vec: memory.NewVector(1)}
	p.raw, _ = c.(syscall.Conn).SyscallConn()
	p.call = func(fd uintptr) bool {
		for {
			p.n, p.errno = p.vec.Readv(fd)
			if p.errno != syscall.EAGAIN {
				return true
			}
			if p.polls == 0 {
				return false
			}
			if crowded(p.polls) {
				yield()
			}
			p.polls--
		}
	}
	return p
}

func (p *ponger) read(b []byte) error {
	if !p.spin {
		_, err := io.ReadFull(p.c, b)
		return err
	}
	p.vec.Reset()
	p.vec.Add(b)
	for p.vec.Bytes() > 0 {
		p.polls = 10 * spinPolls // once one end parks, the other must wait for its wake-up
		if err := p.raw.Read(p.call); err != nil {
			return err
		}
		if p.errno != 0 {
			return p.errno
		}
		if p.n == 0 {
			return io.EOF
		}
		p.vec.Advance(p.n)
	}
	return nil
}

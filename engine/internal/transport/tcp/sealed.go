package tcp

import (
	"cmp"
	"fmt"
	"net"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// Within TLS, bytes do not go between the socket and their place in one system call: crypto/tls
// reads and writes, and waits where the socket has or takes no more. So only the sender goroutine
// writes, and only the reader receives.

const (
	// sealBytes is what is written at once: few records, and some progress now and then.
	sealBytes = 256 << 10
	// gatherBytes of a chunk are copied together where it goes on with a small piece: each write
	// makes records, and system calls, of its own.
	gatherBytes = 64 << 10
)

// socketOf is what carries a connection, and whether TLS is between.
func socketOf(c net.Conn) (socket net.Conn, sealed bool) {
	if s, ok := c.(interface{ NetConn() net.Conn }); ok {
		return s.NetConn(), true
	}
	return c, false
}

// checkSealed refuses a connection that is not what was agreed on.
func checkSealed(c net.Conn, agreed transport.Protection) error {
	if _, sealed := socketOf(c); sealed != (agreed == transport.Sealed) {
		return fmt.Errorf("agreed on protection %q, and there is TLS: %t", agreed, sealed)
	}
	return nil
}

// receiveSealed waits for bytes, and has the turn then.
func (l *link) receiveSealed() {
	l.turn.Lock()
	in := &l.in
	in.n, in.err = l.conn.Read(in.vec.Piece(0))
	if in.n > 0 {
		in.err = nil // comes again
	}
	if l.dead.Load() {
		in.n, in.err = 0, cmp.Or(in.err, errDead)
	}
}

// writeSealed writes the chunk.
func (l *link) writeSealed() error {
	for l.out.left() > 0 {
		if err := l.writeSome(); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) writeSome() error {
	l.io.Lock()
	defer l.io.Unlock()
	b := l.out.vec.Piece(0)
	if len(b) < gatherBytes {
		b = gather(l.out.vec, l.gathered[:0])
	}
	n, err := l.conn.Write(b[:min(len(b), sealBytes)])
	l.wrote(n)
	return err
}

// gather copies pieces to b until it is full.
func gather(v *memory.Vector, b []byte) []byte {
	for i := 0; len(b) < cap(b); i++ {
		piece := v.Piece(i)
		if piece == nil {
			break
		}
		b = append(b, piece[:min(len(piece), cap(b)-len(b))]...)
	}
	return b
}

package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/topoctl/topoctl/engine/internal/peertls"
	"github.com/topoctl/topoctl/engine/trust"
)

// exporterLabel is of TLS's exporter (RFC 8446, 7.5).
const exporterLabel = "EXPORTER-topoctl"

// exporter is a value that only the two ends of a TLS connection know, and that no other
// connection has; zeros where there is no TLS. Every proof is made over it: a relay, which has
// another connection with each side, can pass none on.
type exporter [32]byte

// secured is a TLS connection after its handshake.
type secured struct {
	*tls.Conn
	socket   net.Conn
	exporter exporter
}

// Close closes the socket at once: tls.Conn.Close waits for a peer that does not read.
func (s *secured) Close() error { return s.socket.Close() }

// NetConn is the socket.
func (s *secured) NetConn() net.Conn { return s.socket }

func newSecured(c *tls.Conn, socket net.Conn) (*secured, error) {
	s := &secured{Conn: c, socket: socket}
	state := c.ConnectionState()
	out, err := state.ExportKeyingMaterial(exporterLabel, nil, len(s.exporter))
	copy(s.exporter[:], out)
	return s, err
}

// binding is the exporter.
func (s *secured) binding() exporter { return s.exporter }

// exporterOf is a connection's.
func exporterOf(c net.Conn) exporter {
	if s, ok := c.(interface{ binding() exporter }); ok {
		return s.binding()
	}
	return exporter{}
}

// socketOf is what carries a connection.
func socketOf(c net.Conn) net.Conn {
	if s, ok := c.(*secured); ok {
		return s.socket
	}
	return c
}

// namesOf are those of the peer's certificate, nil where none was demanded.
func namesOf(c net.Conn) []string {
	if s, ok := c.(*secured); ok {
		return peertls.PeerNames(s.Conn)
	}
	return nil
}

// dialsPlain is the dialler's rule for control connections: only without credentials, and to the
// loopback interface, there is no TLS. Nothing that the peer says changes it.
func dialsPlain(c *trust.Credentials, remote netip.Addr) bool {
	return c.None() && remote.Unmap().IsLoopback()
}

// errPlain is all that an answer without TLS can say.
var errPlain = fmt.Errorf("%w, or something on the way answers in its place: the answer came without TLS", errBusy)

// secureDialled does the TLS handshake on a connection that we dialled.
func secureDialled(ctx context.Context, c net.Conn, e *peertls.Endpoint, creds *trust.Credentials, name string) (net.Conn, error) {
	t, err := e.Dial(ctx, c, creds, name)
	var record tls.RecordHeaderError
	switch {
	case err == nil:
		return newSecured(t, c)
	case errors.As(err, &record) && string(record.RecordHeader[:len(magic)]) == magic:
		// A server that is busy says so before it reads anything. Nothing that is said without
		// TLS is believed: we only try again.
		return nil, errPlain
	case errors.As(err, &record):
		return nil, ErrNotEngine
	}
	return nil, handshakeError(err)
}

// secureAccepted does the TLS handshake on a connection that a peer dialled, of which head has
// been read.
func secureAccepted(c net.Conn, head []byte, e *peertls.Endpoint, creds *trust.Credentials) (net.Conn, error) {
	t, err := e.Server(context.Background(), &unread{c, head}, creds) // the deadline is the connection's
	if err != nil {
		var refusal *peertls.Error
		if errors.As(err, &refusal) && !errors.Is(err, trust.ErrCertificate) {
			err = fmt.Errorf("%w: %w", errMalformed, err)
		}
		return nil, err
	}
	return newSecured(t, c)
}

// isClientHello says whether a connection begins as those of TLS do: with a record of version
// 3.x that holds a handshake message of type 1. Other protocols may begin with the same byte:
// that of Mooncake with a length of 8 bytes, of which the last four are zero.
func isClientHello(head []byte) bool { return head[0] == 22 && head[1] == 3 && head[5] == 1 }

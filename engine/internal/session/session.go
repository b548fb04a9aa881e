// Package session is what two engines have with each other beside the data: one
// authenticated channel for calls in both directions, over TLS between hosts, which outlives
// the connection that carries it. It also lets data connections in, which prove with
// the same handshake that they belong to a session. docs/wire.md specifies both.
//
// A session is dialled by the engine that wants to move memory. When its
// connection dies or falls silent, the dialling side connects again over any pair
// of addresses that it knows, and calls that have no answer yet are sent again;
// the answering side runs each call once. A peer that was restarted has another
// epoch: the session is over then.
package session

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/topoctl/topoctl/engine/internal/peertls"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
)

// Identity is how an engine presents itself.
type Identity struct {
	Name  string // printable, at most 255 bytes: what is not is left out
	Epoch uint64 // drawn at random when the process starts its engine
	// Credentials are what the engine proves itself with, and demands of its peers. They are
	// asked for in each handshake. nil: there are none, and peers are let in without.
	Credentials func() *trust.Credentials
	// TLS makes the engine's TLS connections; nil: one that is made for the purpose.
	TLS *peertls.Endpoint
	// Network connects the engine; nil: the host's.
	Network transport.Network
}

// credentials are those of this moment, nil without.
func (id *Identity) credentials() *trust.Credentials {
	if id.Credentials == nil {
		return nil
	}
	return id.Credentials()
}

// Limits bound what peers can make us hold. Zero fields take defaults.
type Limits struct {
	UnauthenticatedConns int           // at a time; default 128, or an eighth of Files
	AuthTime             time.Duration // from accept to the end of the handshake; default 5 s
	Sessions             int           // that peers share; default 16,384, or half of Files
	DataConnsPerSession  int           // open at a time; default 1,024
	MessageBytes         int           // of one call or answer; default 8 MiB
	CallsInFlight        int           // of one peer; default 256
	MessageTime          time.Duration // for any message that has begun, and more for a long one; default 5 s
	Orphaned             time.Duration // a session that nothing comes from is kept so long; default 30 s
	Withdrawn            time.Duration // a session whose peer's credential was withdrawn is kept so long; default 30 s
}

func (l Limits) withDefaults() Limits {
	files := Files()
	l.UnauthenticatedConns = cmp.Or(l.UnauthenticatedConns, min(128, max(files/8, 1)))
	l.Sessions = cmp.Or(l.Sessions, min(16384, max(files/2, 1)))
	l.DataConnsPerSession = cmp.Or(l.DataConnsPerSession, 1024)
	l.AuthTime = cmp.Or(l.AuthTime, 5*time.Second)
	l.MessageTime = cmp.Or(l.MessageTime, 5*time.Second)
	l.Orphaned = cmp.Or(l.Orphaned, 30*time.Second)
	l.Withdrawn = cmp.Or(l.Withdrawn, 30*time.Second)
	// Lengths on the wire have 32 bits, and the head needs some.
	l.MessageBytes = min(cmp.Or(l.MessageBytes, 8<<20), 1<<30)
	l.CallsInFlight = min(cmp.Or(l.CallsInFlight, 256), 1<<16)
	return l
}

// Handler answers a peer's calls. It runs in a goroutine of the session's; an
// error is sent to the caller as text, except ErrBusy: the caller calls again then. ctx ends
// with the session. It must not wait for Close of its session.
type Handler func(ctx context.Context, s *Session, method uint16, body []byte) ([]byte, error)

// Budget is the memory that peers can make us hold, of all sessions that have it.
type Budget struct {
	Memory *transport.Shares // bytes; nil: no bound
	// AnswerBytes is what an answer to a method may take. It is set aside before the call
	// runs; nil: 0.
	AnswerBytes func(method uint16) int
}

// What sessions and calls take beside the bodies: goroutines, buffers, entries of tables.
const (
	sessionBytes = 64 << 10
	callBytes    = 16 << 10
)

// ofCall is what a call takes until it has run.
func (b *Budget) ofCall(method uint16, body int) int64 {
	n := callBytes + int64(body)
	if b.AnswerBytes != nil {
		n += int64(b.AnswerBytes(method))
	}
	return n
}

// ServerOptions say how peers are let in.
type ServerOptions struct {
	Identity Identity
	Limits   Limits
	Handle   Handler
	Budget   Budget
	Logger   *slog.Logger // of what was refused; nil: nothing is logged
	// Data takes over a data connection that has proven to belong to a session. It
	// owns the connection from then on and must return soon. With an error the
	// connection is closed.
	Data func(session transport.SessionID, conn transport.ConnID, name string, c net.Conn) error
	// DataKey is what the dialler of a data connection has to prove that it has; false where
	// none is expected.
	DataKey func(session transport.SessionID, conn transport.ConnID) (transport.DataKey, bool)
	// Other takes over a connection that does not begin as engines' do, and must return soon.
	// It reads from its first byte. nil: such are refused.
	Other func(net.Conn)
	// Ended says, once, that a session is over: nothing comes over it any more, and
	// none of its calls is still running. err is nil after our Close, ErrEnded after
	// the peer's, ErrUnreachable where it was not heard of for too long. Ended must
	// not wait for Close.
	Ended func(s *Session, err error)
}

// DialOptions say whom to dial.
type DialOptions struct {
	Identity Identity
	// PeerName is what the peer's certificate must be for where one is demanded.
	PeerName string
	// Expect refuses, by its error, an engine that answers and is not the one that is wanted:
	// another one may have one of its addresses. It is asked for each route. nil: any is.
	Expect func(name string, epoch uint64) error
	Limits Limits
	Handle Handler
	Budget Budget
	// Routes are the ways that are known now, best first; 64 at most are tried. It
	// is asked again whenever the session connects.
	Routes func() []Route
	// Silence (default 50 ms) is how long an unanswered call or ping may take before
	// another way is tried beside the present one; GiveUp (default 10 s) is how long
	// the peer may be unreachable before the session is over. It is over at once where the
	// connection is gone, its address refuses another one, and no other address has the peer.
	Silence, GiveUp time.Duration
	// Ended says, once, that the session is over: ErrRestarted, ErrUnreachable,
	// ErrEnded after the peer's Close, or nil after ours. None of its calls is still
	// running. Ended must not wait for Close.
	Ended func(s *Session, err error)
}

// DataDial says where a data connection goes.
type DataDial struct {
	Session transport.SessionID
	Conn    transport.ConnID
	Key     transport.DataKey // that the peer gave for this connection
	Route   Route
	// Sealed is for TLS, with what Identity has for it. The proof of the key binds it to this
	// very connection, which says more than a certificate would.
	Sealed   bool
	Identity Identity
	// Control is called for the socket before it connects (congestion control,
	// binding to an interface is done here already).
	Control func(fd uintptr) error
}

// Why sessions end and are refused.
var (
	ErrRestarted   = errors.New("peer was restarted")
	ErrUnreachable = errors.New("peer is unreachable")
	ErrOtherEngine = errors.New("another engine answers")
	ErrToken       = errors.New("tokens differ")
	ErrDataKey     = errors.New("the connection has another key")
	ErrVersion     = errors.New("no common protocol version")
	ErrEnded       = errors.New("session is over")
	ErrWithdrawn   = errors.New("the peer has withdrawn the token or the CA by which it let us in")
	ErrLimit       = errors.New("peer takes no more")
	ErrTooLarge    = errors.New("message is larger than the peer takes")
	// ErrCallLimit: a call asks for more than limits allow.
	ErrCallLimit = errors.New("limit")
	// ErrBusy: the peer did not run a call, and may later.
	ErrBusy = errors.New("peer has no room for the call now")
)

// RemoteError is an error that the peer's handler gave.
type RemoteError struct {
	Text  string
	limit bool
}

func (e *RemoteError) Error() string { return "peer: " + e.Text }

// Unwrap is ErrCallLimit where that was the reason.
func (e *RemoteError) Unwrap() error {
	if e.limit {
		return ErrCallLimit
	}
	return nil
}

// complete leaves of the name what may stand in a packet.
func (id Identity) complete() Identity {
	if id.TLS == nil {
		id.TLS = peertls.NewEndpoint(nil)
	}
	if validName(id.Name) {
		return id
	}
	var b strings.Builder
	for _, r := range id.Name {
		if s := string(r); validName(s) && b.Len()+len(s) <= maxName {
			b.WriteString(s)
		}
	}
	id.Name = b.String()
	return id
}

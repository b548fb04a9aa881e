// Package transport is the contract between the engine and the ways of moving
// memory between two engines: TCP, shared memory, RDMA verbs.
//
// A Transport has two sides. The active side dials a connection for one lane and
// posts requests on it: every request is one-sided, the peer's application takes
// no part. The passive side answers: it checks what peers ask for against the
// table of regions and, for transports without hardware that does so, moves the
// bytes. Connections are made with the help of the session, the authenticated
// channel that two engines keep anyway: Dial may exchange messages with the
// peer's Accept over it.
//
// # Rules
//
//   - Post never blocks and says how many requests it took. Each of those gets
//     exactly one completion, whatever happens, Close included.
//   - A request is the transport's until its completion, and only then may its
//     spans be changed or its memory be used for something else.
//   - A WRITE that completes without error is in the peer's memory; a READ is in
//     ours. Requests are not ordered among each other.
//   - A failed completion says whether the request's bytes may still land later
//     (MayLand). For those the engine asks the peer to Leave the connection: once
//     that has returned there, nothing that was posted on it lands any more.
//   - Completions come from the transport's own goroutines, or from Poll, through
//     Events.Done, never from inside Post, which instead appends those that are complete at
//     once. Done must be quick and may post.
//
// transporttest holds every implementation to this.
package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/internal/direction"
)

// ConnID names a connection that an engine dialled. An engine never uses one
// twice in its life.
type ConnID uint64

// SessionID names what two engines have with each other. It is drawn by the
// dialling engine at random, and no other peer can guess it.
type SessionID [16]byte

// DataKey is what both ends of one data connection know, and no one else: the passive end
// draws it at random and gives it to the peer over the session.
type DataKey [32]byte

// Caps are what a transport can do and the limits of its requests.
type Caps struct {
	SameHost  bool  // it reaches engines of the same host only
	Checks    bool  // it makes a checksum of a request's bytes where that is asked for
	MaxSpans  int   // spans of one request
	MaxBytes  int64 // bytes of one request
	MaxPosted int   // requests of one connection that are posted and not completed
	// Parallel is how many requests a connection moves at the same time, sharing what it
	// carries (queue pairs); 0 and 1: one after the other.
	Parallel int
}

// Endpoint is where a transport can be reached: a port of this host and the
// address there. It travels to peers in the engine's descriptor.
type Endpoint struct {
	Transport string `json:"transport"`
	// Port is the port in this host's topology, "" where the endpoint stands for
	// no port (loopback, shared memory).
	Port topo.ID `json:"port,omitempty"`
	// Address is what Dial of the peer's transport understands: "10.0.0.1:7411",
	// the name of a socket.
	Address string `json:"address"`
	// BytesPerSec is what the port carries in each direction, 0 not known. TCP's
	// endpoints have none: the topology tells.
	BytesPerSec topo.Rate `json:"bytes_per_sec,omitempty"`
}

// Transport is one way of moving memory.
type Transport interface {
	// Name is "tcp", "shm", "rdma".
	Name() string
	Caps() Caps
	// Register prepares a region for use by this transport, and gives what peers
	// need to name it ("" if its ID is enough). Deregister undoes that; it comes
	// after the region's last use.
	Register(r *memory.Region) (key string, err error)
	Deregister(r *memory.Region) error
	// Dial makes the active end of a connection. ctx bounds making it, not its life.
	Dial(ctx context.Context, d Dial) (Conn, error)
	// Accept prepares the passive end of a connection that a peer dials, and gives
	// the answer that its Dial gets from Exchange.
	Accept(ctx context.Context, from Origin, request []byte) (answer []byte, err error)
	// Leave ends the passive end of a connection. When it returns nil, nothing that
	// was posted on it can touch memory here any more; that includes a connection
	// that has not arrived yet and never will be let in. An unknown connection has
	// been left.
	Leave(ctx context.Context, from Origin, conn ConnID) error
	// LeaveAll ends all passive ends of a peer's session.
	LeaveAll(ctx context.Context, session SessionID) error
	// Served is what the passive side did since the transport was made.
	Served() Served
	// Close ends all connections of both sides and waits for its goroutines.
	Close() error
}

// DataServer is a transport whose data connections come in through the
// engine's listeners: the engine hands over each one that has proven to belong to
// a session. The transport owns it from then on, and returns soon.
type DataServer interface {
	// Key is the secret that a connection which is expected now proves itself with: the
	// transport drew it in Accept.
	Key(session SessionID, conn ConnID) (DataKey, bool)
	Serve(session SessionID, conn ConnID, name string, c net.Conn) error
}

// Offerer is a transport that listens somewhere by itself: the endpoints
// go into the engine's descriptor. Those of others are the engine's listeners.
type Offerer interface {
	Offers() []Endpoint
}

// Ported is a transport with ports of its own, RDMA devices: its lanes are
// pairs of them and the peer's, which the engine takes from pathsel where both hosts are
// described, and from LocalPorts and the offers where not. Its endpoints name their port.
//
// Where ports come, go or change, and where a device came back, so that the keys of
// regions are new ones, the transport tells the engine that made it (Env.Changed), and is
// then asked for all of this again. All of it is quick.
type Ported interface {
	Offerer
	// LocalPorts are those that can be dialled from now, in a stable order.
	LocalPorts() []LocalPort
	// PortReaches says why a local port cannot reach a peer's endpoint; nil: it may.
	// The endpoint is what the peer says: it is hostile.
	PortReaches(local topo.ID, remote Endpoint) error
	// Key is what Register gave, as it is now; "" where peers cannot use the region. It
	// calls nothing of the engine.
	Key(r *memory.Region) string
}

// LocalPort is a port of a Ported transport.
type LocalPort struct {
	ID          topo.ID   // topo.PortID: what the topology calls it, where there is one
	Name        string    // for people: "mlx5_0"
	BytesPerSec topo.Rate // in each direction, 0 not known
}

// Bounded is a Transport that connects to some addresses only. Sessions follow a peer to no
// other address either.
type Bounded interface {
	// Connects says why it does not connect to an address, nil if it does.
	Connects(ctx context.Context, to netip.AddrPort) error
}

// Selective is a transport that cannot reach every region of a peer: the
// region's key tells. The engine does not use it for the others.
type Selective interface {
	Reaches(r *RemoteRegion) bool
}

// Poller is a Conn that lets a goroutine which waits for a request take in what has
// come, instead of being woken by the connection's own goroutine. Done is then called
// from Poll.
type Poller interface {
	// Poll returns when the waiter's wait is over, or when it can do no more for it than
	// the connection's own goroutine does.
	Poll(w Waiter)
}

// Waiter is a goroutine that polls.
type Waiter interface {
	Over() bool // there is nothing to wait for any more
	// Brief says that the wait may be over before the connection's own goroutine would
	// have been woken.
	Brief() bool
	// Asleep says what wakes the sleeper in Poll if the wait ends otherwise than by what
	// it takes in; nil: it is awake again. It must not sleep where that is false: the wait
	// is over, or somebody else sleeps for it.
	Asleep(wake func()) bool
}

// As finds a DataServer, an Offerer, a Ported, a Selective or a Serving in a transport, or
// in those that it wraps and gives with Unwrap() Transport.
func As[T any](t Transport) (T, bool) {
	for t != nil {
		if x, ok := t.(T); ok {
			return x, true
		}
		u, ok := t.(interface{ Unwrap() Transport })
		if !ok {
			break
		}
		t = u.Unwrap()
	}
	var none T
	return none, false
}

// Served counts what peers did through the passive side.
type Served struct {
	// Uncounted says that peers move bytes by themselves, without this side's help: then
	// ReadBytes and WrittenBytes know nothing of those.
	Uncounted               bool
	ReadBytes, WrittenBytes int64
	Requests                int64
	Refused                 map[string]int64 // requests that were refused, by reason: see Refusals
	Conns                   int              // open now
	// Dropped are the connections, of both sides, that were ended for what came over them, or
	// did not come, by reason.
	Dropped map[string]int64
}

// Serving is a transport that lists its passive ends. Listing is quick, and does not slow
// transfers.
type Serving interface {
	// Serves lists the passive ends that are open now, in any order.
	Serves() []Passive
}

// Passive is the passive end of a connection that a peer has dialled.
type Passive struct {
	Origin
	// LocalAddress and RemoteAddress are what the bytes go between, "" where there is no
	// such thing. LocalPort is that of a Ported transport, "" for others.
	LocalAddress, RemoteAddress string
	LocalPort                   topo.ID
	// ReadBytes and WrittenBytes are what the peer moved by it; nil where it does so without
	// this side's help.
	ReadBytes, WrittenBytes *int64
}

// Origin is the peer that a passive side deals with.
type Origin struct {
	Session SessionID
	Conn    ConnID // the connection that is asked for, in Accept
	Name    string // of the peer's engine, for messages; not authenticated
	Account Account
	// Rights are what the peer may do with regions, for as long as the session lasts.
	Rights *memory.Rights
}

// Dial says what connection is wanted.
type Dial struct {
	Session SessionID
	Conn    ConnID
	// Local is our end of the lane: the address that data leaves from (invalid: any)
	// and the interface that it is bound to where that is permitted ("" none).
	Local     netip.Addr
	Interface string
	// LocalPort is that of a Ported transport, "" for others.
	LocalPort topo.ID
	// Remote is the peer's end.
	Remote Endpoint
	// Exchange asks the peer's Accept. It may be called until shortly after Lost, by
	// several goroutines: to change the connection, and to say that it is over.
	Exchange func(ctx context.Context, request []byte) (answer []byte, err error)
	Events   Events
}

// Events are where a connection reports to. The functions are called one at a
// time for one connection, and not any more after Lost.
type Events struct {
	// Done reports requests that ended. The slice is the transport's again when
	// Done returns.
	Done func(c Conn, completions []Completion)
	// Lost says, once, that the connection is gone: all its completions came
	// before. err is nil after Close.
	Lost func(c Conn, err error)
}

// Conn is the active end of a connection.
type Conn interface {
	ID() ConnID
	// Limits are the transport's, or less where the peer takes less.
	Limits() Caps
	// Post takes requests in order until one does not fit, says how many it took,
	// and appends completions of those that ended at once to done.
	Post(requests []*Request, done []Completion) (taken int, _ []Completion)
	// Close ends the connection with an error for what is posted. It does not wait:
	// Lost tells when it is over, and then this end touches no memory any more.
	Close(cause error)
	// Describe says what the connection is made of, for explanations: addresses,
	// congestion control, checksum.
	Describe() string
}

// Op is what a request does, seen from the side that posts it.
type Op = direction.Direction

// The ops.
const (
	Write = direction.Write
	Read  = direction.Read
)

// Request is one piece of work: spans of one op that complete together.
type Request struct {
	Op    Op
	Spans []Span
	Bytes int64 // of all spans
	// Check asks for a checksum over the bytes, where the transport has any.
	Check bool
	// Awaited says that the poster calls the connection's Poll next, and waits there. It
	// is for a Poller alone, which need not wake its own goroutine then.
	Awaited bool
	// Tag is the poster's own and comes back with the completion.
	Tag any
}

// Refuse says why a connection of these limits takes no such request, nil where it does. The
// ranges are those of our own regions: what the peer's have is not known here.
func (c *Caps) Refuse(r *Request) error {
	if len(r.Spans) > c.MaxSpans || r.Bytes > c.MaxBytes || r.Op > Read {
		return fmt.Errorf("%w: op %d of %d spans and %d bytes: at most %d and %d are taken",
			ErrRefused, r.Op, len(r.Spans), r.Bytes, c.MaxSpans, c.MaxBytes)
	}
	sum := int64(0)
	for i := range r.Spans {
		s := &r.Spans[i]
		if size := s.Local.Size(); s.Bytes < 0 || s.LocalOffset < 0 || s.LocalOffset > size || s.Bytes > size-s.LocalOffset {
			return fmt.Errorf("%w: local region %q: %d bytes at %d: %w", ErrRefused, s.Local.Name(), s.Bytes, s.LocalOffset, memory.ErrRange)
		}
		sum += s.Bytes
	}
	if sum != r.Bytes {
		return fmt.Errorf("%w: spans of %d bytes in a request of %d", ErrRefused, sum, r.Bytes)
	}
	return nil
}

// Span is a contiguous piece of memory on both sides. The poster has checked the
// ranges against its own region and the remote one's size, and holds a pin.
type Span struct {
	Local        *memory.Region
	LocalOffset  int64
	Remote       *RemoteRegion
	RemoteOffset int64
	Bytes        int64
}

// RemoteRegion is a peer's region as its descriptor gives it. It does not change: where
// a key does, later requests have another one.
type RemoteRegion struct {
	ID    memory.ID
	Bytes int64
	Grant memory.Grant
	Key   map[string]string // by transport: what its Register gave there
}

// Completion is the end of a request.
type Completion struct {
	Request *Request
	Err     error // nil: the bytes are in place
	// MayLand says that the bytes of a failed WRITE may still reach the peer's
	// memory, until the peer has left the connection.
	MayLand bool
}

// ErrUnavailable is what the making of a transport fails with where this host cannot have
// it: an engine goes on without.
var ErrUnavailable = errors.New("not available")

// Why requests fail.
var (
	// ErrClosed: the connection was closed, or died, with the request on it.
	ErrClosed = errors.New("connection closed")
	// ErrChecksum: the bytes arrived and were not those that were sent. They may be
	// tried again on the same connection.
	ErrChecksum = errors.New("checksum mismatch")
	// ErrRefused: the peer does not allow it, or it makes no sense there; wraps one
	// of memory's reasons. Trying again does not help.
	ErrRefused = errors.New("refused by the peer")
)

package engine

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/registry"
	mem "github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/pathsel"
)

// Options configure an engine. The zero value serves on a free port of the
// loopback interface without a token, knows no ports, and moves memory through
// shared memory and TCP.
type Options struct {
	// Name is how the engine presents itself; default host name and process ID.
	Name string
	// Listen are the addresses that peers can reach it at; default 127.0.0.1:0. An
	// address that is not loopback needs a Token.
	Listen []string
	// Advertise is the address (host or host:port) that peers are told where Listen
	// names none of its own; "" chooses by route.
	Advertise string
	// Token is the secret that peers share, at least 16 bytes.
	Token []byte
	// Topology is this host's, derived; nil: no ports are known, and the address of
	// the peer is the only lane.
	Topology *topo.Topology
	Overlay  topo.Overlay
	Fabric   *pathsel.Fabric
	Roles    map[topo.ID]pathsel.Role
	// LocalRank of LocalSize engines of this host: each uses its part of the plan
	// for all of them, and the other ports only when its own fail. 0 of 0: alone.
	LocalRank, LocalSize int
	Policy               pathsel.Policy
	// Transports, in the order of preference; nil: SHM, then TCP. RDMA is passed in:
	// the import of engine/transport/rdma decides whether it is in a program.
	Transports []Transport
	// ConnsPerLane is how many connections each pair of ports has; default 1.
	ConnsPerLane int
	Registry     registry.Registry // nil: P2P
	// Check says when slices carry checksums; batches can ask otherwise.
	Check Check
	// DefaultTimeout bounds batches whose context has no deadline; default 30 s.
	DefaultTimeout time.Duration
	// GiveUp is how long a peer may be unreachable before it is lost; default 10 s.
	GiveUp time.Duration
	// Answer answers the calls of peers (Peer.Call); nil: this engine answers none. from
	// is what the peer calls itself: who has the token may say any name. It is called by
	// many goroutines, at most Limits.Calls at a time and 32 for one peer; requests have
	// up to MaxCallBytes, answers may have up to MaxAnswerBytes. ctx ends with the peer
	// and with the engine, whose Close waits for it. Of an error the peer gets the text.
	Answer func(ctx context.Context, from string, request []byte) ([]byte, error)
	Logger *slog.Logger // nil: silent
	Limits Limits
}

// Transport makes a transport for an engine: see TCP and SHM, and the packages of
// others. What it makes may also be a transport.DataServer, a transport.Offerer, a
// transport.Ported and a transport.Selective. An error that wraps ErrUnavailable
// says that this host cannot have it: the engine goes on without (Unavailable).
type Transport func(TransportEnv) (transport.Transport, error)

// TransportEnv is what an engine gives to its transports.
type TransportEnv struct {
	Name     string
	Epoch    uint64
	Token    []byte
	Regions  *mem.Table
	Topology *topo.Topology
	Addrs    []netip.AddrPort // that the engine listens at
	Logger   *slog.Logger     // never nil
	// Changed is for a transport.Ported to call when its ports, or what it offers,
	// are not what they were: the engine asks for them again, tells its peers and
	// makes its routes anew. It returns at once, and may be called at any time.
	Changed func()
}

// Check says whether slices carry checksums.
type Check uint8

// The ways to check. CheckAuto does it where bytes leave the host.
const (
	CheckAuto Check = iota
	CheckAlways
	CheckNever
)

// Limits bound what peers can make an engine hold, and what one call may ask
// for. Zero fields take defaults.
type Limits struct {
	Regions       int // open at a time; default 32,768
	Peers         int // that have opened this engine; default 16,384
	Notifications int // received and not yet taken; default 1,024
	BatchOps      int // ops of one batch; default 1,048,576
	Calls         int // of peers that Options.Answer answers at a time; default 256
}

// RegionOptions say what a region is.
type RegionOptions struct {
	Name     string       // peers find it by this, unique in the engine; "" is given one
	Grant    memory.Grant // what peers may do
	Location pathsel.Location
	Memory   memory.Options // of Alloc
}

// Span is a range of a local region.
type Span struct {
	Region         *Region
	Offset, Length int64
}

// RemoteSpan is a place in a peer's region.
type RemoteSpan struct {
	Region *RemoteRegion
	Offset int64
}

// Op is one piece of a batch: see WriteOp and ReadOp. Layout says how the bytes
// lie; nil is contiguous.
type Op struct {
	Read   bool
	Local  Span
	Remote RemoteSpan
	Layout *Layout
}

// Layout describes pieces of equal size. Piece k begins, on each side, at the
// span's offset plus k strides, or plus as many strides as the entry k of the
// pages says. Span.Length is ignored: Bytes*Count is moved. The pages are the
// engine's until the batch is done.
type Layout struct {
	Bytes                     int64
	Count                     int
	LocalStride, RemoteStride int64 // default Bytes
	LocalPages, RemotePages   []uint32
}

// WriteOp copies a local span to a peer.
func WriteOp(from Span, to RemoteSpan) Op { return Op{Local: from, Remote: to} }

// ReadOp copies a place of a peer into a local span.
func ReadOp(into Span, from RemoteSpan) Op { return Op{Read: true, Local: into, Remote: from} }

// SubmitOptions are a batch's own.
type SubmitOptions struct {
	HighPriority bool
	Check        *bool  // nil: the engine's rule
	Transport    string // only this one, "" any
	Label        string // for explanations
	// Notify is given to the peer's application after the last byte of the batch is
	// in place there, exactly once. nil: no notification. It is the engine's until
	// the batch is done.
	Notify []byte
}

// Notification is what a peer's batch left behind.
type Notification struct {
	Peer    string // the peer's name
	Payload []byte
}

// Advertised is an address that peers are told, and why.
type Advertised struct {
	transport.Endpoint
	Reason string `json:"reason,omitempty"`
}

// Progress is how far a batch is.
type Progress struct {
	Bytes int64 // in place
	Total int64
	Done  bool
}

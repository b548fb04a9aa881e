package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/registry"
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
	// Ports are the NICs that the engine may use. Without a Topology none is known, and
	// the address of the peer is the only lane.
	Ports Ports
	// Policy is how slices are given to lanes: "" is "adaptive". The others are there to
	// compare with: "round-robin", "random", "first" and "mooncake".
	Policy string
	// Transports, in the order of preference; nil: SHM, then TCP. RDMA is passed in
	// (rdma.Factory): the import of engine/transport/rdma decides whether it is in a program.
	Transports []TransportFactory
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

// Ports are what an engine knows of its host's NICs, and which of them are its own.
type Ports struct {
	// Topology is this host's, as discover.Discover gives it.
	Topology *topo.Topology
	Overlay  topo.Overlay             // rates that were measured
	Fabric   *pathsel.Fabric          // which switches the ports are on; nil: not known
	Roles    map[topo.ID]pathsel.Role // ports that are not to be used for this, or only
	// LocalRank of LocalSize engines of this host: each uses its part of the plan
	// for all of them, and the other ports only when its own fail. 0 of 0: alone.
	LocalRank, LocalSize int
}

// TransportFactory makes a transport for an engine: TCP and SHM give one, and rdma.Factory.
// What is in it is internal: other transports cannot be plugged in. Where a host cannot
// have a transport the engine goes on without, and Unavailable says why.
type TransportFactory = transport.Factory

// Check says whether slices carry checksums.
type Check uint8

// The ways to check. CheckAuto of a batch is as Options.Check says, and CheckAuto there
// is CheckAlways where bytes leave the host.
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

// OpKind says in which direction an op moves bytes.
type OpKind uint8

// The kinds of ops, as seen from the engine that submits them.
const (
	Write OpKind = iota // from the local region to the peer's
	Read                // from the peer's region to the local one
)

// String is "write" or "read".
func (k OpKind) String() string {
	if k == Read {
		return "read"
	}
	return "write"
}

// Op is one piece of a batch: see WriteOp and ReadOp. Layout says how the bytes
// lie; nil is contiguous.
type Op struct {
	Kind   OpKind
	Local  Span
	Remote RemoteSpan
	Layout *Layout
}

// Layout describes pieces of equal size. Piece k begins, on each side, at the
// span's offset plus k strides, or plus as many strides as the entry k of the
// pages says. The length of the local span is Bytes*Count then, or 0. The pages are
// the engine's until the batch is done.
type Layout struct {
	Bytes                     int64
	Count                     int
	LocalStride, RemoteStride int64 // default Bytes
	LocalPages, RemotePages   []uint32
}

// WriteOp copies a local span to a peer.
func WriteOp(from Span, to RemoteSpan) Op { return Op{Local: from, Remote: to} }

// ReadOp copies a place of a peer into a local span.
func ReadOp(into Span, from RemoteSpan) Op { return Op{Kind: Read, Local: into, Remote: from} }

// SubmitOptions are a batch's own.
type SubmitOptions struct {
	HighPriority bool
	Check        Check
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
	Transport   string    `json:"transport"`
	Port        topo.ID   `json:"port,omitempty"` // "" where it stands for no port (loopback, shared memory)
	Address     string    `json:"address"`
	BytesPerSec topo.Rate `json:"bytes_per_sec,omitempty"` // in each direction, 0 not known
	Reason      string    `json:"reason,omitempty"`
}

// Progress is how far a batch is.
type Progress struct {
	Bytes int64 // in place
	Total int64
	Done  bool
}

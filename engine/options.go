package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/pathsel"
)

// Options configure an engine. The zero value serves on a free port of the
// loopback interface without a token, knows no ports, and moves memory through
// shared memory and TCP.
type Options struct {
	// Name is what the engine calls itself; the default is the host name and process ID.
	Name string
	// Listen are the addresses to listen at, as host:port, or host:first-last for the first port of a range that is
	// free; default 127.0.0.1:0. An
	// address that is not loopback needs Security.Credentials, or Security.Insecure.
	Listen []string
	// Advertise is the address (host or host:port) to tell peers if Listen does not
	// name one; "" chooses one from the routing table.
	Advertise string
	// Security says what peers must prove, and what they may do.
	Security Security
	// Serve is what peers find here beside regions.
	Serve Serve
	// Ports describe the NICs that the engine may use. Without a Topology it knows none,
	// and reaches a peer at the peer's address only.
	Ports Ports
	// Transports are tried in this order; nil means SHM, then TCP. RDMA is passed in
	// (rdma.Factory), so that only programs which import it contain it.
	Transports []TransportFactory
	// ConnsPerLane is the number of connections between each pair of ports; default 1.
	ConnsPerLane int
	Registry     registry.Registry // nil means registry.P2P; it must not be closed before the engine
	// Serves is what the registry tells others that this engine is good for, such as "probe"; words of at
	// most 255 bytes, 64 at most.
	Serves []string
	// Check says when slices carry checksums; SubmitOptions.Check overrides it.
	Check Check
	// DefaultTimeout bounds batches whose context has no deadline; default 30 s.
	DefaultTimeout time.Duration
	// GiveUp is how long a peer may be unreachable before it is lost; default 10 s. A peer
	// whose connection is gone and whose address refuses another one is lost at once.
	GiveUp time.Duration
	Logger *slog.Logger // nil logs nothing
	Limits Limits
}

// Security is what peers must prove, what bytes have against others on the path, and what peers may do.
type Security struct {
	// Credentials gives what this engine proves itself with and demands of its peers: trust.Secret
	// of one secret, trust.Files.Watch of files with tokens or certificates. It is called in each handshake by
	// many goroutines and must return soon; what it returned must not be changed. Renewed ones
	// count from the next handshake on. Peers that are open stay open until their connection
	// ends; to connect again takes what is demanded then.
	Credentials func() *trust.Credentials
	// Insecure lets engines on other hosts open this one without credentials: all that reach
	// its addresses can then do with regions what their grants allow.
	Insecure bool
	// Protection is what data connections over TCP have at least. A peer may demand more. "" is
	// ProtectHeaders with Credentials, and ProtectOpen without.
	Protection Protection
	// Permit says what a peer may do, from what it has proven to be; nil: all that regions grant. It is
	// called when a peer has opened this engine, and by Engine.RecheckPermissions, and must be
	// quick. Permissions only narrow: Region.Grant stays what a peer may do at most.
	Permit func(trust.PeerID) Permissions
}

// Serve is what peers find at an engine beside its regions.
type Serve struct {
	// Prepare makes what is there from the start, such as the regions of an engine that peers open by name: New calls it
	// before anybody can open the engine, and fails with its error.
	Prepare func(*Engine) error
	// Answer answers the calls of peers (Peer.Call); nil refuses them. from says who the peer
	// has proven to be, and what it only claims. Answer is called by several goroutines, at most Limits.Calls at a time and 32
	// for one peer. Requests have up to MaxCallBytes, answers up to MaxAnswerBytes. ctx
	// ends with the peer and with the engine, whose Close waits for Answer to return. The
	// peer receives the text of an error.
	Answer func(ctx context.Context, from trust.PeerID, request []byte) ([]byte, error)
	// OtherProtocol takes over connections to Options.Listen that do not begin as those of engines do; nil
	// closes them. A program that is known by one host:port can serve another protocol there
	// too. Nothing is known of the other side: it has proven nothing. The connection reads from
	// its first byte; it belongs to OtherProtocol, which must return soon.
	OtherProtocol func(net.Conn)
}

// Ports are what an engine knows of its host's NICs, and which of them are its own.
type Ports struct {
	// Topology is this host's, as discover.Discover gives it.
	Topology *topo.Topology
	Overlay  topo.Overlay             // measured rates, in place of the topology's
	Fabric   *pathsel.Fabric          // the switches that the ports are connected to; nil is unknown
	Roles    map[topo.ID]pathsel.Role // override what pathsel takes ports to be for
	// LocalRank and LocalSize are for several engines on one host: this one is number
	// LocalRank of LocalSize. Each uses its share of the ports, and the others' ports
	// only when its own fail. 0 and 0 mean that it is alone.
	LocalRank, LocalSize int
}

// Check says whether slices carry checksums.
type Check uint8

// The values of Check. In SubmitOptions, CheckAuto means what Options.Check says; in
// Options, it means checksums if bytes leave the host.
const (
	CheckAuto Check = iota
	CheckAlways
	CheckNever
	// CheckDigest is CheckAlways, and where bytes go over a transport that makes no checksums
	// (RDMA), a batch is done, and notifies, only after both engines have compared them. They do so by
	// tags with a key that is sent within the session: where that has TLS, an attacker on the path of
	// the bytes cannot change them unnoticed. A batch that differs fails with ErrDigest. The regions of
	// the peer must grant reading. It costs both engines a look at all bytes, and a round trip.
	CheckDigest
)

// Protection is what data connections over TCP have against somebody on the path.
type Protection string

// The protections, each with what those before it have. With the last two, RDMA is not available, which
// has no such thing; shared memory is: its bytes do not leave the host.
const (
	ProtectOpen    Protection = "open"    // nothing
	ProtectHeaders Protection = "headers" // no request or answer can be changed
	ProtectPayload Protection = "payload" // nor can their bytes
	ProtectSealed  Protection = "sealed"  // nor can they be read
)

// Limits bound what peers can make an engine store, and what one call may ask for.
// Zero means the default. Of what peers share, none can have all: it may take more while
// it has no more than is left for the others. What counts as one peer is a certificate's name,
// without certificates an address.
type Limits struct {
	Regions       int // regions open at a time; default 131,072
	Peers         int // peers that have this engine open; default 16,384
	Notifications int // notifications received and not read yet; default 1,048,576; below 0, peers that send any get an error
	BatchOps      int // ops in one batch; default 1,048,576
	Calls         int // calls that Serve.Answer answers at a time; default 256
	// PeerBytes bounds the memory that all peers together can make an engine hold beside the
	// regions: sessions, connections, calls and their answers, notifications. The default is a
	// quarter of what this process can have by the system and its control groups, up to 4 GiB.
	// Calls beyond it are refused, and made again by the peer until their time is over.
	PeerBytes int64
}

// RegionOptions describe a region that is to be made.
type RegionOptions struct {
	Name     string           // by which peers find it, unique in the engine; "" makes one up
	Grant    memory.Grant     // what peers may do; without one it is not offered to them
	Location pathsel.Location // where the memory is, such as "gpu:0"; "" is unknown
	Memory   memory.Options   // for Alloc
	// OfferAddress tells peers Region.Address, so that they can find the region by it
	// (RemoteRegion.Address). It gives the layout of this process's memory away.
	OfferAddress bool
	// Devices finds memory of devices by address, for RegisterRanges: a *cuda.Driver. Without
	// it all ranges are taken for the host's.
	Devices memory.Devices
}

// Advertised is an address that the engine tells its peers, and why.
type Advertised struct {
	Transport   pathsel.Transport `json:"transport"`
	Port        topo.ID           `json:"port,omitempty"` // "" where it stands for no port (loopback, shared memory)
	Address     string            `json:"address"`
	BytesPerSec topo.Rate         `json:"bytes_per_sec,omitempty"` // in each direction, 0 not known
	Reason      string            `json:"reason,omitempty"`
}

const (
	maxConns     = 16 // of a lane
	defaultLimit = 30 * time.Second
)

// complete checks the options and fills in the defaults.
func (o *Options) complete() error {
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "engine"
		}
		o.Name = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if len(o.Listen) == 0 {
		o.Listen = []string{"127.0.0.1:0"}
	}
	guarded, err := o.Security.check()
	if err != nil {
		return err
	}
	for _, address := range o.Listen {
		if err := checkListen(address, guarded || o.Security.Insecure); err != nil {
			return err
		}
	}
	switch {
	case o.Ports.LocalSize < 0 || o.Ports.LocalRank < 0 || o.Ports.LocalRank >= max(o.Ports.LocalSize, 1):
		return fmt.Errorf("local rank %d of %d: want a rank below the size, or 0 of 0", o.Ports.LocalRank, o.Ports.LocalSize)
	case o.ConnsPerLane < 0 || o.ConnsPerLane > maxConns:
		return fmt.Errorf("%d connections per lane: want 1 to %d", o.ConnsPerLane, maxConns)
	case o.Check > CheckDigest:
		return fmt.Errorf("check %d: want CheckAuto, CheckAlways, CheckNever or CheckDigest", o.Check)
	}
	if _, err := o.Security.protection(); err != nil {
		return err
	}
	o.defaults()
	return nil
}

// protection is the least that bytes have which leave this host. Credentials may give some later
// that they do not have yet.
func (s *Security) protection() (transport.Protection, error) {
	switch {
	case s.Protection != "":
		return transport.ParseProtection(string(s.Protection))
	case s.Credentials == nil:
		return transport.Open, nil
	}
	return transport.Headers, nil
}

func (o *Options) defaults() {
	if o.Transports == nil {
		o.Transports = []TransportFactory{SHM(), TCP()}
	}
	if o.Registry == nil {
		o.Registry = registry.P2P()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.ConnsPerLane = max(o.ConnsPerLane, 1)
	if o.DefaultTimeout <= 0 {
		o.DefaultTimeout = defaultLimit
	}
	if o.GiveUp <= 0 {
		o.GiveUp = 10 * time.Second
	}
	for _, l := range []struct {
		limit *int
		def   int
	}{
		{&o.Limits.Regions, 1 << 17}, {&o.Limits.Peers, 1 << 14}, {&o.Limits.BatchOps, 1 << 20},
		{&o.Limits.Calls, 1 << 8},
	} {
		if *l.limit <= 0 {
			*l.limit = l.def
		}
	}
	if o.Limits.PeerBytes <= 0 {
		o.Limits.PeerBytes = defaultPeerBytes()
	}
	if o.Limits.Notifications == 0 {
		o.Limits.Notifications = 1 << 20
	}
}

// defaultPeerBytes is a quarter of the memory that this process can have: enough for the largest
// call and its answer, with as much left.
func defaultPeerBytes() int64 {
	left, known := mem.Left()
	if !known { // the system does not tell
		return 256 << 20
	}
	return min(max(left/4, 32<<20), 4<<30)
}

// checkListen refuses to serve other hosts where nothing is demanded of them.
func checkListen(address string, others bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen %q: want host:port, for all addresses :port", address)
	}
	if others || host == "localhost" {
		return nil
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsLoopback() {
		return nil
	}
	return errors.New("listen " + address + ": peers on other hosts could read and write without a token or certificate: give one, or listen at 127.0.0.1")
}

// carrierNames lists the transports, for messages.
func (e *Engine) carrierNames() string {
	var names []string
	for _, c := range e.carriers {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

func dedupe(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// credentials gives those of the moment. The former stay where a source gives unusable ones, or none any more: an
// engine that has demanded something of its peers does not let them in without because of that.
func (s *Security) credentials() func() *trust.Credentials {
	if s.Credentials == nil {
		return func() *trust.Credentials { return nil }
	}
	var last atomic.Pointer[trust.Credentials]
	return func() *trust.Credentials {
		c, before := s.Credentials(), last.Load()
		if c.Check() != nil || c.None() && !before.None() {
			return before
		}
		last.Store(c)
		return c
	}
}

// check checks the credentials that the engine begins with, and says whether there are any.
func (s *Security) check() (any bool, err error) {
	if s.Credentials == nil {
		return false, nil
	}
	c := s.Credentials()
	return !c.None(), c.Check()
}

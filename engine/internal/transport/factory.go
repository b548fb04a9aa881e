package transport

import (
	"context"
	"log/slog"
	"net"
	"net/netip"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/peertls"

	"github.com/topoctl/topoctl/engine/trust"
)

// Env is what an engine gives to its transports. What it makes may also be a DataServer, an
// Offerer, a Ported, a Selective and a Serving.
type Env struct {
	Name  string
	Epoch uint64
	// Credentials and TLS are the engine's, for connections that the transport makes itself.
	Credentials func() *trust.Credentials
	TLS         *peertls.Endpoint
	// Protection is the least that bytes have which leave this host.
	Protection Protection
	Regions    *memory.Table
	Memory     *Shares          // that peers may make the engine hold
	Topology   *topo.Topology   // nil: not known
	Addrs      []netip.AddrPort // that the engine listens at
	Logger     *slog.Logger     // never nil
	// Changed is for a Ported to call when its ports, or what it offers, are not what
	// they were: the engine asks for them again, tells its peers and makes its routes
	// anew. It returns at once, and may be called at any time.
	Changed func()
}

// Factory makes a transport for an engine: what an engine.TransportFactory is.
type Factory struct {
	Name string // of the transport
	Make func(Env) (Transport, error)
	// Network is what the engine has its sessions over; nil: the host's.
	Network Network
}

// Network connects the sessions of engines in place of the host's network. engine is who listens or dials; listeners
// have a *net.TCPAddr. A connection with a method Delivered() (bytes uint64, all bool) says what of what was written the
// peer's host has taken, as the kernel does of a socket.
type Network interface {
	Listen(engine, address string) (net.Listener, error)
	Dial(ctx context.Context, engine string, to netip.AddrPort) (net.Conn, error)
}

// String is the transport's name.
func (f *Factory) String() string { return f.Name }

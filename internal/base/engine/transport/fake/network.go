package fake

import (
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// Network is what transports reach each other over.
type Network struct {
	mu     sync.Mutex
	ends   map[string]*Transport
	refuse error
}

// Refuse has every Dial fail with an error from now on, nil lets them through again.
func (n *Network) Refuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse = err
}

func (n *Network) refusing() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refuse
}

// NewNetwork makes a network without transports.
func NewNetwork() *Network { return &Network{ends: map[string]*Transport{}} }

// Options shape a transport. Zero fields take the defaults: name "fake", 64 spans,
// 1 MiB, 128 requests posted, as fast as memory.
type Options struct {
	Name string
	// Limits of requests.
	MaxSpans  int
	MaxBytes  int64
	MaxPosted int
	// BytesPerSec is the rate of each connection that is dialled here, and Latency
	// the time from a post to its completion beside that. 0: none.
	BytesPerSec int64
	Latency     time.Duration
	// Lanes is how many endpoints it offers, all of them the same to it; default 1.
	Lanes int
	// Ports make it a transport with ports of its own (see Ported), each of which it
	// offers. Reach says why one does not reach another engine's, by their IDs; nil:
	// all do. Changed is called when SetPorts has changed them.
	Ports   []transport.LocalPort
	Reach   func(local, remote topo.ID) error
	Changed func()
}

// Transport makes the transport of one engine, known to the others by address
// (without #). It takes the place of an earlier one of that address, which should be closed.
func (n *Network) Transport(address string, regions *memory.Table, o Options) *Transport {
	if o.Name == "" {
		o.Name = "fake"
	}
	if o.MaxSpans == 0 {
		o.MaxSpans = 64
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 20
	}
	if o.MaxPosted == 0 {
		o.MaxPosted = 128
	}
	t := &Transport{
		network: n, address: address, regions: regions, options: o, ports: o.Ports,
		ends: transport.MakeEnds[struct{}, *passive](), active: map[*Conn]bool{},
		registered: map[*memory.Region]bool{},
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[address] = t
	return t
}

func (n *Network) find(address string) *Transport {
	address, _, _ = strings.Cut(address, "#")
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ends[address]
}

func (n *Network) remove(t *Transport) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ends[t.address] == t {
		delete(n.ends, t.address)
	}
}

// Package fake is a transport without a wire, for tests: the transports of one
// Network reach each other in one process, and each connection has a goroutine
// that copies between the regions of both sides. It keeps the contract of package
// transport to the letter, and lets a test decide what a real network decides:
// how fast a lane is, when it stands still, when it dies, and when a WRITE that
// was on the wire at that moment lands after all.
package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// Network is what transports reach each other over.
type Network struct {
	mu     sync.Mutex
	ends   map[string]*Transport
	refuse error
}

// NewNetwork makes a network without transports.
func NewNetwork() *Network { return &Network{ends: map[string]*Transport{}} }

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
		active: map[*Conn]bool{}, registered: map[*memory.Region]bool{},
	}
	t.ends = transport.MakeEnds[struct{}, *passive](&t.mu, nil)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[address] = t
	return t
}

// Conns are the connections that an end, known by its address, has dialled or taken.
func (n *Network) Conns(address string) []*Conn {
	n.mu.Lock()
	ends := slices.Collect(maps.Values(n.ends))
	n.mu.Unlock()
	var out []*Conn
	for _, t := range ends {
		for _, c := range t.Conns() {
			if to, _, _ := strings.Cut(c.remote, "#"); t.address == address || to == address {
				out = append(out, c)
			}
		}
	}
	return out
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

// hello is what Dial sends through Exchange.
const hello = "fake 1"

// arriveTime is how long a connection may take to arrive that a peer has asked for.
const arriveTime = time.Minute

// Transport is one engine's place in a Network.
type Transport struct {
	network *Network
	address string
	regions *memory.Table
	options Options

	mu         sync.Mutex
	closed     bool
	ports      []transport.LocalPort
	ends       transport.Ends[struct{}, *passive]
	active     map[*Conn]bool
	registered map[*memory.Region]bool
	running    sync.WaitGroup

	readBytes, writtenBytes, requests atomic.Int64
	refused                           transport.Refusals
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Offerer   = (*Transport)(nil)
)

// Name is the name of the options.
func (t *Transport) Name() string { return t.options.Name }

// Caps are those of the options.
func (t *Transport) Caps() transport.Caps {
	o := t.options
	return transport.Caps{SameHost: o.Ports == nil, MaxSpans: o.MaxSpans, MaxBytes: o.MaxBytes, MaxPosted: o.MaxPosted}
}

// Endpoint is where peers dial it; port is their word for the lane's far end.
func (t *Transport) Endpoint(port topo.ID) transport.Endpoint {
	return transport.Endpoint{Transport: t.options.Name, Port: port, Address: t.address}
}

// Offers are the endpoints that the options ask for: an engine makes a lane of
// each.
func (t *Transport) Offers() []transport.Endpoint {
	out := make([]transport.Endpoint, max(t.options.Lanes, 1))
	for i := range out {
		out[i] = transport.Endpoint{Transport: t.options.Name, Address: fmt.Sprintf("%s#%d", t.address, i)}
	}
	return out
}

// Register needs nothing: the region's ID is enough.
func (t *Transport) Register(r *memory.Region) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return "", t.errorf("register %q: transport is closed", r.Name())
	}
	t.registered[r] = true
	return "", nil
}

// Deregister forgets the region. Regions that were not registered are an error, so
// that engines that lose count are found.
func (t *Transport) Deregister(r *memory.Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.registered[r] {
		return t.errorf("deregister %q: it is not registered", r.Name())
	}
	delete(t.registered, r)
	return nil
}

// Accept expects the connection.
func (t *Transport) Accept(ctx context.Context, from transport.Origin, request []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, t.errorf("accept of connection %d: %w", from.Conn, err)
	}
	if string(request) != hello {
		return nil, t.errorf("accept of connection %d: unknown request %.32q", from.Conn, request)
	}
	k := transport.ConnKey{Session: from.Session, Conn: from.Conn}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, t.errorf("accept of connection %d: transport is closed", from.Conn)
	}
	if err := t.ends.Expect(k, from.Account, struct{}{}, time.Now().Add(arriveTime)); err != nil {
		return nil, t.errorf("accept: %w", err)
	}
	return []byte(hello), nil
}

// Dial connects to the transport at the remote's address.
func (t *Transport) Dial(ctx context.Context, d transport.Dial) (transport.Conn, error) {
	fail := func(err error) (transport.Conn, error) {
		return nil, t.errorf("dial %q, connection %d: %w", d.Remote.Address, d.Conn, err)
	}
	if err := errors.Join(ctx.Err(), t.network.refusing()); err != nil {
		return fail(err)
	}
	answer, err := d.Exchange(ctx, []byte(hello))
	if err != nil {
		return fail(err)
	}
	if string(answer) != hello {
		return fail(fmt.Errorf("unknown answer %.32q", answer))
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	peer := t.network.find(d.Remote.Address)
	if peer == nil {
		return fail(errors.New("nobody is there"))
	}
	c := newConn(t, d)
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return fail(errors.New("transport is closed"))
	}
	if err := t.checkPort(d.LocalPort); err != nil {
		t.mu.Unlock()
		return fail(err)
	}
	t.active[c] = true
	t.running.Add(1)
	t.mu.Unlock()
	if err := peer.arrive(transport.ConnKey{Session: d.Session, Conn: d.Conn}, c); err != nil {
		t.forget(c)
		return fail(err)
	}
	go c.run()
	return c, nil
}

// arrive lets an expected connection in.
func (t *Transport) arrive(k transport.ConnKey, c *Conn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.ends.Expected(k, time.Now()); !ok || t.closed {
		return errors.New("the peer does not expect this connection")
	}
	if err := t.checkPort(portIn(c.remote)); err != nil {
		return err
	}
	c.peer = &passive{transport: t, key: k, conn: c}
	t.ends.Open(k, c.peer)
	return nil
}

// forget ends an active connection's place here.
func (t *Transport) forget(c *Conn) {
	t.mu.Lock()
	delete(t.active, c)
	t.mu.Unlock()
	t.running.Done()
}

// Leave ends the passive end of a connection.
func (t *Transport) Leave(ctx context.Context, from transport.Origin, conn transport.ConnID) error {
	return t.ends.Leave(ctx, transport.ConnKey{Session: from.Session, Conn: conn})
}

// LeaveAll ends what the session has here.
func (t *Transport) LeaveAll(ctx context.Context, session transport.SessionID) error {
	return t.ends.LeaveAll(ctx, session)
}

// Served counts the passive side.
func (t *Transport) Served() transport.Served {
	t.mu.Lock()
	_, conns := t.ends.Len()
	t.mu.Unlock()
	return transport.Served{
		ReadBytes: t.readBytes.Load(), WrittenBytes: t.writtenBytes.Load(),
		Requests: t.requests.Load(), Refused: t.refused.Counts(), Conns: conns,
	}
}

// Conns are the connections that were dialled here and are not over.
func (t *Transport) Conns() []*Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.active))
}

// Close ends both sides of this transport and waits for its connections.
func (t *Transport) Close() error {
	t.network.remove(t)
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	err := transport.LeaveEach(context.Background(), t.ends.Select(nil))
	for _, c := range t.Conns() {
		c.Close(errors.New("transport is closed"))
	}
	t.running.Wait()
	return err
}

func (t *Transport) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %q: %w", t.options.Name, t.address, fmt.Errorf(format, args...))
}

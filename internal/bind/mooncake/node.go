package mooncake

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"
)

// Memory is memory of this process by its absolute address, as its owner lets it be used. Its
// methods check the range and the rights, and keep the memory in place while they copy. They may be
// used by many goroutines.
type Memory interface {
	// Check says whether all of a range may be read, or written.
	Check(r Range, write bool) error
	// ReadAt fills p with the bytes at an address, WriteAt puts them there: all of them, or an error.
	ReadAt(p []byte, address uint64) error
	WriteAt(p []byte, address uint64) error
}

// Options say who a node is and what it serves.
type Options struct {
	// Address is where the port whose connections are given to Serve is reached, as host:port.
	Address string
	// Metadata is where descriptors are: P2P, which is the default, or http://host:port/metadata.
	Metadata string
	// Name is what peers call this segment by. With P2P it is always Address.
	Name string
	// Engine is what the engine at Address calls itself: other topoctl engines use their own
	// protocol there. "" without one.
	Engine string
	// Listen is where data connections are taken, as host:port; port 0 takes a free one.
	Listen  string
	Offered Memory // what peers may touch
	// Ranges are those of Offered that peers are told of.
	Ranges func() []Range
	Own    Memory // what transfers of this process may touch
	// Notified takes a notification; false refuses it. nil refuses all.
	Notified func(name, message string) bool
	Logger   *slog.Logger // nil logs nothing
	Limits   Limits
}

// P2P is the value of Options.Metadata without a server: a segment's name is its host:port.
const P2P = "P2PHANDSHAKE"

// Limits bound what peers can make a node hold. Zero means the default.
type Limits struct {
	Handshakes int           // at a time; default 64: the oldest makes room for another
	DataConns  int           // open at a time; default 1,024: one that is idle makes room for another
	Idle       time.Duration // that a data connection may be; default 10 min
	// Stall is how long a handshake may take, and each MiB of data; default 30 s, and 5 s for
	// handshakes at most.
	Stall time.Duration
	// Lanes are the data connections to one peer; default 8.
	Lanes int
}

const (
	maxHandshake = 5 * time.Second
	stallBytes   = 1 << 20
	lingerTime   = time.Second
	callTimeout  = 30 * time.Second // of calls whose context has no deadline
)

func (l Limits) withDefaults() Limits {
	for _, v := range []struct {
		at  *int
		def int
	}{{&l.Handshakes, 64}, {&l.DataConns, 1024}, {&l.Lanes, 8}} {
		if *v.at <= 0 {
			*v.at = v.def
		}
	}
	if l.Idle <= 0 {
		l.Idle = 10 * time.Minute
	}
	if l.Stall <= 0 {
		l.Stall = 30 * time.Second
	}
	return l
}

// Node is this process among Mooncake's segments: it serves memory to peers and opens them. Its
// methods may be used by many goroutines.
type Node struct {
	o         Options
	listener  net.Listener
	directory *directory
	version   int             // of the data protocol that peers are told
	ctx       context.Context // ends with the node
	cancel    context.CancelFunc
	tasks     sync.WaitGroup

	publishing sync.Mutex // one Publish at a time

	mu         sync.Mutex
	closed     bool
	handshakes map[*guest]bool
	guests     map[*guest]bool
	peers      map[*Peer]bool
}

// New makes a node, and makes it known. ctx bounds the making only.
func New(ctx context.Context, o Options) (*Node, error) {
	o.Limits = o.Limits.withDefaults()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	host, portText, err := net.SplitHostPort(o.Address)
	port, numErr := strconv.Atoi(portText)
	if err != nil || numErr != nil || host == "" {
		return nil, errorf("address %q: want host:port, by which peers reach this process", o.Address)
	}
	d, err := newDirectory(o.Metadata)
	if err != nil {
		return nil, err
	}
	if d.p2p() {
		o.Name = o.Address
	}
	if o.Name == "" || len(o.Name) > maxText {
		return nil, errorf("name %.40q: want 1 to %d bytes", o.Name, maxText)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, errorf("data port: %w", err)
	}
	n := &Node{
		o: o, listener: listener, directory: d, version: 2,
		handshakes: map[*guest]bool{}, guests: map[*guest]bool{}, peers: map[*Peer]bool{},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.tasks.Go(n.acceptData)
	if err := d.publish(ctx, n.descriptor(), rpcMeta{host, port}); err != nil {
		_ = n.Close()
		return nil, errorf("telling %s: %w", o.Metadata, err)
	}
	return n, nil
}

// Name is what peers open this segment by.
func (n *Node) Name() string { return n.o.Name }

// Publish tells peers that the ranges have changed. With P2P they see it when they ask.
func (n *Node) Publish(ctx context.Context) error {
	n.publishing.Lock()
	defer n.publishing.Unlock()
	if err := n.directory.update(ctx, n.descriptor); err != nil {
		return errorf("telling %s: %w", n.o.Metadata, err)
	}
	return nil
}

// descriptor is what peers are told.
func (n *Node) descriptor() *descriptor {
	d := &descriptor{
		Name: n.o.Name, Protocol: protocolTCP, DataPort: n.listener.Addr().(*net.TCPAddr).Port, ProtoVersion: n.version,
		Buffers: []buffer{},
	}
	if n.o.Engine != "" {
		d.Topoctl = &topoctlKey{Name: n.o.Engine}
	}
	if n.o.Ranges != nil {
		for _, r := range join(n.o.Ranges()) {
			d.Buffers = append(d.Buffers, buffer{n.o.Name, r.Address, r.Length})
		}
	}
	return d
}

// Close ends all connections and transfers and waits for them.
func (n *Node) Close() error {
	n.mu.Lock()
	first := !n.closed
	n.closed = true
	n.cancel()
	for _, guests := range []map[*guest]bool{n.handshakes, n.guests} {
		for g := range guests {
			_ = g.conn.Close()
		}
	}
	peers := n.peers
	n.peers = map[*Peer]bool{}
	n.mu.Unlock()
	err := n.listener.Close()
	for p := range peers {
		p.Close()
	}
	n.tasks.Wait()
	if !first {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
	defer cancel()
	if err := n.directory.withdraw(ctx, n.o.Name); err != nil {
		n.o.Logger.Warn("the metadata server still names this process", "server", n.o.Metadata, "error", err)
	}
	return err
}

// begin counts a task that Close waits for; false when the node is closed.
func (n *Node) begin() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.tasks.Add(1)
	return true
}

// bounded is a context for a call: it ends with the node or the peer that life is of, and in any case.
func bounded(ctx, life context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(ErrClosed) })
	end := func() { stop(); cancel(nil) }
	if _, ok := ctx.Deadline(); ok {
		return ctx, end
	}
	ctx, timeout := context.WithTimeout(ctx, callTimeout)
	return ctx, func() { timeout(); end() }
}

// Package shm moves memory between engines of one host: the requester maps the
// peer's region and copies by itself.
//
// A region that was allocated as memory.Shared is a sealed memfd. The passive
// side listens at a Unix socket (SOCK_SEQPACKET) in a directory that only its
// user can enter. Dial is given a random ticket by the peer's Accept, over the
// authenticated session, and presents it there, once. Over that connection the
// active side asks for a region's descriptor when a request first names it, maps
// it, and from then on READs and WRITEs are copies: small ones inside Post, larger
// ones by the transport's workers, in pieces and past the cache
// (memory.Copy). The passive side takes no part and counts nothing.
//
// Memory of a GPU cannot be mapped. The requester maps a window in its place, slots of
// pinned memory that the passive side copies to the GPU and from it when it is asked to:
// see windowPool, and farDevice for the requester's side.
//
// # What a peer gets
//
// The socket lets in processes of the same user and of root. Whoever holds a
// descriptor can map the region as it was granted: a region without PeerWrite is
// sealed against writing (F_SEAL_FUTURE_WRITE). There is no such seal against
// reading: a region that grants PeerWrite can be read by the same user's
// processes that were given it. Regions that grant nothing, and memory without a
// memfd (private, foreign), are refused: Register gives an empty key for those,
// Windowed for a GPU's, and Mapped for the others. A window holds what its connection moves and
// nothing else: no peer ever gets one that another has had.
//
// # The end of things
//
// When a region is closed, Deregister tells the peers that have mapped it. They
// unmap it after the copies that run, and refuse requests from then on. Nobody
// waits for them: the pages of a closed region belong to no other memory, so what
// lands there late is seen by nobody.
//
// Leave asks the requester to stop and waits for its answer, which comes after
// its last copy; or for the connection to end, which the requester (and the
// kernel, when its process dies) brings about only after the last copy too. A
// requester that does neither can still touch what it has mapped: Leave fails.
//
// A requester's copies never land late: completions come after the copy. Those of a device
// can, where the connection ends meanwhile; completions say so, and Leave waits for them.
package shm

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// The keys that Register gives: for a region that peers can map, and for one of device
// memory, which they reach through windows (see windowPool).
const (
	Mapped   = "memfd"
	Windowed = "window"
)

// Limits of requests and of what peers can make us hold.
const (
	maxSpans   = 4096
	maxBytes   = 256 << 20
	maxPosted  = 1024
	maxWorkers = 64
	maxConns   = 4096             // connections of peers, from Accept on
	connBytes  = 64 << 10         // that each takes: goroutines, answers that wait
	expectFor  = 30 * time.Second // how long they may take to arrive
	maxUnknown = 32               // that have not said hello
	helloTime  = 5 * time.Second
	closeTime  = 2 * time.Second // that peers have to stop in Close
)

// Options configure the transport.
type Options struct {
	// Dir is where the socket is made; it must belong to this user and let nobody
	// else in. "" makes a directory of the user's under XDG_RUNTIME_DIR or the
	// system's place for temporary files; if others have taken its name, one of its own.
	Dir     string
	Regions *memory.Table
	Memory  *transport.Shares // that peers may make us hold; nil: no bound
	// Workers copy what is too large for Post; 0 is one per processor, at most 8.
	Workers int
}

// Transport is shared memory. It implements transport.Transport.
type Transport struct {
	regions *memory.Table
	socket  *listener
	board   *board
	boards  *memory.Table // of the board alone
	copier  *copier
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc

	requests atomic.Int64
	refused  transport.Refusals

	mu      sync.Mutex
	closed  bool
	ends    transport.Ends[expectation, *passive]
	active  map[*conn]bool
	windows map[*memory.Pinned]*windowPool // by a device's pool for peers
	// windowErrs are those of ending windows.
	windowErrs error
	wg         sync.WaitGroup // readers, writers, the listener
}

var _ transport.Transport = (*Transport)(nil)

// expectation is a connection that Accept prepared.
type expectation struct {
	ticket ticket
	name   string
	rights *memory.Rights
}

// New makes the transport and listens. It fails where there is no memfd (not
// Linux).
func New(o Options) (*Transport, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	if o.Regions == nil {
		return nil, pkgerr.New("shm", "Options.Regions is missing")
	}
	socket, err := listen(o.Dir)
	if err != nil {
		return nil, pkgerr.Errorf("shm", "%w", err)
	}
	workers := o.Workers
	if workers <= 0 {
		workers = min(runtime.GOMAXPROCS(0), 8)
	}
	board, boards, err := newBoard()
	if err != nil {
		return nil, errors.Join(pkgerr.Errorf("shm", "%w", err), socket.close())
	}
	t := &Transport{
		regions: o.Regions,
		socket:  socket,
		board:   board,
		boards:  boards,
		copier:  newCopier(min(workers, maxWorkers), hostNodes()),
		active:  map[*conn]bool{},
		windows: map[*memory.Pinned]*windowPool{},
	}
	t.ends = transport.MakeEnds[expectation, *passive](&t.mu, transport.Price{{Of: transport.NewShares("shared memory connections", maxConns), N: 1}, {Of: o.Memory, N: connBytes}})
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.wg.Go(t.accept)
	return t, nil
}

// Name is "shm".
func (t *Transport) Name() string { return "shm" }

var limits = transport.Caps{SameHost: true, MaxSpans: maxSpans, MaxBytes: maxBytes, MaxPosted: maxPosted}

// Caps are the limits of requests.
func (t *Transport) Caps() transport.Caps { return limits }

// Endpoint is where peers of this host reach the transport.
func (t *Transport) Endpoint() transport.Endpoint {
	return transport.Endpoint{Transport: "shm", Address: t.socket.path}
}

// Register tells how peers can reach the region: the key is Mapped or Windowed; or "".
func (t *Transport) Register(r *memory.Region) (string, error) {
	if r.Grant() == memory.None {
		return "", nil
	}
	key, err := keyOf(r)
	if key == "" || err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return "", pkgerr.Errorf("shm", "register region %q: %w", r.Name(), net.ErrClosed)
	}
	return key, t.board.set(r.ID(), true)
}

func keyOf(r *memory.Region) (string, error) {
	if d := r.Device(); d != nil {
		// Its pool says how much memory may be pinned for peers, and that it can be.
		if _, err := memory.PoolOf(d, memory.ForAnswers); err != nil {
			return "", pkgerr.Errorf("shm", "region %q: %w", r.Name(), err)
		}
		return Windowed, nil
	}
	fd, has, err := r.Block().File(false)
	if err != nil || !has {
		return "", err
	}
	closeFD(fd)
	return Mapped, nil
}

// Deregister has peers refuse the region from now on, and unmap it soon. It does
// not wait for them.
func (t *Transport) Deregister(r *memory.Region) error {
	t.mu.Lock()
	var err error
	if !t.closed { // else there may be no board any more
		err = t.board.set(r.ID(), false)
	}
	t.mu.Unlock()
	if err != nil {
		return err
	}
	for _, p := range t.ends.Select(nil) {
		p.revoke(r.ID())
	}
	return nil
}

// Accept draws the ticket that the peer's connection presents.
func (t *Transport) Accept(_ context.Context, from transport.Origin, request []byte) ([]byte, error) {
	if len(request) != 1 || request[0] < version {
		return nil, pkgerr.Errorf("shm", "accept from %q: a request of %d bytes that is not version %d's or later", from.Name, len(request), version)
	}
	e, now := expectation{name: from.Name, rights: from.Rights}, time.Now()
	if _, err := rand.Read(e.ticket[:]); err != nil {
		return nil, pkgerr.Errorf("shm", "accept from %q: %w", from.Name, err)
	}
	k := transport.ConnKey{Session: from.Session, Conn: from.Conn}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, pkgerr.Errorf("shm", "accept from %q: %w", from.Name, net.ErrClosed)
	}
	t.ends.Expire(now)
	if err := t.ends.Expect(k, from.Account, e, now.Add(expectFor)); err != nil {
		return nil, pkgerr.Errorf("shm", "accept from %q: %w", from.Name, err)
	}
	return append([]byte{version}, e.ticket[:]...), nil
}

// Leave has the peer stop and confirm. See the package's words on the end of
// things.
func (t *Transport) Leave(ctx context.Context, from transport.Origin, conn transport.ConnID) error {
	return t.ends.Leave(ctx, transport.ConnKey{Session: from.Session, Conn: conn})
}

// LeaveAll leaves all connections of a session.
func (t *Transport) LeaveAll(ctx context.Context, session transport.SessionID) error {
	return t.ends.LeaveAll(ctx, session)
}

// Served counts requests for regions. The bytes are copied by the requester, and
// not counted here.
func (t *Transport) Served() transport.Served {
	t.mu.Lock()
	_, conns := t.ends.Len()
	t.mu.Unlock()
	return transport.Served{Uncounted: true, Requests: t.requests.Load(), Refused: t.refused.Counts(), Conns: conns}
}

// Serves lists the connections that peers have here.
func (t *Transport) Serves() []transport.Passive {
	var list []transport.Passive
	for _, p := range t.ends.Select(nil) {
		list = append(list, transport.Passive{Origin: transport.Origin{Session: p.key.Session, Conn: p.key.Conn, Name: p.name}})
	}
	return list
}

// Close ends all connections of both sides and waits for its goroutines. Peers
// are asked to stop as Leave does, for a short time: an error says that one did
// not confirm. What it copies then still lands in pages that only our regions and
// its own mappings have.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	actives := slices.Collect(maps.Keys(t.active))
	t.mu.Unlock()
	err := t.socket.close()
	t.cancel()
	for _, c := range actives {
		c.Close(errors.New("the transport was closed"))
	}
	passives := t.ends.Select(nil)
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err = errors.Join(err, transport.LeaveEach(ctx, passives))
	for _, p := range passives {
		p.cut()
	}
	t.wg.Wait()
	t.copier.close()
	return errors.Join(err, t.windowErrs, t.boards.Close())
}

var (
	_ transport.Offerer   = (*Transport)(nil)
	_ transport.Selective = (*Transport)(nil)
)

// Offers is where peers of this host reach the transport.
func (t *Transport) Offers() []transport.Endpoint { return []transport.Endpoint{t.Endpoint()} }

// Reaches says whether the peer's region can be mapped, or reached through windows.
func (t *Transport) Reaches(r *transport.RemoteRegion) bool {
	key := r.Key[t.Name()]
	return key == Mapped || key == Windowed
}

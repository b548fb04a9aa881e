// Package tcp moves memory over TCP: one-sided reads and writes, which the other
// engine answers without its application. docs/wire.md specifies what goes over
// the wire under "Data connections over TCP".
//
// The active end of a connection sends requests, each a header, descriptors of
// the peer's memory and, for a WRITE, the bytes; the passive end checks, moves and
// answers. Each end has a goroutine that reads and one that sends what is not sent
// at once by whoever posts; they never wait for each other, so that two ends whose
// buffers are full cannot hold each other up. Large payloads are received straight
// into the regions, small ones come through a staging buffer with many others.
package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/peertls"

	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/stage"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Options configure the transport. Zero fields take the defaults.
type Options struct {
	Regions  *memory.Table     // that peers may touch as far as they are granted
	Memory   *transport.Shares // that peers may make us hold; nil: no bound
	Identity session.Identity
	Logger   *slog.Logger // of what was changed on the way; nil: nothing is logged

	MaxSpans  int   // of one request; default and limit 512
	MaxBytes  int64 // of one request; default 64 MiB, limit 1 GiB
	MaxPosted int   // requests of one connection; default 128, limit 1024
	// Protection is the least that connections have; a peer may demand more.
	Protection transport.Protection
	// NoChecksum refuses to check payloads.
	NoChecksum bool
	// SpinPolls is how often a reader looks at an empty socket before it parks,
	// where that pays; default 200, some 50 µs; negative: never.
	SpinPolls int

	// Of the passive side.
	Conns           int           // that peers share; default 4,096
	ConnsPerSession int           // default 64
	ArriveTime      time.Duration // how long a connection is expected; default 30 s
	FrameTime       time.Duration // how long a frame may make no progress; default 30 s
	// CloseTime is how long a peer's frame may hold a region that is being closed;
	// default 250 ms.
	CloseTime time.Duration
	// ReleaseTime is how long a connection that was ended for that may take to let go of
	// the region; default 5 s.
	ReleaseTime time.Duration
}

// Transport is a transport.Transport and a transport.DataServer.
type Transport struct {
	o       Options
	regions *memory.Table
	offer   offer
	// dial is session.DialData but in tests.
	dial func(context.Context, session.DataDial) (net.Conn, error)

	requests atomic.Int64
	refused  transport.Refusals

	wg   sync.WaitGroup
	quit chan struct{}

	mu      sync.Mutex
	closed  bool
	active  map[*conn]struct{}
	ends    transport.Ends[grant, *passive]
	dropped map[string]int64
	altered session.RefusalLog
	// Bytes of passive ends that are gone.
	bytesRead, bytesWritten int64
}

// New makes a transport.
func New(o Options) (*Transport, error) {
	if o.Regions == nil {
		return nil, pkgerr.New("tcp", "no table of regions")
	}
	setDefault(&o.MaxSpans, spansLimit)
	setDefault(&o.MaxBytes, 64<<20)
	setDefault(&o.MaxPosted, 128)
	setDefault(&o.SpinPolls, spinPolls)
	setDefault(&o.Conns, 4096)
	setDefault(&o.ConnsPerSession, 64)
	setDefault(&o.ArriveTime, 30*time.Second)
	setDefault(&o.FrameTime, 30*time.Second)
	setDefault(&o.CloseTime, 250*time.Millisecond)
	setDefault(&o.ReleaseTime, 5*time.Second)
	if o.MaxSpans < 1 || o.MaxSpans > spansLimit || o.MaxBytes < 1 || o.MaxBytes > bytesLimit ||
		o.MaxPosted < 1 || o.MaxPosted > postedLimit {
		return nil, pkgerr.Errorf("tcp", "limits of %d spans, %d bytes, %d requests: each must be from 1 to %d, %d, %d",
			o.MaxSpans, o.MaxBytes, o.MaxPosted, spansLimit, bytesLimit, postedLimit)
	}
	t := &Transport{
		o: o, regions: o.Regions,
		offer:   offer{level: o.Protection, features: featureSum, spans: uint32(o.MaxSpans), posted: uint32(o.MaxPosted), bytes: uint64(o.MaxBytes)},
		quit:    make(chan struct{}),
		active:  map[*conn]struct{}{},
		dropped: map[string]int64{},
		altered: session.NewRefusalLog(o.Logger, "frames were changed on the way", alterations),
		dial:    session.DialData,
	}
	t.ends = transport.MakeEnds[grant, *passive](&t.mu, transport.Price{{Of: transport.NewShares("tcp connections", int64(o.Conns)), N: 1}, {Of: o.Memory, N: connBytes}})
	if o.NoChecksum {
		t.offer.features = 0
	}
	t.wg.Go(t.watch)
	return t, nil
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Name is "tcp".
func (t *Transport) Name() string { return "tcp" }

// Caps are the transport's limits.
func (t *Transport) Caps() transport.Caps {
	return transport.Caps{Checks: !t.o.NoChecksum, MaxSpans: t.o.MaxSpans, MaxBytes: t.o.MaxBytes, MaxPosted: t.o.MaxPosted}
}

// Register has nothing to do: a region's ID is enough. Only device memory that peers
// may touch needs its staging buffers, and its key has peers ask for it in pieces.
func (t *Transport) Register(r *memory.Region) (string, error) {
	d := r.Device()
	if d == nil || r.Grant() == memory.None {
		return "", nil
	}
	if _, err := memory.PoolOf(d, memory.ForAnswers); err != nil {
		return "", pkgerr.Errorf("tcp", "region %q: %w", r.Name(), err)
	}
	return stage.Key, nil
}

// Dial makes the active end of a connection.
func (t *Transport) Dial(ctx context.Context, d transport.Dial) (transport.Conn, error) {
	remote, err := netip.ParseAddrPort(d.Remote.Address)
	if err != nil {
		return nil, pkgerr.Errorf("tcp", "dial %q: %w", d.Remote.Address, err)
	}
	agreed, err := t.negotiate(ctx, d)
	if err != nil {
		return nil, pkgerr.Errorf("tcp", "dial %s: %w", remote, err)
	}
	nc, err := t.dial(ctx, session.DataDial{
		Identity: t.o.Identity, Session: d.Session, Conn: d.Conn, Key: agreed.key, Sealed: agreed.level == transport.Sealed,
		Route: session.Route{Local: d.Local, Interface: d.Interface, Remote: remote},
	})
	if err != nil {
		return nil, pkgerr.Errorf("tcp", "dial %s: %w", remote, err)
	}
	c := newConn(t, d, agreed)
	if err := checkSealed(nc, agreed.level); err != nil {
		_ = nc.Close()
		return nil, pkgerr.Errorf("tcp", "dial %s: %w", remote, err)
	}
	if err := awaitReady(ctx, nc, &c.in.guard); err != nil {
		_ = nc.Close()
		t.mu.Lock()
		t.drop(err, nc)
		t.mu.Unlock()
		return nil, pkgerr.Errorf("tcp", "dial %s: the peer did not let the connection in: %w", remote, err)
	}
	c.initPoll(t.polls())
	if err := c.init(c, nc, t.polls()); err != nil {
		_ = nc.Close()
		return nil, err
	}
	c.describe = describe(c.socket, agreed.offer)
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		_ = nc.Close()
		return nil, pkgerr.Errorf("tcp", "dial %s: the transport is %w", remote, net.ErrClosed)
	}
	t.active[c] = struct{}{}
	t.wg.Go(c.live)
	t.mu.Unlock()
	return c, nil
}

// awaitReady waits until the peer's transport has taken the connection over.
func awaitReady(ctx context.Context, c net.Conn, g *guard) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	got := make([]byte, headBytes+g.tail())
	if _, err := io.ReadFull(c, got); err != nil {
		return errors.Join(err, ctx.Err())
	}
	if !stop() {
		return ctx.Err()
	}
	var h header
	if !g.check(got) {
		return g.broken()
	}
	if h.get(got); h != (header{kind: frameReady}) {
		return violation("ready", "the answer %x is not what it should be", got)
	}
	return nil
}

func (t *Transport) polls() int { return max(t.o.SpinPolls, 0) }

// negotiate agrees on limits and features with the peer, and gets the connection's key.
func (t *Transport) negotiate(ctx context.Context, d transport.Dial) (grant, error) {
	reply, err := d.Exchange(ctx, t.offer.put())
	if err != nil {
		return grant{}, err
	}
	g, err := getGrant(reply)
	if err != nil {
		return grant{}, err
	}
	if g.level < t.offer.level {
		return grant{}, pkgerr.Errorf("tcp", "the peer agrees to protection %q: this engine accepts no less than %q", g.level, t.offer.level)
	}
	g.offer, err = t.offer.common(g.offer)
	return g, err
}

// describe says what a connection is made of.
func describe(c net.Conn, o offer) string {
	congestion := cmp.Or(session.CongestionControl(c), "unknown congestion control")
	return fmt.Sprintf("tcp %s > %s, %s, %s", c.LocalAddr(), c.RemoteAddr(), congestion, o.protection())
}

// protection says what the frames are protected by.
func (o offer) protection() string {
	sum := "no checksum"
	if o.features&featureSum != 0 {
		sum = "crc32 if asked for"
	}
	switch o.level {
	case transport.Headers:
		return "AES-GMAC headers, " + sum
	case transport.Payload:
		return "AES-GMAC headers and payload"
	case transport.Sealed:
		return "TLS 1.3"
	}
	return sum
}

// forget takes an active end out; it is over but for Lost.
func (t *Transport) forget(c *conn, cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.active, c)
	t.drop(cause, c.conn)
}

// The reasons for which a frame is not as it was sent.
const (
	headerTag      = "header-tag"
	headerChecksum = "header-checksum"
	payloadTags    = "payload-tags" // of a request, which fails alone
	record         = "record"       // of TLS
)

// alterations are what the log says of them.
var alterations = map[session.Refusal]string{
	headerTag: "the tag of a header is wrong: someone alters traffic between the hosts, or a network adapter is faulty. " +
		"The frame was refused; changed payloads are noticed with protection payload or sealed",
	headerChecksum: "the checksum of a header is wrong: a network adapter is faulty, or someone alters traffic between the hosts. " +
		"The frame was refused; protection headers, payload or sealed notices what is altered on purpose",
	payloadTags: "the tags of a payload are wrong: someone alters traffic between the hosts, a network adapter is faulty, " +
		"or a program changed its memory while it was sent. The request was refused",
	record: "the tag of a TLS record is wrong: someone alters traffic between the hosts, or a network adapter is faulty. The record was refused",
}

// dropReason is by what a connection is counted that the error ended: a frame that is not as it was
// sent, another breach of the protocol, want of progress ("stuck"), or a region that was closed
// ("region"); "" by nothing.
func dropReason(cause error) string {
	if v, ok := errors.AsType[*violated](cause); ok {
		return v.reason
	}
	if peertls.IsAltered(cause) {
		return record
	}
	return ""
}

// drop counts a connection that has ended. mu is held.
func (t *Transport) drop(cause error, c net.Conn) {
	reason := dropReason(cause)
	if reason == "" {
		return
	}
	t.dropped[reason]++
	if why := session.Refusal(reason); alterations[why] != "" {
		t.altered.Add(why, nil, c.RemoteAddr(), time.Now())
	}
}

// checked is told whether the payload of a frame was as it should be.
func (l *link) checked(t *Transport, sumOK bool) {
	if sumOK || !l.in.tagged {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.altered.Add(payloadTags, nil, l.conn.RemoteAddr(), time.Now())
}

// Served counts what peers did.
func (t *Transport) Served() transport.Served {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := transport.Served{
		ReadBytes: t.bytesRead, WrittenBytes: t.bytesWritten,
		Requests: t.requests.Load(), Refused: t.refused.Counts(), Dropped: maps.Clone(t.dropped),
	}
	_, s.Conns = t.ends.Len()
	for _, p := range t.ends.All() {
		s.ReadBytes += p.bytesRead.Load()
		s.WrittenBytes += p.bytesWritten.Load()
	}
	return s
}

// Serves lists the passive ends.
func (t *Transport) Serves() []transport.Passive {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []transport.Passive
	for key, p := range t.ends.All() {
		read, written := p.bytesRead.Load(), p.bytesWritten.Load()
		list = append(list, transport.Passive{
			Origin:       transport.Origin{Session: key.Session, Conn: key.Conn, Name: p.name},
			LocalAddress: p.conn.LocalAddr().String(), RemoteAddress: p.conn.RemoteAddr().String(),
			ReadBytes: &read, WrittenBytes: &written,
		})
	}
	return list
}

// Close ends all connections and waits for its goroutines.
func (t *Transport) Close() error {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		close(t.quit)
	}
	for c := range t.active {
		c.Close(pkgerr.New("tcp", "the transport is closed"))
	}
	for _, p := range t.ends.All() {
		p.fail(net.ErrClosed)
	}
	t.mu.Unlock()
	t.wg.Wait()
	return nil
}

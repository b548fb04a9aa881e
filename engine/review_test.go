package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/sched"
)

// An idle connection is lost at the moment at which somebody submits.
func TestLostWhileSubmitting(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	list := []TransportFactory{n.transport(fake.Options{Name: "fake"})}
	p := &pair{server: newEngine(t, Options{Name: "server", Transports: list}), client: newEngine(t, Options{Name: "client", Transports: list})}
	// Who needs a new work stands still for a while.
	var slow atomic.Int32
	p.client.pools.works.New = func() any {
		if slow.Add(-1) == 0 {
			time.Sleep(200 * time.Millisecond)
		}
		return &work{}
	}
	var err error
	p.theirs, err = p.server.Alloc(4096, RegionOptions{Name: "kv", Grant: memory.PeerWrite})
	must(t, err)
	p.mine, err = p.client.Alloc(4096, RegionOptions{Name: "mine"})
	must(t, err)
	ctx := testContext(t)
	p.open(t, ctx)
	p.warm(t)
	runtime.GC() // twice: the pool is empty then
	runtime.GC()
	slow.Store(1)
	n.of("client", "fake").Conns()[0].Kill(errors.New("gone"))
	time.Sleep(50 * time.Millisecond)
	ok(t, p.peer.Write(ctx, p.mine.Span(0, 1), p.to.At(0)))
}

// A peer is lost with a write on the wire: when it is opened again, the place of
// the write cannot be used before it has left the old connection.
func TestQuarantineAfterLostPeer(t *testing.T) {
	checkLeaks(t)
	for name, c := range map[string]quarantineCase{
		"opened again":     {},
		"open another way": {twice: true},
		// Behind a balancer the address answers with another engine, and the former one still runs.
		"another engine at its address": {replaced: true},
		"another engine resumes":        {resumes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quarantineAfterLostPeer(t, c)
		})
	}
}

type quarantineCase struct{ twice, replaced, resumes bool }

func quarantineAfterLostPeer(t *testing.T, c quarantineCase) {
	n := newNetwork()
	list := []TransportFactory{n.transport(fake.Options{Name: "fake"})}
	server := newEngine(t, Options{Name: "server", Transports: list})
	way := newProxy(t, server.Addrs()[0].String())
	p := clientThrough(t, way, server, 4096, Options{Name: "client", Transports: list, GiveUp: 2 * time.Second})
	ctx := testContext(t)
	other := &pair{server: server, client: p.client}
	second := newEngine(t, Options{Name: "second", Transports: list})
	if c.twice {
		other.open(t, ctx)
	}
	p.warm(t)
	there := n.of("server", "fake")
	release := make(chan struct{})
	there.mu.Lock()
	there.leave = release
	there.mu.Unlock()
	conn := n.of("client", "fake").Conns()[0]
	conn.HoldWrites()
	b := p.submit(t, ctx, []Op{WriteOp(p.mine.Span(0, 100), p.to.At(100))}, SubmitOptions{})
	eventually(t, "the write is on the wire", func() bool { return conn.Held() == 1 })
	way.SetTarget("127.0.0.1:1") // nobody is there
	if c.resumes {
		way.SetTarget(second.Addrs()[0].String())
	}
	way.Cut()
	<-b.Done()
	switch err := b.Err(); {
	case c.resumes && !errors.Is(err, ErrPeerRestarted):
		t.Fatalf("got %v, want ErrPeerRestarted", err)
	case !c.resumes && (!errors.Is(err, ErrUnsafeBuffer) || !errors.Is(err, ErrPeerLost)):
		t.Fatalf("got %v, want ErrUnsafeBuffer and ErrPeerLost", err)
	}
	if c.replaced || c.resumes {
		way.SetTarget(second.Addrs()[0].String())
		q, err := p.client.Open(ctx, way.Address())
		if err != nil || q.Epoch() != second.Epoch() {
			t.Fatalf("opening the second engine: %v", err)
		}
		ok(t, p.peer.Close())
	}
	if !c.twice {
		other.open(t, ctx)
	}
	p.peer, p.to = other.peer, other.to
	err := p.peer.Write(ctx, p.mine.Span(0, 100), p.to.At(100))
	if !errors.Is(err, ErrQuarantined) {
		t.Errorf("write where bytes of a lost connection may land: %v", err)
	}
	close(release)
	eventually(t, "the place can be used again", func() bool {
		return p.peer.Write(ctx, p.mine.Span(0, 100), p.to.At(100)) == nil
	})
	if landed := conn.ReleaseWrites(); landed != 0 {
		t.Errorf("%d late writes landed", landed)
	}
}

// Deadlines that are as good as none.
func TestFarDeadline(t *testing.T) {
	checkLeaks(t)
	p, _ := fakePair(t, 4096, fake.Options{})
	ctx, cancel := context.WithDeadline(context.Background(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
	defer cancel()
	ok(t, p.peer.Write(ctx, p.mine.Span(0, 1), p.to.At(0)))
	ok(t, p.peer.Notify(ctx, []byte("x")))
}

// ReadAt and WriteAt of an engine that is closed, or being closed, are errors.
func TestReadAtWhileClosing(t *testing.T) {
	checkLeaks(t)
	p, _ := fakePair(t, 1<<20, fake.Options{})
	var wg sync.WaitGroup
	over := make(chan struct{})
	buffer := make([]byte, 3<<19)
	must(t, errOf(p.to.ReadAt(buffer[:10], 0)))
	for range 4 {
		wg.Go(func() {
			mine := make([]byte, 1<<19)
			for {
				_, rerr := p.to.ReadAt(mine, 0)
				_, werr := p.to.WriteAt(mine, 0)
				select {
				case <-over:
					if rerr == nil || werr == nil {
						continue
					}
					return
				default:
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	_ = p.client.Close()
	close(over)
	wg.Wait()
	if _, err := p.to.WriteAt(buffer[:10], 0); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// counted is a transport that counts the regions that it has.
type counted struct {
	transport.Transport
	mu   sync.Mutex
	gone int
}

func (c *counted) Unwrap() transport.Transport { return c.Transport }

func (c *counted) Deregister(r *mem.Region) error {
	c.mu.Lock()
	c.gone++
	c.mu.Unlock()
	return c.Transport.Deregister(r)
}

// clinging is a transport that cannot give regions up for a while.
type clinging struct {
	transport.Transport
	clings atomic.Bool
}

func (c *clinging) Unwrap() transport.Transport { return c.Transport }

func (c *clinging) Deregister(r *mem.Region) error {
	if c.clings.Load() {
		return errors.New("it clings to it")
	}
	return c.Transport.Deregister(r)
}

// A region that a transport cannot give up is not closed: its memory is not taken away, and
// Close says so each time until it is true.
func TestRegionThatATransportKeeps(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	var c *clinging
	build := n.transport(fake.Options{Name: "fake"})
	e := newEngine(t, Options{Transports: []TransportFactory{&transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		x, err := build.(*transport.Factory).Make(env)
		c = &clinging{Transport: x}
		return c, err
	}}}})
	r, err := e.Alloc(4096, RegionOptions{Grant: memory.PeerWrite})
	must(t, err)
	c.clings.Store(true)
	for range 2 {
		if err := r.Close(testContext(t)); err == nil || !strings.Contains(err.Error(), "it clings to it") {
			t.Errorf("the transport still has it, and Close says %v", err)
		}
	}
	r.Bytes()[0]++ // it is still there
	c.clings.Store(false)
	for range 2 {
		ok(t, r.Close(testContext(t)))
	}
}

// Two close a region at once: it is taken from the transports all the same.
func TestRegionClosedTwice(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	var c *counted
	build := n.transport(fake.Options{Name: "fake"})
	e := newEngine(t, Options{Transports: []TransportFactory{&transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		x, err := build.(*transport.Factory).Make(env)
		c = &counted{Transport: x}
		return c, err
	}}}})
	r, err := e.Alloc(4096, RegionOptions{Grant: memory.PeerWrite})
	must(t, err)
	ctx := testContext(t)
	e.offering.mu.Lock() // the first one stands here
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- r.Close(ctx) }()
	eventually(t, "the first one is closing", r.closed.Load)
	go func() { second <- r.Close(ctx) }()
	select {
	case err := <-second:
		t.Errorf("the second one is done (%v) before the region is taken from the transports", err)
	case <-time.After(50 * time.Millisecond):
	}
	e.offering.mu.Unlock()
	ok(t, <-first)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != 1 {
		t.Errorf("the region was taken from the transport %d times", c.gone)
	}
}

// Submit beside Close: an error, and no race.
func TestSubmitWhileClosing(t *testing.T) {
	checkLeaks(t)
	p, _ := fakePair(t, 4096, fake.Options{})
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				_ = p.peer.Write(context.Background(), p.mine.Span(0, 1), p.to.At(0))
				_ = p.mine.Size()
			}
		}
	})
	time.Sleep(10 * time.Millisecond)
	_ = p.client.Close()
	close(over)
	wg.Wait()
	if err := p.peer.Write(context.Background(), p.mine.Span(0, 1), p.to.At(0)); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A peer of shared memory that does not say that it has stopped does not keep the
// engine from closing.
func TestCloseWithPeerThatDoesNotStop(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: waits for two seconds")
	}
	checkLeaks(t)
	server := newEngine(t, Options{Name: "server", Transports: []TransportFactory{SHM()}})
	server.leaveTime = 50 * time.Millisecond
	ctx := testContext(t)
	s, err := session.Dial(ctx, session.DialOptions{
		Identity: session.Identity{Name: "hostile", Epoch: 7},
		Routes:   func() []session.Route { return []session.Route{{Remote: server.Addrs()[0]}} },
	})
	must(t, err)
	defer s.Close()
	answer, err := s.Call(ctx, methodAccept, acceptBody("shm", 1, []byte{1}))
	must(t, err)
	offerer, _ := transport.As[transport.Offerer](server.carriers[0].t)
	offers := offerer.Offers()
	c, err := net.Dial("unixpacket", offers[0].Address)
	must(t, err)
	defer c.Close()
	id := s.ID()
	hello := append([]byte("toposhm1"), id[:]...)
	hello = append(hello, 0, 0, 0, 0, 0, 0, 0, 1)
	must(t, errOf(c.Write(append(hello, answer[1:]...))))
	if _, err := c.Read(make([]byte, 100)); err != nil { // welcome
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- server.Close() }()
	select {
	case <-closed: // the transport says that the peer did not confirm
	case <-time.After(within):
		t.Error("Close still waits for the peer")
		c.Close()
		<-closed
	}
}

// A peer that changes its addresses all the time leaves nothing behind.
func TestManyChangesOfAPeer(t *testing.T) {
	checkLeaks(t)
	p, n := fakePair(t, 4096, fake.Options{})
	p.warm(t)
	there := n.of("server", "fake").Endpoint("")
	told := func() []transport.Endpoint {
		p.peer.mu.RLock()
		defer p.peer.mu.RUnlock()
		return p.peer.desc.Endpoints
	}
	for i := range 20 {
		list := []transport.Endpoint{there}
		if i%2 == 0 {
			list = append(list, transport.Endpoint{Transport: "fake", Address: fmt.Sprint("nowhere ", i)})
		}
		p.server.reoffer(nil, list, "")
		eventually(t, "the change is known", func() bool { return slices.Equal(told(), list) })
	}
	p.warm(t)
	e := p.client
	eventually(t, "its ports are few", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(p.peer.sides) <= 4
	})
	ok(t, p.peer.Close())
	eventually(t, "its lanes and ports are forgotten", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.core.Lanes(nil)) == 0 && len(p.peer.sides) == 0
	})
}

// A peer with which nothing is going on is not lost, however soon one gives up.
func TestIdlePeerIsNotLost(t *testing.T) {
	checkLeaks(t)
	for _, giveUp := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 8 * time.Second} {
		p := newPair(t, 4096, Options{GiveUp: giveUp}, Options{})
		select {
		case <-time.After(3 * giveUp):
			return
		case <-p.peer.Done(): // rightly so where the machine stood still for that long
			t.Log(p.peer.Err())
		}
	}
	t.Error("an idle peer was lost each time")
}

// A peer that ends before the scheduler has it leaves what was done before alone: work is pooled.
func TestEndBeforeScheduled(t *testing.T) {
	checkLeaks(t)
	e := newEngine(t, Options{Name: "client", Transports: []TransportFactory{TCP()}})
	w := e.getWork()
	w.actions = append(w.actions, sched.Action{Do: sched.Connect, Conn: 1})
	e.putWork(w)
	p := &Peer{engine: e, name: "server", gone: make(chan struct{})}
	p.end(ErrClosed, true)
	<-p.Done()
}

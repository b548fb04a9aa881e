package transporttest

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// pair is what a check works with: two ends, one region on each side, links.
type pair struct {
	testing.TB
	h       Harness
	ends    *Ends
	session transport.SessionID
	lastID  transport.ConnID
	links   []*Client
	local   *area // at the active side, granted to nobody
	remote  *area // at the passive side, granted for both
}

func newPair(t testing.TB, h Harness) *pair {
	p := &pair{TB: t, h: h, ends: h.New(t)}
	p.session = p.ends.Session
	if p.session == (transport.SessionID{}) {
		if _, err := rand.Read(p.session[:]); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(p.close)
	p.local = p.area(p.ends.Active, "local", h.RegionBytes, memory.None)
	p.remote = p.area(p.ends.Passive, "remote", h.RegionBytes, memory.PeerRead|memory.PeerWrite)
	return p
}

// area allocates and registers a region.
func (p *pair) area(e End, name string, size int64, grant memory.Grant) *area {
	p.Helper()
	if e.Far != nil {
		return p.farArea(e, name, size, grant)
	}
	b := p.h.Alloc(p, e.Transport == p.ends.Passive.Transport, size)
	r, err := e.Regions.Add(b, name, "", grant)
	if err != nil {
		p.Fatalf("adding region %q: %v", name, err)
	}
	key, err := e.Transport.Register(r)
	if err != nil {
		p.Fatalf("registering region %q: %v", name, err)
	}
	a := &area{p: p, name: name, region: r, shadow: make([]byte, size)}
	a.remote = &transport.RemoteRegion{ID: r.ID(), Bytes: size, Grant: grant, Key: map[string]string{}}
	if key != "" {
		a.remote.Key[e.Transport.Name()] = key
	}
	a.fill(uint64(r.ID()) + uint64(len(name)))
	return a
}

// farArea has another machine make one.
func (p *pair) farArea(e End, name string, size int64, grant memory.Grant) *area {
	p.Helper()
	r, err := e.Far.Add(name, size, grant)
	if err != nil {
		p.Fatalf("adding region %q: %v", name, err)
	}
	a := &area{p: p, name: name, far: r, remote: r.Remote(), shadow: make([]byte, size)}
	a.fill(uint64(a.remote.ID) + uint64(len(name)))
	return a
}

// drop closes a region as an engine does: nobody pins it any more, transports give it
// up, and only then its bytes are hidden.
func (p *pair) drop(e End, a *area) {
	p.Helper()
	ctx, cancel := p.context()
	defer cancel()
	if a.far != nil {
		if err := a.far.Close(ctx); err != nil {
			p.Fatalf("closing region %q: %v", a.name, err)
		}
		return
	}
	pinned := a.region.Pin()
	over, cancelled := context.WithCancel(ctx)
	cancelled()
	_ = a.region.Close(over) // fails for our pin
	if err := e.Transport.Deregister(a.region); err != nil {
		p.Fatalf("deregistering region %q: %v", a.name, err)
	}
	if pinned {
		a.region.Unpin()
	}
	if err := a.region.Close(ctx); err != nil {
		p.Fatalf("closing region %q: %v", a.name, err)
	}
}

func (p *pair) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), p.h.Patience)
}

// close ends everything and reports what the links saw that was against the rules,
// also what came late.
func (p *pair) close() {
	for _, l := range p.links {
		l.Conn.Close(nil)
	}
	if err := p.ends.Active.Transport.Close(); err != nil {
		p.Errorf("closing the active transport: %v", err)
	}
	if err := p.ends.Passive.Transport.Close(); err != nil {
		p.Errorf("closing the passive transport: %v", err)
	}
	for _, l := range p.links {
		l.finish()
	}
	p.closeTable(p.ends.Active)
	p.closeTable(p.ends.Passive)
}

// closeTable closes the table of an end that is here.
func (p *pair) closeTable(e End) {
	p.Helper()
	if e.Far != nil {
		return
	}
	if err := e.Regions.Close(); err != nil {
		p.Errorf("closing a table: %v", err)
	}
}

// origin is us, as the peer knows us.
func (p *pair) origin(conn transport.ConnID) transport.Origin {
	return transport.Origin{Session: p.session, Conn: conn, Name: "active"}
}

// exchange carries a request to the peer, as a session does.
func (p *pair) exchange(conn transport.ConnID) func(context.Context, []byte) ([]byte, error) {
	return func(ctx context.Context, request []byte) ([]byte, error) {
		return p.ends.Passive.Transport.Accept(ctx, p.origin(conn), append([]byte(nil), request...))
	}
}

// request for a dial that works.
func (p *pair) request(l *Client) transport.Dial {
	p.lastID++
	return transport.Dial{
		Session: p.session, Conn: p.lastID, Local: p.ends.Local, Interface: p.ends.Interface,
		Remote: p.ends.Passive.Endpoint, Exchange: p.exchange(p.lastID), Events: l.Events(),
	}
}

// dial makes a connection.
func (p *pair) dial() *Client {
	p.Helper()
	ctx, cancel := p.context()
	defer cancel()
	l := newLink(p)
	d := p.request(l)
	conn, err := p.ends.Active.Transport.Dial(ctx, d)
	if err != nil {
		p.Fatalf("dial: %v", err)
	}
	if conn.ID() != d.Conn {
		p.Fatalf("dialled connection %d, got %d", d.Conn, conn.ID())
	}
	l.Conn = conn
	p.links = append(p.links, l)
	return l
}

// dialMustFail makes sure that it does, and in time.
func (p *pair) dialMustFail(ctx context.Context, d transport.Dial) error {
	p.Helper()
	type result struct {
		conn transport.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		c, err := p.ends.Active.Transport.Dial(ctx, d)
		done <- result{c, err}
	}()
	select {
	case r := <-done:
		if r.err == nil {
			r.conn.Close(nil)
			p.Fatal("the dial made a connection")
		}
		return r.err
	case <-time.After(p.h.Patience):
		p.Fatalf("the dial has not returned after %v", p.h.Patience)
		return nil
	}
}

// leave ends the passive end of a connection, and must work.
func (p *pair) leave(conn transport.ConnID) {
	p.Helper()
	ctx, cancel := p.context()
	defer cancel()
	if err := p.ends.Passive.Transport.Leave(ctx, p.origin(conn), conn); err != nil {
		p.Fatalf("leave: %v", err)
	}
}

// eventually waits for something that must happen.
func (p *pair) eventually(what string, is func() bool) {
	p.Helper()
	for deadline := time.Now().Add(p.h.Patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("after %v: %s", p.h.Patience, what)
		}
	}
}

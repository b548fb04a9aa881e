package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
)

// The latest batches are listed: those that run first, and failures are not pushed out by
// the many that work.
func TestRecent(t *testing.T) {
	checkLeaks(t)
	p, n := fakePair(t, 1<<20, fake.Options{})
	ctx := testContext(t)
	if got := p.client.Recent(); len(got) != 0 {
		t.Errorf("before any batch: %+v", got)
	}
	submit := func(label string) *Batch {
		b := p.submit(t, ctx, []Op{WriteOp(p.mine.Span(0, 100), p.to.At(0))}, SubmitOptions{Label: label})
		return b
	}
	p.warm(t)
	stallAll(n.of("client", "fake"), true)
	failed := submit("bad")
	failed.Cancel()
	stallAll(n.of("client", "fake"), false)
	if err := failed.Wait(ctx); err == nil {
		t.Fatal("a cancelled batch has no error")
	}
	for i := range 3 * recentDone {
		must(t, submit(fmt.Sprint("done ", i)).Wait(ctx))
	}
	p.warm(t)
	stallAll(n.of("client", "fake"), true)
	var running []*Batch
	for i := range recentRunning + 4 {
		running = append(running, submit(fmt.Sprint("running ", i)))
	}
	var got []string
	for _, x := range p.client.Recent() {
		got = append(got, string(x.State)+" "+x.Label)
		keepsSchema(t, x)
		if x.Schema != SchemaExplain || len(x.Routes) != 1 || len(x.Routes[0].Groups) != 1 {
			t.Errorf("%+v", x)
		}
		switch {
		case x.State == "running" && (x.EndedAgoNS != 0 || len(x.Routes[0].Used) != 0):
			t.Errorf("%+v", x)
		case x.State == "done" && (x.EndedAgoNS <= 0 || x.Bytes != x.Total || len(x.Routes[0].Used) != 1 || x.Routes[0].Used[0].Lane == ""):
			t.Errorf("%+v", x)
		}
	}
	var want []string
	for i := recentRunning + 3; i >= 4; i-- {
		want = append(want, fmt.Sprint("running running ", i))
	}
	want = append(want, "done ") // warm
	for i := 3*recentDone - 1; i > 2*recentDone; i-- {
		want = append(want, fmt.Sprint("done done ", i))
	}
	want = append(want, "failed bad")
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	stallAll(n.of("client", "fake"), false)
	for _, b := range running {
		ok(t, b.Wait(ctx))
	}
	ok(t, p.peer.Close())
	if got := p.client.Recent(); len(got) != recentDone+1 {
		t.Errorf("%d batches of a peer that was closed, want %d", len(got), recentDone+1)
	}
}

// Asking while batches come and go breaks nothing.
func TestRecentWhileBusy(t *testing.T) {
	checkLeaks(t)
	for _, name := range []string{"fake", "tcp"} {
		p := transportPair(t, name, 1<<20)
		ctx := testContext(t)
		p.warm(t)
		var working, asking sync.WaitGroup
		over := make(chan struct{})
		asking.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				for _, x := range p.client.Recent() {
					if x.Bytes > x.Total || x.DurationNS < 0 || x.EndedAgoNS < 0 || x.State == "done" && x.Bytes != x.Total {
						t.Errorf("%s: %+v", name, x)
						return
					}
				}
				p.server.Stats()
			}
		})
		for worker := range int64(4) {
			working.Go(func() {
				for range 150 {
					if err := p.peer.Write(ctx, p.mine.Span(worker<<18, 5000), p.to.At(worker<<18)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		working.Wait()
		close(over)
		asking.Wait()
	}
}

// Explanations that are long are cut, and say so.
func TestRecentIsShort(t *testing.T) {
	long := strings.Repeat("ä", recentText)
	x := &Explanation{Label: long, Error: long, Fences: make([]Fence, 100)}
	for range 10 {
		r := RouteRecord{Used: make([]LaneUse, 99)}
		r.Groups = append(r.Groups, GroupRecord{Transport: "rdma", Reason: long, Lanes: make([]LaneRecord, 64)})
		for range 50 {
			r.Groups[0].Rejected = append(r.Groups[0].Rejected, long)
			x.Notes = append(x.Notes, long)
		}
		r.Used[0].Error = long
		x.Routes = append(x.Routes, r)
	}
	notes := x.Notes
	x.shorten()
	g := &x.Routes[0].Groups[0]
	if len(x.Label) > recentText+3 || len(x.Error) > recentText+3 || len(x.Fences) != recentNotes || len(x.Routes) != recentRoutes ||
		len(g.Lanes) != recentLanes || len(g.Reason) > recentText+3 || len(g.Rejected) != recentRejected+1 || g.Rejected[recentRejected] != "and 42 more" ||
		len(x.Routes[0].Used) != recentLanes || len(x.Routes[0].Used[0].Error) > recentText+3 {
		t.Errorf("%+v", x)
	}
	for _, want := range []string{"and 492 more", "6 more pairs of memory locations are left out here", "48 more rdma lanes are left out here", "83 more lanes that were used are left out here"} {
		if !slices.Contains(x.Notes, want) {
			t.Errorf("no note %q", want)
		}
	}
	if notes[0] != long {
		t.Error("the batch's own notes are changed")
	}
	y := &Explanation{Label: "a", Notes: []string{"b"}, Routes: []RouteRecord{{Groups: []GroupRecord{{Lanes: make([]LaneRecord, recentLanes)}}}}}
	y.shorten()
	if y.Label != "a" || len(y.Notes) != 1 || len(y.Routes[0].Groups[0].Lanes) != recentLanes {
		t.Errorf("what is short was changed: %+v", y)
	}
}

// The connections of peers are listed with what moved over each.
func TestServed(t *testing.T) {
	checkLeaks(t)
	for _, name := range []string{"tcp", "shm"} {
		p := transportPair(t, name, 1<<20)
		ctx := testContext(t)
		if s := p.server.Stats(); len(s.Served) != 0 || s.ServedUnlisted != 0 {
			t.Errorf("%s: nobody has connected, and there is %+v", name, s.Served)
		}
		must(t, p.peer.Write(ctx, p.mine.Span(0, 1000), p.to.At(0)))
		must(t, p.peer.Read(ctx, p.mine.Span(0, 300), p.to.At(0)))
		counted := name == "tcp"
		eventually(t, name+": the read is counted", func() bool { return !counted || p.server.Stats().ServedReadBytes == 300 })
		s := p.server.Stats()
		if len(s.Served) != 1 {
			t.Fatalf("%s: %+v", name, s.Served)
		}
		c := s.Served[0]
		if c.Peer != "client" || string(c.Transport) != name || c.Conn == 0 || (c.ReadBytes != nil) != counted || (c.WrittenBytes != nil) != counted {
			t.Errorf("%s: %+v", name, c)
		}
		if counted && (*c.ReadBytes != 300 || *c.WrittenBytes != 1000) {
			t.Errorf("read %d, written %d", *c.ReadBytes, *c.WrittenBytes)
		}
		if _, err := netip.ParseAddrPort(c.RemoteAddress); counted != (err == nil) {
			t.Errorf("%s: remote address %q", name, c.RemoteAddress)
		}
		ok(t, p.peer.Close())
		eventually(t, name+": the connection is listed no more", func() bool { return len(p.server.Stats().Served) == 0 })
		if s := p.server.Stats(); counted && (s.ServedReadBytes != 300 || s.ServedWrittenBytes != 1000) {
			t.Errorf("what is gone is not counted any more: %+v", s)
		}
	}
}

// crowd is a transport with many connections.
type crowd struct {
	transport.Transport
	list []transport.Passive
}

func (c *crowd) Unwrap() transport.Transport { return c.Transport }
func (c *crowd) Serves() []transport.Passive { return c.list }

// The list is bounded, and names the port that an address is of.
func TestServedIsBounded(t *testing.T) {
	c := &crowd{}
	e := newEngine(t, Options{Ports: Ports{Topology: twoPorts(t, "n1", 1, "eth0", "eth1")}, Transports: []TransportFactory{&transport.Factory{Make: func(env transport.Env) (_ transport.Transport, err error) {
		c.Transport, err = TCP().(*transport.Factory).Make(env)
		return c, err
	}}}})
	for i := range servedMost + 10 {
		c.list = append(c.list, transport.Passive{
			Origin: transport.Origin{Conn: transport.ConnID(i), Name: fmt.Sprint("peer ", i%7)}, LocalAddress: fmt.Sprintf("10.0.%d.1:7411", i%3), RemoteAddress: "10.0.0.9:1",
		})
	}
	s := e.Stats()
	if len(s.Served) != servedMost || s.ServedUnlisted != 10 {
		t.Errorf("%d listed, %d not", len(s.Served), s.ServedUnlisted)
	}
	ports := map[string]string{"10.0.0.1:7411": "net:eth0", "10.0.1.1:7411": "net:eth1", "10.0.2.1:7411": ""}
	for i, x := range s.Served {
		if string(x.LocalPort) != ports[x.LocalAddress] {
			t.Fatalf("%s is of port %q", x.LocalAddress, x.LocalPort)
		}
		if i > 0 && s.Served[i-1].Peer > x.Peer {
			t.Fatal("not in the order of peers")
		}
	}
}

package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

var errTest = errors.New("closed by the test")

// quiet is how long bytes that must not come are waited for. It decides nothing
// when the transport is right.
const quiet = 20 * time.Millisecond

func checkPostNeverBlocks(p *pair) {
	if p.ends.Stall == nil {
		p.Skip("the harness cannot stall the passive end")
	}
	l := p.dial()
	_, maxBytes, maxPosted := p.limits(l)
	p.usable(l, "before the passive end stands still")
	p.ends.Stall(true)
	n := min(maxBytes, 256<<10, p.h.RegionBytes/2)
	var posted []*transport.Request
	for more := true; more; {
		// Nothing overlaps but writes of the same bytes.
		size := n
		if len(posted) > 64 {
			size = min(n, 64)
		}
		requests := []*transport.Request{
			requestOn(transport.Write, p.local, p.remote, piece{0, 0, size}),
			requestOn(transport.Read, p.local, p.remote, piece{n, n, size}),
		}
		taken := make(chan int, 1)
		go func() { taken <- l.TryPost(requests) }()
		select {
		case k := <-taken:
			posted = append(posted, requests[:k]...)
			more = k == len(requests)
		case <-time.After(p.h.Patience):
			p.ends.Stall(false)
			p.Fatalf("Post has not returned after %v, with %d requests posted", p.h.Patience, len(posted))
		}
		if len(posted) > maxPosted {
			p.ends.Stall(false)
			p.Fatalf("%d requests are posted, the limit is %d", len(posted), maxPosted)
		}
	}
	p.ends.Stall(false)
	if !l.wait(posted) {
		p.FailNow()
	}
	for _, r := range posted {
		if err := l.End(r).Err; err != nil {
			p.Fatalf("after the passive end stood still: %v", err)
		}
	}
	copy(p.remote.shadow[:n], p.local.shadow[:n])
	copy(p.local.shadow[n:2*n], p.remote.shadow[n:2*n])
	p.verify("after the passive end stood still")
}

// postAfter posts on a connection that is over: nothing is taken, or it fails at
// once.
func (p *pair) postAfter(l *Client) {
	p.Helper()
	r := requestOn(transport.Write, p.local, p.remote, piece{0, 0, 8})
	if l.TryPost([]*transport.Request{r}) == 1 && (!l.HasEnded(r) || l.End(r).Err == nil) {
		p.Error("a connection that is over took a request and did not fail it")
	}
}

func checkCloseIdle(p *pair) {
	l := p.dial()
	p.usable(l, "before close")
	l.Conn.Close(nil)
	l.Conn.Close(errTest)
	if err := l.WaitLost(); err != nil {
		p.Errorf("after Close, Lost says: %v", err)
	}
	p.postAfter(l)
	l.Conn.Close(errTest)
	p.eventually("the passive end is still open", func() bool { return p.ends.Passive.Transport.Served().Conns == 0 })
	p.usable(p.dial(), "on another connection")
}

// settled is for a connection that has ended under load: everything has exactly
// one completion, what ended well is in place, what failed was closed.
func (p *pair) settled(l *Client, requests []*transport.Request, pieces []piece) {
	p.Helper()
	for _, r := range requests {
		l.mu.Lock()
		known := l.state[r] != 0
		l.mu.Unlock()
		if known && !l.HasEnded(r) {
			p.Fatalf("Lost came before all completions: %s", l.summary())
		}
		if err := l.End(r).Err; err != nil && !errors.Is(err, transport.ErrClosed) {
			p.Fatalf("a request on a connection that was closed: %v", err)
		}
	}
	p.verifyEnds(l, requests, pieces)
}

// nothingLands waits a little after Lost: our memory does not change any more, and
// the peer's only where a completion said so.
func (p *pair) nothingLands(l *Client, requests []*transport.Request, pieces []piece) {
	p.Helper()
	p.local.fill(p.local.seed + 1)
	before := bytes.Clone(p.remote.bytes())
	time.Sleep(quiet)
	p.local.verify(p, "after Lost")
	after := p.remote.bytes()
	for i, r := range requests {
		s := pieces[i]
		c := l.End(r)
		if !c.MayLand && !bytes.Equal(before[s.remote:s.remote+s.bytes], after[s.remote:s.remote+s.bytes]) {
			p.Errorf("a %s landed after its completion, which did not say that it may (%v)", r.Op, c.Err)
		}
	}
}

func checkCloseUnderLoad(p *pair) {
	rng := rand.New(rand.NewPCG(10, 10))
	for round := range rounds(12) {
		l := p.dial()
		_, maxBytes, _ := p.limits(l)
		p.refill(uint64(10000 + 2*round))
		requests, pieces := p.traffic(300, maxBytes, rng)
		posted := make(chan int, 1)
		go func() { posted <- l.start(requests) }()
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Microsecond)
		l.Conn.Close(errTest)
		if err := l.WaitLost(); err != nil {
			p.Errorf("after Close, Lost says: %v", err)
		}
		<-posted
		p.settled(l, requests, pieces)
		p.postAfter(l)
		p.nothingLands(l, requests, pieces)
		p.leave(l.Conn.ID())
		p.remote.fill(uint64(10001 + 2*round))
		time.Sleep(time.Millisecond)
		p.verify(fmt.Sprintf("round %d, after the peer left the connection", round))
	}
}

func checkCloseFromDone(p *pair) {
	l := p.dial()
	_, maxBytes, _ := p.limits(l)
	requests, pieces := p.traffic(100, maxBytes, rand.New(rand.NewPCG(11, 11)))
	l.onDone = func() { l.Conn.Close(errTest) }
	l.start(requests)
	l.Conn.Close(errTest) // a transport that completes at once makes no Done
	_ = l.WaitLost()
	p.settled(l, requests, pieces)
}

func checkCloseStalled(p *pair) {
	if p.ends.Stall == nil {
		p.Skip("the harness cannot stall the passive end")
	}
	l := p.dial()
	_, maxBytes, _ := p.limits(l)
	p.ends.Stall(true)
	requests, pieces := p.traffic(50, maxBytes, rand.New(rand.NewPCG(12, 12)))
	for rest := requests; len(rest) > 0; {
		n := l.TryPost(rest)
		if n == 0 {
			break // nothing moves, so there will be no room
		}
		rest = rest[n:]
	}
	time.Sleep(quiet)
	l.Conn.Close(errTest)
	_ = l.WaitLost()
	p.settled(l, requests, pieces)
	p.local.fill(77)
	p.ends.Stall(false)
	time.Sleep(quiet)
	p.local.verify(p, "after a peer that stood still goes on")
	p.leave(l.Conn.ID())
	p.remote.fill(78)
	time.Sleep(quiet)
	p.remote.verify(p, "after the peer has left the connection")
}

func checkCloseTransport(p *pair) {
	rng := rand.New(rand.NewPCG(13, 13))
	links := []*Client{p.dial(), p.dial()}
	_, maxBytes, _ := p.limits(links[0])
	requests, pieces := p.traffic(600, maxBytes, rng)
	posted := make(chan int, len(links))
	for i, l := range links {
		go func() { posted <- l.start(requests[300*i : 300*i+300]) }()
	}
	time.Sleep(time.Millisecond)
	if err := p.ends.Active.Transport.Close(); err != nil {
		p.Errorf("close: %v", err)
	}
	for _, l := range links {
		if !l.LostNow() {
			p.Error("the transport is closed, and a connection was not lost")
		}
	}
	for range links {
		<-posted
	}
	for i, l := range links {
		p.settled(l, requests[300*i:300*i+300], pieces[300*i:300*i+300])
		p.postAfter(l)
	}
	p.local.fill(79)
	time.Sleep(quiet)
	p.local.verify(p, "after the transport was closed")
	ctx, cancel := p.context()
	defer cancel()
	if err := p.dialMustFail(ctx, p.request(newLink(p))); errors.Is(err, context.DeadlineExceeded) {
		p.Errorf("dial of a closed transport: %v", err)
	}
}

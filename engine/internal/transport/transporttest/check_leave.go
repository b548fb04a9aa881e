package transporttest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

// Left before Accept, which a Leave may overtake, or between Accept and arrival, a connection
// is not let in.
func checkLeaveBeforeArrival(p *pair) {
	for _, when := range []string{"before Accept", "after it", "after it, with all"} {
		d := p.request(newLink(p))
		accept := d.Exchange
		var asked atomic.Bool
		d.Exchange = func(ctx context.Context, request []byte) ([]byte, error) {
			leave := func() error { return p.ends.Passive.Transport.Leave(ctx, p.origin(d.Conn), d.Conn) }
			first := !asked.Swap(true) // then comes a goodbye, which may come late
			if first && when == "before Accept" {
				if err := leave(); err != nil {
					return nil, err
				}
			}
			answer, err := accept(ctx, request)
			if !first || when == "before Accept" {
				return answer, err
			}
			if when == "after it" {
				return answer, joined(err, leave())
			}
			return answer, joined(err, p.ends.Passive.Transport.LeaveAll(ctx, p.session))
		}
		ctx, cancel := p.context()
		if err := p.dialMustFail(ctx, d); ctx.Err() != nil {
			p.Errorf("a connection that was left %s was not refused, only timed out: %v", when, err)
		}
		cancel()
	}
	if n := p.ends.Passive.Transport.Served().Conns; n != 0 {
		p.Errorf("%d connections are open", n)
	}
	p.usable(p.dial(), "on another connection")
}

func joined(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// A connection that Accept was not asked for is not let in.
func checkNotExpected(p *pair) {
	d := p.request(newLink(p))
	var answer []byte
	var asked atomic.Bool
	accept := d.Exchange
	d.Exchange = func(ctx context.Context, request []byte) ([]byte, error) {
		got, err := accept(ctx, request)
		if !asked.Swap(true) {
			answer = got // that to a goodbye comes later
		}
		return got, err
	}
	ctx, cancel := p.context()
	defer cancel()
	conn, err := p.ends.Active.Transport.Dial(ctx, d)
	if err != nil {
		p.Fatal(err)
	}
	conn.Close(nil)
	d = p.request(newLink(p))
	d.Exchange = func(context.Context, []byte) ([]byte, error) { return answer, nil }
	if err := p.dialMustFail(ctx, d); ctx.Err() != nil {
		p.Errorf("a connection that nobody expects was not refused, only timed out: %v", err)
	}
	p.usable(p.dial(), "on another connection")
}

func checkLeaveUnknown(p *pair) {
	p.leave(1 << 40)
	l := p.dial()
	// Another session's connection of this number is not ours.
	ctx, cancel := p.context()
	defer cancel()
	other := p.origin(l.Conn.ID())
	other.Session[3] ^= 1
	if err := p.ends.Passive.Transport.Leave(ctx, other, l.Conn.ID()); err != nil {
		p.Errorf("leave of an unknown connection: %v", err)
	}
	p.usable(l, "after another session left")
	p.leave(l.Conn.ID())
	p.leave(l.Conn.ID())
	if err := l.WaitLost(); err == nil {
		p.Error("the peer left the connection, and Lost has no error")
	}
	p.postAfter(l)
	p.usable(p.dial(), "on another connection")
}

// stream writes the whole local area to the remote one again and again, until the
// connection is over. It returns once the first requests have completed.
func (p *pair) stream(l *Client) (traffic *sync.WaitGroup) {
	_, maxBytes, _ := p.limits(l)
	size := min(maxBytes, 128<<10)
	began := make(chan struct{})
	traffic = &sync.WaitGroup{}
	traffic.Go(func() {
		once := sync.OnceFunc(func() { close(began) })
		defer once()
		for !l.LostNow() {
			var requests []*transport.Request
			for at := int64(0); at+size <= p.h.RegionBytes && len(requests) < 64; at += size {
				requests = append(requests, requestOn(transport.Write, p.local, p.remote, piece{at, at, size}))
			}
			n := l.start(requests)
			l.wait(requests[:n])
			once()
		}
	})
	<-began
	return traffic
}

func checkLeaveDuringTraffic(p *pair) {
	rng := rand.New(rand.NewPCG(14, 14))
	for round := range rounds(20) {
		l := p.dial()
		p.refill(uint64(14000 + 2*round))
		traffic := p.stream(l)
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
		// Several may ask at the same time: each may rely on its answer.
		var leavers sync.WaitGroup
		for range 1 + round%3 {
			leavers.Go(func() {
				ctx, cancel := p.context()
				defer cancel()
				if err := p.ends.Passive.Transport.Leave(ctx, p.origin(l.Conn.ID()), l.Conn.ID()); err != nil {
					p.Errorf("leave: %v", err)
				}
			})
		}
		leavers.Wait()
		p.remote.fill(uint64(14001 + 2*round))
		if err := l.WaitLost(); err == nil {
			p.Error("the peer left the connection, and Lost has no error")
		}
		traffic.Wait()
		time.Sleep(time.Millisecond)
		p.verify(fmt.Sprintf("round %d, after the peer left a connection with traffic", round))
	}
}

// The active end closes and the passive one leaves at the same time.
func checkLeaveClosed(p *pair) {
	for round := range rounds(12) {
		l := p.dial()
		p.refill(uint64(15000 + 2*round))
		traffic := p.stream(l)
		l.Conn.Close(errTest)
		if round%2 == 0 {
			_ = l.WaitLost()
		}
		p.leave(l.Conn.ID())
		p.remote.fill(uint64(15001 + 2*round))
		_ = l.WaitLost()
		traffic.Wait()
		time.Sleep(time.Millisecond)
		p.verify(fmt.Sprintf("round %d, after a closed connection was left", round))
	}
}

// holdWrites posts writes that do not land, and closes the connection.
func (p *pair) holdWrites(round int) (l *Client, requests []*transport.Request, pieces []piece, release func()) {
	p.Helper()
	if p.ends.Hold == nil {
		p.Skip("the harness cannot hold writes back")
	}
	l = p.dial()
	_, maxBytes, maxPosted := p.limits(l)
	p.refill(uint64(16000 + 3*round))
	p.usable(l, "before writes are held back")
	release = p.ends.Hold(l.Conn)
	pieces = p.cells(min(32, maxPosted), min(maxBytes, 4096), rand.New(rand.NewPCG(15, uint64(round))))
	for _, s := range pieces {
		requests = append(requests, requestOn(transport.Write, p.local, p.remote, s))
	}
	l.start(requests)
	time.Sleep(quiet / 4)
	l.Conn.Close(errTest)
	_ = l.WaitLost()
	p.settled(l, requests, pieces)
	return l, requests, pieces, release
}

// A WRITE that was held back when its connection was closed lands after the peer
// has left: it must not.
func checkLeaveHeld(p *pair) {
	for round := range rounds(10) {
		l, _, _, release := p.holdWrites(round)
		p.leave(l.Conn.ID())
		p.remote.fill(uint64(16001 + 3*round))
		release()
		time.Sleep(quiet / 4)
		p.verify(fmt.Sprintf("round %d, after writes were let go", round))
	}
}

// One that lands because nobody left the connection was announced by MayLand.
func checkMayLand(p *pair) {
	landed := 0
	for round := range rounds(10) {
		l, requests, pieces, release := p.holdWrites(round)
		before := bytes.Clone(p.remote.bytes())
		release()
		time.Sleep(quiet / 4)
		after := p.remote.bytes()
		for i, r := range requests {
			s, c := pieces[i], l.End(r)
			if bytes.Equal(before[s.remote:s.remote+s.bytes], after[s.remote:s.remote+s.bytes]) {
				continue
			}
			landed++
			if !c.MayLand {
				p.Errorf("a write landed after its completion, which did not say that it may (%v)", c.Err)
			}
		}
		p.leave(l.Conn.ID())
	}
	p.Logf("%d writes landed after their connection was closed", landed)
}

func checkLeaveAll(p *pair) {
	a, b := p.dial(), p.dial()
	ctx, cancel := p.context()
	defer cancel()
	other := p.session
	other[0] ^= 1
	if err := p.ends.Passive.Transport.LeaveAll(ctx, other); err != nil {
		p.Errorf("leaving an unknown session: %v", err)
	}
	p.usable(a, "after another session was left")
	p.usable(b, "after another session was left")
	overA, overB := p.stream(a), p.stream(b)
	if err := p.ends.Passive.Transport.LeaveAll(ctx, p.session); err != nil {
		p.Errorf("leaving a session: %v", err)
	}
	p.remote.fill(17)
	for _, l := range []*Client{a, b} {
		if err := l.WaitLost(); err == nil {
			p.Error("the peer left the session, and Lost has no error")
		}
	}
	overA.Wait()
	overB.Wait()
	time.Sleep(quiet)
	p.verify("after the peer left the session")
	if n := p.ends.Passive.Transport.Served().Conns; n != 0 {
		p.Errorf("%d connections are open after the session was left", n)
	}
}

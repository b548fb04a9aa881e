package transporttest

import (
	"context"
	"crypto/rand"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

func checkRestart(p *pair) {
	l := p.dial()
	p.usable(l, "before the peer ends")
	traffic := p.stream(l)
	if err := p.ends.Passive.Transport.Close(); err != nil {
		p.Errorf("closing the passive transport: %v", err)
	}
	p.remote.fill(18)
	if err := l.WaitLost(); err == nil {
		p.Error("the peer ended, and Lost has no error")
	}
	traffic.Wait()
	p.postAfter(l)
	time.Sleep(quiet)
	p.verify("after the peer ended")
	ctx, cancel := p.context()
	defer cancel()
	if err := p.dialMustFail(ctx, p.request(newLink(p))); ctx.Err() != nil {
		p.Errorf("dial of a peer that has ended was not refused, only timed out: %v", err)
	}
	if p.ends.Restart == nil {
		p.Log("the harness cannot restart the passive end")
		return
	}
	p.closeTable(p.ends.Passive)
	p.ends.Passive = p.ends.Restart(p)
	if p.session = p.ends.Session; p.session == (transport.SessionID{}) {
		if _, err := rand.Read(p.session[:]); err != nil {
			p.Fatal(err)
		}
	}
	p.remote = p.area(p.ends.Passive, "remote", p.h.RegionBytes, memory.PeerRead|memory.PeerWrite)
	p.usable(p.dial(), "after the peer was restarted")
}

func checkDialCancelled(p *pair) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.dialMustFail(ctx, p.request(newLink(p))); !errors.Is(err, context.Canceled) {
		p.Errorf("dial with a cancelled context: %v", err)
	}
	p.usable(p.dial(), "on another connection")
}

func checkExchangeFails(p *pair) {
	d := p.request(newLink(p))
	d.Exchange = func(context.Context, []byte) ([]byte, error) { return nil, errTest }
	ctx, cancel := p.context()
	defer cancel()
	if err := p.dialMustFail(ctx, d); !errors.Is(err, errTest) {
		p.Errorf("dial whose exchange failed: %v", err)
	}
	for _, answer := range []string{"", "\x00", "nonsense", strings.Repeat("x", 1<<16)} {
		d := p.request(newLink(p))
		d.Exchange = func(context.Context, []byte) ([]byte, error) { return []byte(answer), nil }
		if err := p.dialMustFail(ctx, d); ctx.Err() != nil {
			p.Errorf("dial with the answer %.20q: %v", answer, err)
		}
	}
	for _, request := range []string{"", "\x00", "nonsense", strings.Repeat("x", 1<<16)} {
		p.lastID++
		// What a transport makes of it is its own affair, as long as it lives.
		_, _ = p.ends.Passive.Transport.Accept(ctx, p.origin(p.lastID), []byte(request))
	}
	p.usable(p.dial(), "on another connection")
}

func checkExchangeHangs(p *pair) {
	d := p.request(newLink(p))
	d.Exchange = func(ctx context.Context, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.Background(), quiet)
	defer cancel()
	if err := p.dialMustFail(ctx, d); !errors.Is(err, context.DeadlineExceeded) {
		p.Errorf("dial past its deadline: %v", err)
	}
	p.usable(p.dial(), "on another connection")
}

// Addresses come from the peer. A dial fails or, where the address does not
// matter, works.
func checkDialNobody(p *pair) {
	for _, address := range []string{"", "no such address\x00", ":", "[::1", strings.Repeat("a", 1<<14)} {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		l := newLink(p)
		d := p.request(l)
		d.Remote.Address = address
		conn, err := p.ends.Active.Transport.Dial(ctx, d)
		if err == nil {
			l.Conn = conn
			p.links = append(p.links, l)
		}
		cancel()
	}
	p.usable(p.dial(), "on another connection")
}

func checkServed(p *pair) {
	passive := p.ends.Passive.Transport
	a, b := p.dial(), p.dial()
	p.eventually("not both connections are counted", func() bool { return passive.Served().Conns == 2 })
	a.do(p.move(transport.Write, piece{0, 0, 1000}), p.move(transport.Write, piece{1000, 1000, 3000}))
	b.do(p.move(transport.Read, piece{5000, 5000, 700}))
	p.refused(b, requestOn(transport.Read, p.local, lie(0), piece{0, 0, 50}), memory.ErrNoRegion)
	if said := passive.Served().Uncounted; said != p.h.Uncounted {
		p.Errorf("served: uncounted is %v, want %v", said, p.h.Uncounted)
	}
	if !p.h.Uncounted {
		want := transport.Served{ReadBytes: 700, WrittenBytes: 4000, Requests: 4, Refused: map[string]int64{"no_region": 1}, Conns: 2}
		// A read may be counted after its bytes have arrived here.
		got := passive.Served()
		want.Dropped = got.Dropped // of which the suite knows nothing
		for deadline := time.Now().Add(p.h.Patience); !reflect.DeepEqual(got, want) && time.Now().Before(deadline); got = passive.Served() {
			time.Sleep(time.Millisecond)
		}
		if !reflect.DeepEqual(got, want) {
			p.Errorf("served %+v, want %+v", got, want)
		}
	}
	if serving, ok := transport.As[transport.Serving](passive); ok {
		p.checkServes(serving, passive.Served(), a, b)
	}
	a.Conn.Close(nil)
	b.Conn.Close(nil)
	p.eventually("closed connections are still counted", func() bool { return passive.Served().Conns == 0 })
	p.verify("after a few requests")
}

// checkServes holds the list of passive ends to what is counted of all of them.
func (p *pair) checkServes(serving transport.Serving, all transport.Served, links ...*Client) {
	list := serving.Serves()
	if len(list) != len(links) {
		p.Errorf("served: %d connections are listed, want %d", len(list), len(links))
	}
	var read, written int64
	for i := range list {
		x := &list[i]
		if !slices.ContainsFunc(links, func(l *Client) bool { return l.Conn.ID() == x.Conn }) {
			p.Errorf("served: connection %d is listed, and does not exist", x.Conn)
		}
		if (x.ReadBytes == nil || x.WrittenBytes == nil) != p.h.Uncounted {
			p.Errorf("served: connection %d counts bytes: %v and %v, want that to be %v", x.Conn, x.ReadBytes != nil, x.WrittenBytes != nil, !p.h.Uncounted)
			continue
		}
		if !p.h.Uncounted {
			read, written = read+*x.ReadBytes, written+*x.WrittenBytes
		}
	}
	if read != all.ReadBytes || written != all.WrittenBytes {
		p.Errorf("served: connections have %d bytes read and %d written, all together %d and %d", read, written, all.ReadBytes, all.WrittenBytes)
	}
}

// Connections that come and go leave nothing behind.
func checkCycles(p *pair) {
	p.usable(p.dial(), "at first")
	before := countHeld()
	for i := range p.h.Cycles {
		l := p.dial()
		at := int64(i) % (p.h.RegionBytes - 100)
		l.do(p.move(bothOps[i%2], piece{at, at, 100}))
		switch i % 3 {
		case 0:
			p.leave(l.Conn.ID())
		default:
			l.Conn.Close(nil)
		}
		_ = l.WaitLost()
		l.finish()
		p.links = p.links[:len(p.links)-1]
	}
	checkHeld(p, p.h.Patience, before)
	p.verify("after many connections")
	p.usable(p.dial(), "at last")
}

package transporttest

import (
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// refused posts a request that the peer must refuse for a reason. The poster
// believes what the descriptor says, so descriptors here lie.
func (p *pair) refused(l *Client, r *transport.Request, reason error) {
	p.Helper()
	err := l.fails(r)
	if !errors.Is(err, transport.ErrRefused) || !errors.Is(err, reason) {
		p.Errorf("%s at %d of region %d: %v; want it refused: %v",
			r.Op, r.Spans[0].RemoteOffset, r.Spans[0].Remote.ID, err, reason)
	}
	if l.End(r).MayLand {
		p.Errorf("%s that was refused may land", r.Op)
	}
}

// A request that is not what the limits say, or outside of our own region, is refused, and costs nothing else.
func checkAgainstLimits(p *pair) {
	l := p.dial()
	limits := l.Conn.Limits()
	for name, change := range map[string]func(r *transport.Request){
		"another sum":       func(r *transport.Request) { r.Bytes-- },
		"an unknown op":     func(r *transport.Request) { r.Op = 9 },
		"before our region": func(r *transport.Request) { r.Spans[0].LocalOffset = -1 },
		"over its end":      func(r *transport.Request) { r.Spans[0].LocalOffset = p.h.RegionBytes - 99 },
		"a negative length": func(r *transport.Request) { r.Spans[0].Bytes, r.Bytes = -1, -1 },
		"a negative part":   func(r *transport.Request) { r.Spans = append(r.Spans, transport.Span{Bytes: -1}); r.Bytes-- },
		"more bytes":        func(r *transport.Request) { r.Spans[0].Bytes, r.Bytes = limits.MaxBytes+1, limits.MaxBytes+1 },
		"more spans":        func(r *transport.Request) { r.Spans, r.Bytes = make([]transport.Span, limits.MaxSpans+1), 0 },
	} {
		r := requestOn(transport.Read, p.local, p.remote, piece{0, 0, 100})
		span := r.Spans[0]
		change(r)
		for i := range r.Spans {
			if r.Spans[i].Local == nil {
				r.Spans[i].Local, r.Spans[i].Remote = span.Local, span.Remote
			}
		}
		if err := l.fails(r); !errors.Is(err, transport.ErrRefused) {
			p.Errorf("%s: %v, want it refused", name, err)
		}
	}
	p.usable(l, "after requests against the limits")
}

// lie is a remote region as no honest descriptor has it.
func lie(id memory.ID) *area {
	return &area{remote: &transport.RemoteRegion{
		ID: id, Bytes: math.MaxInt64, Grant: memory.PeerRead | memory.PeerWrite, Key: map[string]string{},
	}}
}

func checkNoRegion(p *pair) {
	l := p.dial()
	for _, id := range []memory.ID{0, 1 << 20, p.remote.remote.ID + 1, p.remote.remote.ID | 1<<63, math.MaxUint64} {
		for _, op := range bothOps {
			p.refused(l, requestOn(op, p.local, lie(id), piece{0, 0, 100}), memory.ErrNoRegion)
		}
	}
	p.usable(l, "after requests for regions that do not exist")
}

func checkStaleRegion(p *pair) {
	old := p.area(p.ends.Passive, "old", 1<<16, memory.PeerRead|memory.PeerWrite)
	l := p.dial()
	l.do(requestOn(transport.Write, p.local, old, piece{0, 0, 100}))
	p.drop(p.ends.Passive, old)
	young := p.area(p.ends.Passive, "old", 1<<16, memory.PeerRead|memory.PeerWrite)
	for _, op := range bothOps {
		p.refused(l, requestOn(op, p.local, old, piece{0, 0, 100}), memory.ErrNoRegion)
	}
	young.verify(p, "after requests for the region that was in its place")
	p.usable(l, "after requests for a region that was closed")
}

func checkRange(p *pair) {
	l := p.dial()
	size := p.h.RegionBytes
	liar := lie(p.remote.remote.ID)
	liar.remote.Key = p.remote.remote.Key
	for _, s := range []piece{
		{0, size, 1}, {0, size - 1, 2}, {0, size - 99, 100}, {0, size + 1, 0}, {0, size + 4096, 96},
		{0, math.MaxInt64 - 5, 100}, {0, math.MaxInt64, 1}, {0, 1 << 62, 96}, {0, 1 << 32, 64},
		{0, -1, 1}, {0, -1, 2}, {0, -100, 200}, {0, math.MinInt64, 8},
	} {
		for _, op := range bothOps {
			p.refused(l, requestOn(op, p.local, liar, s), memory.ErrRange)
		}
	}
	p.usable(l, "after requests outside the region")
}

func checkGrant(p *pair) {
	readable := p.area(p.ends.Passive, "readable", 1<<16, memory.PeerRead)
	writable := p.area(p.ends.Passive, "writable", 1<<16, memory.PeerWrite)
	private := p.area(p.ends.Passive, "private", 1<<16, memory.None)
	for _, a := range []*area{readable, writable, private} {
		a.remote.Grant = memory.PeerRead | memory.PeerWrite
	}
	l := p.dial()
	_, maxBytes, _ := p.limits(l)
	for _, size := range []int64{100, min(maxBytes, 50_000)} {
		for _, check := range []bool{false, true} {
			w, r := requestOn(transport.Write, p.local, readable, piece{0, 10, size}), requestOn(transport.Read, p.local, writable, piece{0, 10, size})
			w.Check, r.Check = check, check
			p.refused(l, w, memory.ErrDenied)
			p.refused(l, r, memory.ErrDenied)
			p.usable(l, "after requests that are not granted")
		}
	}
	p.refused(l, requestOn(transport.Write, p.local, private, piece{0, 10, 100}), memory.ErrNoRegion)
	p.refused(l, requestOn(transport.Read, p.local, private, piece{0, 10, 100}), memory.ErrNoRegion)
	for _, a := range []*area{readable, writable, private} {
		a.verify(p, "after requests that are not granted")
	}
	p.usable(l, "after requests that are not granted")
	// What is granted works.
	l.do(requestOn(transport.Write, p.local, writable, piece{100, 200, 300}))
	copy(writable.shadow[200:500], p.local.shadow[100:400])
	writable.verify(p, "after a write that is granted")
	l.do(requestOn(transport.Read, p.local, readable, piece{700, 900, 300}))
	copy(p.local.shadow[700:1000], readable.shadow[900:1200])
	p.verify("after a read that is granted")
}

func checkOneRefused(p *pair) {
	l := p.dial()
	_, maxBytes, _ := p.limits(l)
	requests, _ := p.traffic(60, maxBytes, rand.New(rand.NewPCG(9, 9)))
	bad := map[int]bool{10: true, 11: true, 40: true, 59: true}
	var all []*transport.Request
	for i, r := range requests {
		if bad[i] {
			// The second span is refused. Nothing is asked of the first one's bytes, so
			// it has none.
			wrong := requestOn(r.Op, p.local, p.remote, piece{0, 0, 0})
			if p.ends.Active.Transport.Caps().MaxSpans == 1 {
				wrong.Spans = nil
			}
			wrong.Spans = append(wrong.Spans, requestOn(r.Op, p.local, lie(0), piece{0, 0, 50}).Spans...)
			wrong.Bytes = 50
			all = append(all, wrong)
		}
		all = append(all, r)
	}
	if n := l.start(all); n != len(all) || !l.wait(all) {
		p.Fatalf("%d of %d requests were taken: %s", n, len(all), l.summary())
	}
	for i, r := range all {
		err := l.End(r).Err
		if wrong := r.Spans[len(r.Spans)-1].Remote.ID == 0; wrong != errors.Is(err, transport.ErrRefused) || !wrong && err != nil {
			p.Errorf("request %d, against the rules: %v, ended with %v", i, wrong, err)
		}
	}
	p.verify("after a batch with some requests that were refused")
	p.usable(l, "after a batch with some requests that were refused")
}

// A region is closed while a peer uses it: that waits for what moves, refuses the
// rest, and leaves the connection alone.
func checkRegionClosed(p *pair) {
	l := p.dial()
	_, maxBytes, _ := p.limits(l)
	for round := range rounds(6) {
		op := bothOps[round%2]
		extra := p.area(p.ends.Passive, "extra", p.h.RegionBytes, memory.PeerRead|memory.PeerWrite)
		var traffic sync.WaitGroup
		began, dropped := make(chan struct{}), make(chan struct{})
		traffic.Go(func() { p.useUntilRefused(l, op, extra, min(maxBytes, 64<<10), began, dropped) })
		<-began
		time.Sleep(time.Duration(round) * time.Millisecond)
		p.drop(p.ends.Passive, extra)
		close(dropped)
		traffic.Wait()
		p.refused(l, requestOn(op, p.local, extra, piece{0, 0, 100}), memory.ErrNoRegion)
		p.refill(uint64(9000 + round))
		p.usable(l, "after a region was closed during transfers")
	}
}

// useUntilRefused moves until the region is gone, which it must be once dropped is
// closed.
func (p *pair) useUntilRefused(l *Client, op transport.Op, a *area, size int64, began, dropped chan struct{}) {
	once := sync.OnceFunc(func() { close(began) })
	defer once()
	for {
		over := false
		select {
		case <-dropped:
			over = true
		default:
		}
		var requests []*transport.Request
		for i := range int64(8) {
			requests = append(requests, requestOn(op, p.local, a, piece{i * 10, i * 10, min(size, p.h.RegionBytes-100)}))
		}
		if n := l.start(requests); n != len(requests) || !l.wait(requests) {
			return // reported when the link is checked
		}
		once()
		refused := 0
		for _, r := range requests {
			switch err := l.End(r).Err; {
			case err == nil:
			case errors.Is(err, transport.ErrRefused) && (errors.Is(err, memory.ErrNoRegion) || errors.Is(err, memory.ErrClosed)):
				refused++
			default:
				p.Errorf("region closed during a transfer: %v", err)
			}
		}
		if refused > 0 {
			return
		}
		if over {
			p.Error("requests are served from a region that is closed")
			return
		}
	}
}

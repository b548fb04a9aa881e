package transporttest

import (
	"bytes"
	"math/rand/v2"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

// piece is one span between the pair's areas, or others.
type piece struct{ local, remote, bytes int64 }

// requestOn makes a request between two areas.
func requestOn(op transport.Op, local, remote *area, pieces ...piece) *transport.Request {
	r := &transport.Request{Op: op}
	for _, s := range pieces {
		r.Spans = append(r.Spans, transport.Span{
			Local: local.region, LocalOffset: s.local,
			Remote: remote.remote, RemoteOffset: s.remote, Bytes: s.bytes,
		})
		r.Bytes += s.bytes
	}
	return r
}

// move makes a request between the pair's areas, and brings the shadows to what
// must be true when it has ended well.
func (p *pair) move(op transport.Op, pieces ...piece) *transport.Request {
	for _, s := range pieces {
		here, there := p.local.shadow[s.local:s.local+s.bytes], p.remote.shadow[s.remote:s.remote+s.bytes]
		if op == transport.Write {
			copy(there, here)
		} else {
			copy(here, there)
		}
	}
	return requestOn(op, p.local, p.remote, pieces...)
}

// verify compares every byte of both sides.
func (p *pair) verify(what string) {
	p.Helper()
	p.local.verify(p, what)
	p.remote.verify(p, what)
}

// refill gives both sides new content.
func (p *pair) refill(seed uint64) {
	p.local.fill(2 * seed)
	p.remote.fill(2*seed + 1)
}

// limits of requests on a connection, as far as the regions reach.
func (p *pair) limits(l *Client) (spans int, bytes int64, posted int) {
	c := l.Conn.Limits()
	return c.MaxSpans, min(c.MaxBytes, p.h.RegionBytes), c.MaxPosted
}

var bothOps = []transport.Op{transport.Write, transport.Read}

// cells are n pieces of both areas that do not touch each other. In between and
// around them are bytes that must not change. Where a cell is in one area says
// nothing about its place in the other.
func (p *pair) cells(n int, maxBytes int64, rng *rand.Rand) []piece {
	pitch := p.h.RegionBytes / int64(n)
	if pitch < 3 {
		p.Fatalf("a region of %d bytes has no room for %d pieces", p.h.RegionBytes, n)
	}
	out := make([]piece, n)
	places := rng.Perm(n)
	for i := range out {
		size := 1 + rng.Int64N(min(pitch-2, maxBytes))
		room := pitch - size - 1
		out[i] = piece{int64(i)*pitch + rng.Int64N(room+1), int64(places[i])*pitch + rng.Int64N(room+1), size}
	}
	return out
}

// here are a piece's bytes as they are now.
func (p *pair) here(s piece) []byte { return p.local.read(s.local, s.bytes) }

// verifyEnds looks at requests of one piece each that may have failed: those that
// ended well are in place.
func (p *pair) verifyEnds(l *Client, requests []*transport.Request, pieces []piece) {
	p.Helper()
	there := p.remote.bytes()
	for i, r := range requests {
		if l.End(r).Request == nil || l.End(r).Err != nil {
			continue
		}
		if s := pieces[i]; !bytes.Equal(p.here(s), there[s.remote:s.remote+s.bytes]) {
			p.Errorf("the %s of %d bytes at %d ended well and is not in place", r.Op, s.bytes, s.remote)
			return
		}
	}
}

// usable moves something both ways and verifies all bytes.
func (p *pair) usable(l *Client, what string) {
	p.Helper()
	n := min(1000, p.h.RegionBytes/8)
	l.do(p.move(transport.Write, piece{11, 2 * n, n}))
	l.do(p.move(transport.Read, piece{4 * n, 5*n + 3, n}))
	p.verify(what)
}

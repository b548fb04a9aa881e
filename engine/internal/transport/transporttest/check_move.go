package transporttest

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

func checkLimits(p *pair) {
	t := p.ends.Active.Transport
	if t.Name() == "" || p.ends.Passive.Endpoint.Transport != t.Name() {
		p.Errorf("the transport is %q, its endpoint that of %q", t.Name(), p.ends.Passive.Endpoint.Transport)
	}
	caps := t.Caps()
	l := p.dial()
	limits := l.Conn.Limits()
	if limits.MaxSpans < 1 || limits.MaxBytes < 1 || limits.MaxPosted < 1 {
		p.Errorf("limits of a connection %+v: nothing fits", limits)
	}
	if limits.MaxSpans > caps.MaxSpans || limits.MaxBytes > caps.MaxBytes || limits.MaxPosted > caps.MaxPosted {
		p.Errorf("limits of a connection %+v are above those of the transport %+v", limits, caps)
	}
	if l.Conn.Describe() == "" {
		p.Error("the connection does not describe itself")
	}
	if n, done := l.Conn.Post(nil, nil); n != 0 || len(done) != 0 {
		p.Errorf("posting nothing took %d and completed %d", n, len(done))
	}
	p.usable(l, "after posting nothing")
}

func checkSizes(p *pair) {
	l := p.dial()
	_, maxBytes, _ := p.limits(l)
	local, remote := int64(5), int64(64)
	for _, checked := range []bool{false, true} {
		for _, size := range []int64{0, 1, 2, 3, 7, 8, 9, 31, 63, 64, 65, 255, 257, 1000, 4095, 4096, 4097, 8191, 12289} {
			if size > maxBytes {
				continue
			}
			for _, op := range bothOps {
				// Aligned places and odd ones take turns; one byte stays free.
				if max(local, remote)+size >= p.h.RegionBytes {
					local, remote = 1, 2
				}
				r := p.move(op, piece{local, remote, size})
				r.Check = checked
				l.do(r)
				local += size + 1
				remote += (size+64)&^63 + size%2
			}
		}
		p.verify(fmt.Sprintf("after requests of all sizes, checked: %v", checked))
	}
}

func checkSliceEdges(p *pair) {
	l := p.dial()
	_, maxBytes, _ := p.limits(l)
	end := p.h.RegionBytes
	seed := uint64(1000)
	for _, op := range bothOps {
		for _, s := range []piece{
			{0, 0, maxBytes}, // the first byte
			{end - maxBytes, end - maxBytes, maxBytes},     // the last
			{0, end - maxBytes + 1, maxBytes - 1},          // crosswise
			{end - maxBytes/2, maxBytes / 2, maxBytes / 2}, // the middle
			{end - 1, 0, 1},              // one byte at the end
			{0, end - 1, 1},              // and at the start
			{1, 1, min(maxBytes, end-2)}, // all but both
			{min(3, maxBytes), 0, min(maxBytes, end-3) - 1}, // not aligned
		} {
			seed++
			p.refill(seed)
			r := p.move(op, s)
			r.Check = seed%2 == 0
			l.do(r)
			p.verify(fmt.Sprintf("%s of %+v", op, s))
		}
	}
}

func checkLarge(p *pair) {
	l := p.dial()
	_, maxBytes, _ := p.limits(l)
	const guard = 61
	for round, op := range []transport.Op{transport.Write, transport.Read, transport.Write, transport.Read} {
		p.refill(uint64(2000 + round))
		var requests []*transport.Request
		from, to := int64(guard), int64(2*guard+round)
		for left := p.h.RegionBytes - 4*guard; left > 0; {
			n := min(maxBytes, left)
			r := p.move(op, piece{from, to, n})
			r.Check = round >= 2
			requests = append(requests, r)
			from, to, left = from+n, to+n, left-n
		}
		l.do(requests...)
		p.verify(fmt.Sprintf("%s of a region in %d requests", op, len(requests)))
	}
}

func checkManyRequests(p *pair) {
	l := p.dial()
	_, maxBytes, _ := p.limits(l)
	for round, op := range bothOps {
		rng := rand.New(rand.NewPCG(uint64(round), 3))
		p.refill(uint64(3000 + round))
		var requests []*transport.Request
		for i, s := range p.cells(p.h.Requests, maxBytes, rng) {
			r := p.move(op, s)
			r.Check = i%7 == 0
			requests = append(requests, r)
		}
		l.do(requests...)
		p.verify(fmt.Sprintf("%d requests to %s", len(requests), op))
	}
}

func checkStrides(p *pair) {
	l := p.dial()
	maxSpans, maxBytes, _ := p.limits(l)
	seed := uint64(4000)
	for _, size := range []int64{1, 3, 64, 1000} {
		for _, strides := range [][2]int64{{size, 2*size + 1}, {2*size + 5, size}, {size + 1, 3 * size}, {size, size}} {
			room := (p.h.RegionBytes - 16) / max(strides[0], strides[1])
			most := int(min(int64(maxSpans), maxBytes/size, room, 2048))
			for _, op := range bothOps {
				for _, spans := range []int{1, 2, most - 1, most} {
					if spans < 1 || spans > most {
						continue
					}
					var pieces []piece
					for i := range int64(spans) {
						pieces = append(pieces, piece{3 + i*strides[0], 7 + i*strides[1], size})
					}
					// The shadows are computed span by span, which is not what the wire
					// does when places overlap: they never do here.
					r := p.move(op, pieces...)
					r.Check = spans%2 == 0
					l.do(r)
				}
				p.verify(fmt.Sprintf("%s of up to %d spans of %d bytes, strides %v", op, most, size, strides))
				seed++
				p.refill(seed)
			}
		}
	}
}

// traffic makes requests of one piece each: WRITEs in the first half of the areas,
// READs in the second, in random order.
func (p *pair) traffic(n int, maxBytes int64, rng *rand.Rand) ([]*transport.Request, []piece) {
	pieces := p.cells(n, maxBytes, rng)
	requests := make([]*transport.Request, n)
	for i, s := range pieces {
		op := bothOps[i%2]
		requests[i] = p.move(op, s)
		requests[i].Check = rng.IntN(2) == 0
	}
	rng.Shuffle(n, func(i, j int) {
		requests[i], requests[j] = requests[j], requests[i]
		pieces[i], pieces[j] = pieces[j], pieces[i]
	})
	return requests, pieces
}

func checkMixed(p *pair) {
	l := p.dial()
	maxSpans, maxBytes, _ := p.limits(l)
	rng := rand.New(rand.NewPCG(5, 5))
	for round := range 6 {
		p.refill(uint64(5000 + round))
		requests, _ := p.traffic(min(400, 20*(1+round*round)), maxBytes, rng)
		l.do(requests...)
		p.verify(fmt.Sprintf("%d reads and writes", len(requests)))
	}
	for round := range 6 {
		p.refill(uint64(5100 + round))
		var requests []*transport.Request
		for cells := p.cells(600, maxBytes, rng); len(cells) > 0; {
			n, sum := 1, cells[0].bytes
			for most := rng.IntN(min(maxSpans, 128)); n <= most && n < len(cells) && sum+cells[n].bytes <= maxBytes; n++ {
				sum += cells[n].bytes
			}
			r := p.move(bothOps[rng.IntN(2)], cells[:n]...)
			r.Check = rng.IntN(2) == 0
			requests, cells = append(requests, r), cells[n:]
		}
		l.do(requests...)
		p.verify(fmt.Sprintf("%d reads and writes of several pieces", len(requests)))
	}
}

// concurrently shares the work out and waits for all of it.
func (p *pair) concurrently(links []*Client, requests []*transport.Request, workers int) {
	p.Helper()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			l := links[w%len(links)]
			var mine []*transport.Request
			for i := w; i < len(requests); i += workers {
				mine = append(mine, requests[i])
			}
			if n := l.start(mine); n != len(mine) {
				p.Errorf("poster %d: %d of %d requests were taken", w, n, len(mine))
				mine = mine[:n]
			}
			l.wait(mine)
			for _, r := range mine {
				if c := l.End(r); c.Err != nil {
					p.Errorf("poster %d: %v", w, c.Err)
				}
			}
		})
	}
	all.Wait()
}

func checkPosters(p *pair) {
	l := p.dial()
	_, maxBytes, _ := p.limits(l)
	rng := rand.New(rand.NewPCG(6, 6))
	for round := range 3 {
		p.refill(uint64(6000 + round))
		requests, _ := p.traffic(min(800, p.h.Requests), maxBytes, rng)
		p.concurrently([]*Client{l}, requests, 8)
		p.verify("after concurrent posters")
	}
}

func checkConnections(p *pair) {
	links := []*Client{p.dial(), p.dial(), p.dial(), p.dial()}
	_, maxBytes, _ := p.limits(links[0])
	rng := rand.New(rand.NewPCG(7, 7))
	for round := range 3 {
		p.refill(uint64(7000 + round))
		requests, _ := p.traffic(min(800, p.h.Requests), maxBytes, rng)
		p.concurrently(links, requests, len(links))
		p.verify("after transfers over several connections")
	}
}

func checkPostFromDone(p *pair) {
	l := p.dial()
	_, maxBytes, _ := p.limits(l)
	requests, _ := p.traffic(300, maxBytes, rand.New(rand.NewPCG(8, 8)))
	var mu sync.Mutex
	next := 0
	post := func() {
		mu.Lock()
		defer mu.Unlock()
		for next < len(requests) && l.TryPost(requests[next:next+1]) == 1 {
			next++
			if !l.HasEnded(requests[next-1]) {
				return // its Done goes on
			}
		}
	}
	l.onDone = post
	post()
	p.eventually("the chain of posts from Done stopped", func() bool { return l.HasEnded(requests[len(requests)-1]) })
	p.verify("after a chain of posts from Done")
}

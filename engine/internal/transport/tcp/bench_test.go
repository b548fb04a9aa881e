package tcp

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// The benchmarks run against another process and alternate with a raw socket
// within each iteration: run them with -benchtime 7x, and read the ratios.

// shape is a batch of equal pieces.
type shape struct {
	bytes int64
	count int
	slice int64 // bytes of one request, 0: the batch
}

func (s shape) String() string {
	name := fmt.Sprintf("%dKiBx%d", s.bytes>>10, s.count)
	if s.slice > 0 {
		name += fmt.Sprintf("/slice%dKiB", s.slice>>10)
	}
	return name
}

// load posts batches and keeps two of them in flight.
type load struct {
	conn    transport.Conn
	shape   shape
	op      transport.Op
	check   bool
	mine    *memory.Region
	theirs  *transport.RemoteRegion
	over    chan struct{}
	scratch []*transport.Request

	mu     sync.Mutex // requests may be done before Post has returned
	at     int64
	left   int // requests to be posted
	flying int
	free   []*transport.Request
	failed error
}

// requests are those of two batches.
func (l *load) prepare() {
	per := l.shape.bytes * int64(l.shape.count)
	if l.shape.slice > 0 {
		per = l.shape.slice
	}
	n := int(max(2*l.shape.bytes*int64(l.shape.count)/per, 2))
	for range n {
		req := &transport.Request{Op: l.op, Bytes: per, Check: l.check}
		piece := min(l.shape.bytes, per)
		req.Spans = make([]transport.Span, per/piece)
		for i := range req.Spans {
			req.Spans[i] = transport.Span{Local: l.mine, Remote: l.theirs, Bytes: piece}
		}
		l.free = append(l.free, req)
	}
	l.scratch = make([]*transport.Request, 0, n)
}

// pump posts what is free. Pieces move through the regions. mu is held.
func (l *load) pump() {
	l.scratch = l.scratch[:0]
	for l.left > 0 && len(l.free) > 0 {
		req := l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
		for i := range req.Spans {
			s := &req.Spans[i]
			if l.at+s.Bytes > benchRegion {
				l.at = 0
			}
			s.LocalOffset, s.RemoteOffset = l.at, l.at
			l.at += s.Bytes
		}
		l.scratch = append(l.scratch, req)
		l.left--
		l.flying++
	}
	if n, done := l.conn.Post(l.scratch, nil); n != len(l.scratch) || len(done) > 0 {
		l.failed = fmt.Errorf("%d of %d requests taken, %v", n, len(l.scratch), done)
	}
}

func (l *load) finished(_ transport.Conn, list []transport.Completion) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range list {
		if x.Err != nil {
			l.failed = x.Err
		}
		l.free = append(l.free, x.Request)
	}
	l.flying -= len(list)
	if l.left > 0 {
		l.pump()
	}
	if l.flying == 0 {
		l.over <- struct{}{}
	}
}

// run moves total bytes.
func (l *load) run(b testing.TB, total int64) {
	l.mu.Lock()
	l.left = int(total / l.free[0].Bytes)
	l.pump()
	l.mu.Unlock()
	<-l.over
	if l.failed != nil {
		b.Fatal(l.failed)
	}
}

// cost is what a run took.
type cost struct{ seconds, cpu float64 }

func measure(b testing.TB, p *peer, f func()) cost {
	cpu, start := p.cpu(b), time.Now()
	f()
	took := time.Since(start)
	return cost{took.Seconds(), (p.cpu(b) - cpu).Seconds()}
}

// inTurns runs both, the second one first in every other round.
func inTurns(round int, one, two func()) {
	if round%2 == 1 {
		one, two = two, one
	}
	one()
	two()
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

func ninety(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)*9/10]
}

func newLoad(b testing.TB, p *peer, a *side, mine *memory.Region, s shape, op transport.Op, check bool) *load {
	l := &load{shape: s, op: op, check: check, mine: mine, over: make(chan struct{}, 1),
		theirs: &transport.RemoteRegion{ID: p.first.Region, Bytes: benchRegion, Grant: both}}
	l.conn = p.dial(b, a, l.finished)
	l.prepare()
	return l
}

func BenchmarkStream(b *testing.B) {
	p := startPeer(b, "spin")
	a := newSide(b, Options{})
	mine := a.region(b, benchRegion, memory.None, memory.Options{Pages: memory.Huge, Backing: memory.Private})
	const total = 512 << 20
	for _, op := range []transport.Op{transport.Write, transport.Read} {
		for _, s := range []shape{{4 << 10, 128, 0}, {64 << 10, 128, 0}, {64 << 10, 128, 1 << 20}, {1 << 20, 16, 0}, {1 << 20, 16, 1 << 20}, {16 << 20, 4, 0}, {16 << 20, 4, 4 << 20}} {
			for _, check := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/%v/check=%v", map[transport.Op]string{transport.Read: "read", transport.Write: "write"}[op], s, check), func(b *testing.B) {
					l := newLoad(b, p, a, mine, s, op, check)
					defer l.conn.Close(nil)
					l.run(b, 64<<20)
					const size = 1 << 20
					mode := byte(rawSink)
					if op == transport.Read {
						mode = rawSource
					}
					var ratio, cpuRatio, rate, cpu, raw []float64
					for b.Loop() {
						var r, o cost
						inTurns(len(raw), func() {
							c := rawDial(b, p.first.Raw, mode, size, total/size)
							defer c.Close()
							r = measure(b, p, func() {
								if op == transport.Write {
									rawWriteAll(c, bytesOf(mine), size, total/size)
									_, _ = io.ReadFull(c, make([]byte, 1))
								} else {
									rawReadAll(c, bytesOf(mine), size, total/size)
								}
							})
						}, func() { o = measure(b, p, func() { l.run(b, total) }) })
						ratio = append(ratio, r.seconds/o.seconds)
						cpuRatio = append(cpuRatio, o.cpu/r.cpu)
						rate = append(rate, total/o.seconds/1e9)
						raw = append(raw, total/r.seconds/1e9)
						cpu = append(cpu, o.cpu/total*1e9)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(median(rate), "GB/s")
					b.ReportMetric(median(raw), "raw-GB/s")
					b.ReportMetric(median(ratio), "of-raw")
					b.ReportMetric(median(cpu), "cpu-s/GB")
					b.ReportMetric(median(cpuRatio), "cpu-of-raw")
					b.ReportMetric(median(rate)*1e9/float64(s.bytes), "pieces/s")
				})
			}
		}
	}
}

// signalled waits for a signal, as a batch does for its end.
type signalled chan struct{}

func (s signalled) Over() bool { return len(s) > 0 }

func (signalled) Brief() bool { return true }

func (signalled) Asleep(func()) bool { return false }

func BenchmarkLatency(b *testing.B) {
	for _, mode := range []string{"spin", "park"} {
		b.Run(mode, func(b *testing.B) {
			p := startPeer(b, mode)
			polls := 0
			if mode == "park" {
				polls = -1
			}
			a := newSide(b, Options{SpinPolls: polls})
			mine := a.region(b, benchRegion, memory.None, memory.Options{Pages: memory.Huge, Backing: memory.Private})
			s := shape{4 << 10, 1, 0}
			done := make(chan struct{}, 1)
			conn := p.dial(b, a, func(_ transport.Conn, l []transport.Completion) { done <- struct{}{} })
			defer conn.Close(nil)
			req := request(transport.Read, mine, 0, &transport.RemoteRegion{ID: p.first.Region}, 0, s.bytes)
			rawMode := byte(rawSpin)
			if mode == "park" {
				rawMode = rawPark
			}
			const calls = 5000
			var ratio, ours, raws, slow, rawSlow []float64
			for b.Loop() {
				var one, two []float64
				inTurns(len(raws), func() {
					c := rawDial(b, p.first.Raw, rawMode, int(s.bytes), calls)
					defer c.Close()
					pong := newPonger(c, mode == "spin")
					for range calls {
						start := time.Now()
						_, _ = c.Write(bytesOf(mine)[:rawAsk])
						if err := pong.read(bytesOf(mine)[:s.bytes]); err != nil {
							b.Fatal(err)
						}
						one = append(one, time.Since(start).Seconds()*1e6)
					}
				}, func() {
					for range calls {
						start := time.Now()
						conn.Post([]*transport.Request{req}, nil)
						if mode == "spin" {
							conn.(transport.Poller).Poll(signalled(done))
						}
						<-done
						two = append(two, time.Since(start).Seconds()*1e6)
					}
				})
				raws, ours = append(raws, median(one)), append(ours, median(two))
				ratio = append(ratio, median(two)/median(one))
				slow, rawSlow = append(slow, ninety(two)), append(rawSlow, ninety(one))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(ours), "p50-us")
			b.ReportMetric(median(raws), "raw-p50-us")
			b.ReportMetric(median(slow), "p90-us")
			b.ReportMetric(median(rawSlow), "raw-p90-us")
			b.ReportMetric(median(ratio), "of-raw")
		})
	}
}

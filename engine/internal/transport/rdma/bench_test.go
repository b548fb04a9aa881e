//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// pump keeps a connection full of small requests.
type pump struct {
	conn     transport.Conn
	requests []*transport.Request
	done     chan int
}

func newPump(t testing.TB, n int, size int64) *pump {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, Watch: time.Hour})
	here, there := w.a.region(1<<20, memory.None), w.b.region(1<<20, both)
	remote := w.b.remote(there)
	p := &pump{done: make(chan int, 1024)}
	for i := range n {
		at := int64(i) * size % (1<<20 - size)
		p.requests = append(p.requests, requestOf(transport.Write, span(here, at, remote, at, size)))
	}
	_, d := w.request()
	d.Remote = w.b.Offers()[0]
	d.Events.Done = func(_ transport.Conn, list []transport.Completion) { p.done <- len(list) }
	c, err := w.a.Dial(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	p.conn = c
	return p
}

// round posts all requests and waits for their ends.
func (p *pump) round() {
	left := len(p.requests)
	for rest := p.requests; len(rest) > 0; {
		n, _ := p.conn.Post(rest, nil)
		rest = rest[n:]
		if n == 0 {
			left -= <-p.done
		}
	}
	for left > 0 {
		left -= <-p.done
	}
}

func TestRequestsAllocateNothing(t *testing.T) {
	p := newPump(t, 64, 64)
	for range 20 {
		p.round()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 200
	for range rounds {
		p.round()
	}
	runtime.ReadMemStats(&after)
	// Sleeping in the net poller allocates a little for each time.
	if n := float64(after.Mallocs-before.Mallocs) / (rounds * 64); n > 0.3 {
		t.Errorf("%.2f allocations for each request", n)
	}
}

func BenchmarkPost(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("%d posted", n), func(b *testing.B) {
			p := newPump(b, n, 64)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				p.round()
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

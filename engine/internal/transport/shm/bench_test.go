//go:build linux

package shm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
)

// mover posts batches and waits for them without allocating.
type mover struct {
	conn    transport.Conn
	pending atomic.Int64
	idle    chan struct{}
	done    []transport.Completion
	failed  atomic.Pointer[error]
}

func (m *mover) events() transport.Events {
	return transport.Events{
		Done: func(_ transport.Conn, list []transport.Completion) {
			for i := range list {
				if list[i].Err != nil {
					m.failed.Store(&list[i].Err)
				}
			}
			if m.pending.Add(-int64(len(list))) == 0 {
				m.idle <- struct{}{}
			}
		},
		Lost: func(transport.Conn, error) {},
	}
}

// move posts requests and waits for all.
func (m *mover) move(requests []*transport.Request) {
	m.pending.Add(int64(len(requests)) + 1)
	for len(requests) > 0 {
		var n int
		n, m.done = m.conn.Post(requests, m.done[:0])
		requests = requests[n:]
		m.pending.Add(-int64(len(m.done)))
	}
	if m.pending.Add(-1) != 0 {
		<-m.idle
	}
}

const footprint = 256 << 20

// shared makes a connection with regions of the footprint on both sides.
func shared(b *testing.B, workers int) (*mover, *memory.Region, *memory.Region) {
	active, passive := newHost(b, workers), newHost(b, 1)
	local := active.region(footprint, memory.None, memory.Options{})
	far := passive.region(footprint, memory.PeerRead|memory.PeerWrite, memory.Options{})
	m := &mover{idle: make(chan struct{}, 1)}
	d := dialOf(passive, 1, transporttest.NewClient(b))
	d.Events = m.events()
	var err error
	if m.conn, err = active.Dial(within(b), d); err != nil {
		b.Fatal(err)
	}
	return m, local, far
}

// batches are requests of one size over the whole footprint, batch by batch.
func batches(op transport.Op, local, far *memory.Region, size, batch int64) [][]*transport.Request {
	to := remote(far)
	var all [][]*transport.Request
	for at := int64(0); at+size*batch <= footprint; at += size * batch {
		var list []*transport.Request
		for i := range batch {
			list = append(list, one(op, local, at+i*size, to, at+i*size, size))
		}
		all = append(all, list)
	}
	return all
}

// BenchmarkWrite alternates with copy by one goroutine over the same memory. ratio
// is the rate against copy's.
func BenchmarkWrite(b *testing.B) {
	for _, workers := range []int{1, 2} {
		for _, c := range []struct{ size, batch int64 }{
			{4 << 10, 1}, {4 << 10, 128}, {64 << 10, 1}, {64 << 10, 128}, {256 << 10, 1}, {256 << 10, 64}, {1 << 20, 1}, {1 << 20, 16}, {16 << 20, 1}, {16 << 20, 4},
		} {
			b.Run(fmt.Sprintf("workers=%d/%dKiBx%d", workers, c.size>>10, c.batch), func(b *testing.B) {
				m, local, far := shared(b, workers)
				all := batches(transport.Write, local, far, c.size, c.batch)
				m.move(all[0])
				for _, list := range batches(transport.Write, local, far, 1<<20, 16) {
					m.move(list)
				}
				src, dst := local.Block().Bytes(), far.Block().Bytes()
				const chunk = 64 << 20
				rounds := int(chunk / (c.size * c.batch))
				at := 0
				var plain, ours time.Duration
				for b.Loop() {
					start := time.Now()
					for i := range rounds {
						for k := range c.batch {
							from := int64((at+i)%len(all))*c.size*c.batch + k*c.size
							copy(dst[from:from+c.size], src[from:from+c.size])
						}
					}
					plain += time.Since(start)
					at = (at + rounds) % len(all)
					start = time.Now()
					for i := range rounds {
						m.move(all[(at+i)%len(all)])
					}
					ours += time.Since(start)
					at = (at + rounds) % len(all)
				}
				if err := m.failed.Load(); err != nil {
					b.Fatal(*err)
				}
				b.ReportMetric(float64(b.N)*chunk/1e9/plain.Seconds(), "copy-GB/s")
				b.ReportMetric(float64(b.N)*chunk/1e9/ours.Seconds(), "GB/s")
				b.ReportMetric(plain.Seconds()/ours.Seconds(), "ratio")
				b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N)/float64(rounds)/float64(c.batch), "ns/request")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkTwoWorkers alternates one worker with two on 16 MiB writes, and copy by
// one goroutine with copy by two. It needs two idle processors.
func BenchmarkTwoWorkers(b *testing.B) {
	type side struct {
		m     *mover
		all   [][]*transport.Request
		spent time.Duration
	}
	var sides [2]side
	var src, dst []byte
	for i := range sides {
		m, local, far := shared(b, i+1)
		sides[i] = side{m: m, all: batches(transport.Write, local, far, 16<<20, 4)}
		for _, list := range sides[i].all {
			m.move(list)
		}
		src, dst = local.Block().Bytes(), far.Block().Bytes()
	}
	var plain [2]time.Duration
	for b.Loop() {
		for i := range sides {
			start := time.Now()
			for _, list := range sides[i].all {
				sides[i].m.move(list)
			}
			sides[i].spent += time.Since(start)
			start = time.Now()
			var wg sync.WaitGroup
			part := footprint / (i + 1)
			for k := range i + 1 {
				wg.Go(func() { copy(dst[k*part:(k+1)*part], src[k*part:]) })
			}
			wg.Wait()
			plain[i] += time.Since(start)
		}
	}
	b.ReportMetric(sides[0].spent.Seconds()/sides[1].spent.Seconds(), "workers-ratio")
	b.ReportMetric(plain[0].Seconds()/plain[1].Seconds(), "copy-ratio")
	b.ReportMetric(plain[0].Seconds()/sides[0].spent.Seconds(), "one-against-copy")
	b.ReportMetric(plain[1].Seconds()/sides[1].spent.Seconds(), "two-against-copy")
	b.ReportMetric(0, "ns/op")
}

package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/pathsel"
)

// benchPair is a client with a region of its own, and one of the server.
func benchPair(b *testing.B, transport string, size int64, o Options) (*Peer, *Region, *RemoteRegion) {
	b.Helper()
	ctx := context.Background()
	server := newEngine(b, Options{Name: "server"})
	o.Name = "client"
	client := newEngine(b, o)
	must(b, errOf(server.Alloc(size, RegionOptions{Name: "kv", Grant: memory.PeerRead | memory.PeerWrite, Memory: memory.Options{Pages: memory.Huge}})))
	mine, err := client.Alloc(size, RegionOptions{Memory: memory.Options{Pages: memory.Huge}})
	must(b, err)
	p, err := client.Open(ctx, server.Addrs()[0].String())
	must(b, err)
	to, err := p.Region(ctx, "kv")
	must(b, err)
	return p, mine, to
}

func BenchmarkEngine(b *testing.B) {
	for _, transport := range []string{"tcp", "shm"} {
		for _, c := range []struct {
			size  int64
			ops   int
			depth int
		}{{4 << 10, 1, 1}, {4 << 10, 128, 2}, {64 << 10, 128, 2}, {1 << 20, 16, 2}} {
			for _, read := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/%s/%dKiBx%d", transport, kindOf(read), c.size>>10, c.ops), func(b *testing.B) {
					const total = 256 << 20
					p, mine, to := benchPair(b, transport, total, Options{})
					ctx := context.Background()
					batch := c.size * int64(c.ops)
					places := total / batch
					ops := make([]Op, c.ops)
					running := make([]*Batch, c.depth)
					b.SetBytes(batch)
					b.ReportAllocs()
					// Nothing lies next to its neighbour, so that nothing is merged.
					submit := func(i int) *Batch {
						at := (int64(i) % places) * batch
						for k := range ops {
							here := at + int64(k)*c.size
							there := at + int64(c.ops-1-k)*c.size
							ops[k] = Op{Kind: kindOf(read), Local: mine.Span(here, c.size), Remote: to.At(there)}
						}
						x, err := p.Submit(ctx, ops, SubmitOptions{Transport: pathsel.Transport(transport), Check: CheckNever})
						must(b, err)
						return x
					}
					for i := range 20 {
						must(b, submit(i).Wait(ctx))
					}
					b.ResetTimer()
					for i := range b.N {
						slot := i % c.depth
						if running[slot] != nil {
							must(b, running[slot].Wait(ctx))
						}
						running[slot] = submit(i)
					}
					for _, x := range running {
						if x != nil {
							must(b, x.Wait(ctx))
						}
					}
					b.ReportMetric(float64(b.N*c.ops)/b.Elapsed().Seconds(), "ops/s")
				})
			}
		}
	}
}

// BenchmarkPrepare checks the ops of a batch, whose places at the peer are in some order.
// BenchmarkDigest is what comparing bytes costs that are the same, at both ends of one process: 64
// ops of 1 MiB. What a batch costs without is that of the transport.
func BenchmarkDigest(b *testing.B) {
	for _, size := range []int64{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("64x%dKiB", size>>10), func(b *testing.B) {
			p, mine, to := benchPair(b, "tcp", 64*size, Options{})
			var ops []Op
			for i := range int64(64) {
				ops = append(ops, WriteOp(mine.Span(i*size, size), to.At(i*size)))
			}
			batch, err := p.prepare(b.Context(), ops, SubmitOptions{})
			must(b, err)
			defer batch.unpin()
			batch.deadline = int64(longest)
			b.SetBytes(64 * size)
			for b.Loop() {
				must(b, batch.compare(b.Context(), batch.parts))
			}
		})
	}
}

func BenchmarkPrepare(b *testing.B) {
	for _, n := range []int{128, 10_000} {
		p, mine, to := benchPair(b, "tcp", 64<<20, Options{})
		for order, place := range map[string]func(i int) int{
			"ascending": func(i int) int { return i }, "descending": func(i int) int { return n - 1 - i }, "random": func(i int) int { return i * 7919 % n },
		} {
			b.Run(fmt.Sprintf("%d/%s", n, order), func(b *testing.B) {
				ops := make([]Op, n)
				for i := range ops {
					ops[i] = WriteOp(mine.Span(int64(i)*4096, 4096), to.At(int64(place(i))*4096))
				}
				b.ReportAllocs()
				for b.Loop() {
					x, err := p.prepare(b.Context(), ops, SubmitOptions{})
					must(b, err)
					x.unpin()
					for _, part := range x.parts {
						p.engine.keepBuffers(part)
					}
				}
			})
		}
	}
}

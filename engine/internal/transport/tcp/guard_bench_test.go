package tcp

import (
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// BenchmarkGuard is what a request's header costs at each end, and a piece of payload.
func BenchmarkGuard(b *testing.B) {
	tagged, _ := grant{offer: offer{level: transport.Payload}}.guards()
	for name, g := range map[string]*guard{"open": {}, "headers": &tagged} {
		frame := make([]byte, headBytes+descBytes+g.tail())
		b.Run("header/"+name, func(b *testing.B) {
			for b.Loop() {
				g.seal(frame)
			}
		})
	}
	piece := make([]byte, pieceBytes)
	b.Run("piece/payload", func(b *testing.B) {
		b.SetBytes(pieceBytes)
		for b.Loop() {
			tagged.tag(1, piece)
		}
	})
}

// BenchmarkProtection moves the same bytes at all levels in turns, and over bare streams of
// crypto/tls: run it with -benchtime 15x on a machine that does nothing else, and read the
// ratios. Those of a level are medians of its rounds, with their range.
func BenchmarkProtection(b *testing.B) {
	p := startPeer(b, "spin")
	mine := newSide(b, Options{}).region(b, benchRegion, memory.None, memory.Options{Pages: memory.Huge, Backing: memory.Private})
	const total = 256 << 20
	for op, name := range map[transport.Op]string{transport.Write: "write", transport.Read: "read"} {
		for _, s := range []shape{{4 << 10, 64, 4 << 10}, {64 << 10, 32, 64 << 10}, {1 << 20, 8, 1 << 20}} {
			b.Run(fmt.Sprintf("%s/%v", name, s), func(b *testing.B) {
				var runs []func()
				names := []string{"bare-tls"}
				mode := byte(rawSink)
				if op == transport.Read {
					mode = rawSource
				}
				const size = 1 << 20
				runs = append(runs, func() {
					c := rawDial(b, p.first.Raw, mode-rawTLS, size, total/size)
					defer c.Close()
					if op == transport.Write {
						rawWriteAll(c, bytesOf(mine), size, total/size)
						_, _ = io.ReadFull(c, make([]byte, 1))
					} else {
						rawReadAll(c, bytesOf(mine), size, total/size)
					}
				})
				for level := transport.Open; level <= mostProtection; level++ {
					l := newLoad(b, p, newSide(b, Options{Protection: level}), mine, s, op, false)
					defer l.conn.Close(nil)
					l.run(b, 16<<20)
					names = append(names, level.String())
					runs = append(runs, func() { l.run(b, total) })
				}
				costs := make([][]cost, len(runs))
				for round := 0; b.Loop(); round++ {
					for i := range runs {
						k := (i + round) % len(runs) // none is always first
						costs[k] = append(costs[k], measure(b, p, runs[k]))
					}
				}
				b.ReportMetric(0, "ns/op")
				for i, name := range names {
					of, base := "open", 1
					if name == "sealed" {
						of, base = "bare-tls", 0
					}
					var rate, ratio, cpu []float64
					for k, c := range costs[i] {
						rate = append(rate, total/c.seconds/1e9)
						ratio = append(ratio, costs[base][k].seconds/c.seconds)
						cpu = append(cpu, c.cpu/total*1e9)
					}
					b.ReportMetric(median(rate), name+"-GB/s")
					b.ReportMetric(median(cpu), name+"-cpu-s/GB")
					if i != base && i > 0 {
						b.ReportMetric(median(ratio), name+"-of-"+of)
						b.ReportMetric(slices.Min(ratio), name+"-least")
						b.ReportMetric(slices.Max(ratio), name+"-most")
					}
				}
			})
		}
	}
}

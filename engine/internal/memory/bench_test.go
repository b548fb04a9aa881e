package memory

import (
	"fmt"
	"testing"
	"time"
)

func BenchmarkPin(b *testing.B) {
	tab := NewTable(1)
	r := region(b, tab, 4096, "kv", PeerRead)
	id := r.ID()
	for b.Loop() {
		r, err := tab.Pin(id, 100, 50, PeerRead)
		if err != nil {
			b.Fatal(err)
		}
		r.Unpin()
	}
	closeTable(b, tab)
}

// BenchmarkCopy compares Copy with copy in turns, out of DRAM: blocks of one size
// at ever new places of two ranges that no cache holds (L2 here 2 MiB; the host's
// L3 is shared). ratio is the rate against copy's.
func BenchmarkCopy(b *testing.B) {
	const footprint = 256 << 20
	src, dst := alloc(b, footprint, Options{}).Bytes(), alloc(b, footprint, Options{}).Bytes()
	clear(src)
	for _, size := range []int{4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			at := 0
			run := func(f func(dst, src []byte) int) time.Duration {
				start := time.Now()
				for moved := 0; moved < 64<<20; moved += size {
					f(dst[at:at+size], src[at:at+size])
					at = (at + size) % footprint
				}
				return time.Since(start)
			}
			var plain, ours, streamed time.Duration
			for b.Loop() {
				plain += run(func(dst, src []byte) int { return copy(dst, src) })
				ours += run(Copy)
				streamed += run(Stream)
			}
			rate := float64(b.N) * (64 << 20) / 1e9
			b.ReportMetric(rate/plain.Seconds(), "copy-GB/s")
			b.ReportMetric(plain.Seconds()/ours.Seconds(), "ratio")
			b.ReportMetric(plain.Seconds()/streamed.Seconds(), "stream-ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

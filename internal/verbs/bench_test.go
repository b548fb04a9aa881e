//go:build cgo && linux && (amd64 || arm64)

package verbs_test

import (
	"fmt"
	"testing"

	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// What a Post costs, by the number of its work requests. The send queue is full, so that
// the fake stops at the first of them: what is left is filling the requests, the call
// into C, their chain, and the fake's lock.
func BenchmarkPost(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{verbsfake.RoCE("a", 1, "10.0.0.1"), verbsfake.RoCE("b", 2, "10.0.0.2")}})
			defer f.Close()
			s, p := open(b, f.Lib("a"), "a", 4096), open(b, f.Lib("b"), "b", 4096)
			connect(b, s, p)
			wrs := make([]verbs.SendWR, n)
			for i := range wrs {
				wrs[i] = s.wr(verbs.OpRDMAWrite, p, 0, 0, 8)
			}
			f.Stall("a", true)
			for range 128 / n {
				s.post(b, wrs...)
			}
			b.ReportAllocs()
			for b.Loop() {
				if got, err := s.qp.Post(wrs); got != 0 || err != nil {
					b.Fatal(got, err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/wr")
			f.Stall("a", false)
			s.wait(b, 128/n*n)
		})
	}
}

// A Poll that finds nothing: what spinning costs.
func BenchmarkPollEmpty(b *testing.B) {
	f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{verbsfake.RoCE("a", 1, "10.0.0.1")}})
	defer f.Close()
	s := open(b, f.Lib("a"), "a", 4096)
	out := make([]verbs.WC, verbs.MaxBatch)
	b.ReportAllocs()
	for b.Loop() {
		if n, err := s.cq.Poll(out); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}

// 64 WRITEs of 8 bytes through the fake, posted and polled.
func BenchmarkWrites(b *testing.B) {
	f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{verbsfake.RoCE("a", 1, "10.0.0.1"), verbsfake.RoCE("b", 2, "10.0.0.2")}})
	defer f.Close()
	s, p := open(b, f.Lib("a"), "a", 4096), open(b, f.Lib("b"), "b", 4096)
	connect(b, s, p)
	wrs := make([]verbs.SendWR, 64)
	for i := range wrs {
		wrs[i] = s.wr(verbs.OpRDMAWrite, p, 0, i*8, 8)
	}
	out := make([]verbs.WC, verbs.MaxBatch)
	b.ReportAllocs()
	for b.Loop() {
		s.post(b, wrs...)
		for got := 0; got < 64; {
			n, err := s.cq.Poll(out)
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/wr")
}

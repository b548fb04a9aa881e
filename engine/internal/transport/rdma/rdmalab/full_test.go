//go:build vmlab && linux && cgo

package rdma

import (
	"fmt"
	"testing"
	"time"

	"github.com/topoctl/topoctl/test/vmlab/guest"
)

// A machine's queue is full and the kernel refuses packets, of requests or of answers: no
// byte is wrong. Soft-RoCE then answers a READ from its second packet on, and completes it
// at the other end as if it were good.
func TestFullQueue(t *testing.T) {
	hosts, length := []int{2}, 4*time.Second // machine 2 answers READs
	if *long {
		hosts, length = []int{1, 2}, time.Minute
	}
	for _, host := range hosts {
		t.Run(fmt.Sprintf("machine %d", host), func(t *testing.T) {
			mended(t)
			d := newDuo(t, Spec{Transports: []string{*over}, Rails: []int{0, 1}, Bytes: 1 << 20})
			if err := shape(bounded(t), map[int]int64{0: 40_000_000, 1: 40_000_000}); err != nil {
				t.Fatal(err)
			}
			tight := Action{Do: "netem", Net: guest.Netem{RateBitsPerSec: 40_000_000, Packets: 8}}
			if err := tight.on(bounded(t), host); err != nil {
				t.Fatal(err)
			}
			tr := d.startTraffic(4, 6, 48<<10, dice(t))
			pause(length)
			err := shape(bounded(t), map[int]int64{0: 40_000_000})
			tr.end()
			if err != nil {
				t.Fatal(err)
			}
			s := d.engine.Stats()
			t.Logf("%v; slowest batch %v; %d slices sent again", tr, tr.takeSlowest().Round(time.Millisecond), s.Retries)
			logLanes(t, d)
			if tr.reads.Load() == 0 {
				t.Error("nothing was read")
			}
		})
	}
}

//go:build vmlab && linux && cgo

package rdma

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport/rdma/rdmalab/baseline"
)

// One transfer at a time takes the engine little longer than a loop in C that posts one
// and polls one.
func TestLatency(t *testing.T) {
	if *over != "rdma" {
		t.Skip("-over is not rdma, which this is about")
	}
	for _, read := range []bool{false, true} {
		op := map[bool]string{false: "WRITE", true: "READ"}[read]
		t.Run(op, func(t *testing.T) {
			openBaseline(t)
			defer closeBaseline(t)
			t.Run("engine", func(t *testing.T) {
				d := newDuo(t, Spec{Transports: []string{"rdma"}, Rails: []int{0}, Bytes: 2 * messageBytes * messageDepth})
				for _, bytes := range []int{8, 4096} {
					d.compareLatency(t, read, bytes)
				}
			})
		})
	}
}

const (
	latencyGoal = 1.3
	// latencyLimit is what emulated processors let the engine reach. Its part of a WRITE is
	// some 10 µs of a real processor; emulated they are 0.4 ms, a third of what the loop in C
	// takes for all. Hosts with other work to do add to that: each thread that the Go runtime
	// keeps awake is one more that waits for a processor.
	latencyLimit = 2.5
	latencyTurns = 24 // of few transfers, so that what else the host does hits both
)

// compareLatency compares the medians of transfers one at a time. Both look for a
// completion, and sleep on the completion channel when there is none.
func (d *duo) compareLatency(t *testing.T, read bool, bytes int) {
	const count = 25 // of a turn
	for try := 1; ; try++ {
		var theirs, ours []time.Duration
		for range latencyTurns {
			inC, err := baseline.Times(read, bytes, count)
			if err != nil {
				t.Fatal(err)
			}
			theirs, ours = append(theirs, inC...), append(ours, d.times(t, read, int64(bytes), count)...)
		}
		a, b := median(theirs), median(ours)
		ratio := float64(b) / float64(a)
		text := fmt.Sprintf("%d bytes, one at a time: median in C %v, engine %v: %.2f times (the goal is %.1f)", bytes, a, b, ratio, latencyGoal)
		if enough(t, try, text, ratio <= latencyLimit) {
			return
		}
	}
}

// times are how long single transfers take.
func (d *duo) times(t *testing.T, read bool, bytes int64, count int) []time.Duration {
	t.Helper()
	ctx := bounded(t)
	var list []time.Duration
	for i := range count {
		at := int64(i) * bytes % (messageBytes - bytes)
		mine, theirs := d.mine.Span(at, bytes), d.theirs.At(at)
		to, from := d.there[at:at+bytes], d.here[at:at+bytes]
		if read {
			to, from = from, to
		}
		began := time.Now()
		if read {
			if err := d.peer.Read(ctx, mine, theirs); err != nil {
				t.Fatal(err)
			}
		} else if err := d.peer.Write(ctx, mine, theirs); err != nil {
			t.Fatal(err)
		}
		list = append(list, time.Since(began))
		copy(to, from)
	}
	return list
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2].Round(time.Microsecond)
}

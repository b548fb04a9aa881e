package sim

import (
	"container/heap"
	"math"
)

// Never is the time of something that does not happen.
const Never int64 = math.MaxInt64

// A Timer is something that happens at a time. One that has happened may be set
// again.
type Timer struct {
	at  int64
	seq uint64 // timers of one time run in the order in which they were set
	pos int    // in the heap, from 1; 0: not set
	run func()
}

// At runs something at a time; one in the past is now.
func (n *Net) At(atNS int64, run func()) *Timer {
	t := &Timer{run: run}
	n.Set(t, atNS)
	return t
}

// Set moves a timer to another time; Never stops it.
func (n *Net) Set(t *Timer, atNS int64) {
	if atNS == Never {
		if t.pos > 0 {
			heap.Remove(&n.timers, t.pos-1)
		}
		return
	}
	n.turns++
	t.at, t.seq = max(atNS, n.now), n.turns
	if t.pos == 0 {
		heap.Push(&n.timers, t)
	} else {
		heap.Fix(&n.timers, t.pos-1)
	}
}

// timerHeap is a heap of timers that know their place in it.
type timerHeap []*Timer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i+1, j+1
}

// Push adds a timer at the end.
func (h *timerHeap) Push(x any) {
	t := x.(*Timer)
	*h = append(*h, t)
	t.pos = len(*h)
}

// Pop removes the last timer.
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h, t.pos = (*h)[:last], 0
	return t
}

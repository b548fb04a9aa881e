package sim

import "math"

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
		n.timers.remove(t)
		return
	}
	n.turns++
	t.at, t.seq = max(atNS, n.now), n.turns
	n.timers.put(t)
}

// timerHeap is a binary heap of timers that know their place in it, from 1.
type timerHeap []*Timer

func (h timerHeap) less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

func (h timerHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i+1, j+1
}

// put adds a timer, or moves one whose time has changed.
func (h *timerHeap) put(t *Timer) {
	if t.pos == 0 {
		*h = append(*h, t)
		t.pos = len(*h)
	}
	h.down(h.up(t.pos - 1))
}

func (h *timerHeap) remove(t *Timer) {
	if t.pos == 0 {
		return
	}
	i, last := t.pos-1, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	t.pos = 0
	if i < last {
		h.down(h.up(i))
	}
}

func (h timerHeap) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			break
		}
		h.swap(i, parent)
		i = parent
	}
	return i
}

func (h timerHeap) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h.less(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

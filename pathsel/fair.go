package pathsel

import "math"

// waterFill shares the capacity of segments among flows so that no flow can get
// more without a smaller one getting less (max-min fairness by progressive
// filling): all flows grow alike, in proportion to their weights, until a
// segment is full; its flows stay where they are and the others grow on.
//
// It is deterministic: a flow's rate depends on what flows there are, never on
// their order.
type waterFill struct {
	caps   []float64 // by segment
	left   []float64 // what is not given away yet
	demand []float64 // summed weights of the flows that still grow
	seen   []segment // the segments that any flow uses, each once
	used   []bool
	// stopped are the flows that the current round stops.
	stopped []int
}

func newWaterFill(caps []float64) *waterFill {
	return &waterFill{caps: caps, left: make([]float64, len(caps)), demand: make([]float64, len(caps)), used: make([]bool, len(caps))}
}

// flow is one stream of bytes over some segments. limit is the segment that
// stopped its growth, -1 where none did: then its rate is not known.
type flow struct {
	segments []segment
	weight   float64
	rate     float64
	limit    segment
}

// unlimited marks the rate of a flow that no segment of known capacity bounds.
func (f *flow) unlimited() bool { return math.IsInf(f.rate, 1) }

// run sets rate and limit of every flow. Weights must be above 0.
func (w *waterFill) run(flows []flow) {
	w.reset(flows)
	for {
		level, ok := w.level()
		if !ok {
			return
		}
		// Which flows stop is settled before any is taken out of the sums, so
		// that their order does not matter.
		w.stopped = w.stopped[:0]
		for i := range flows {
			if f := &flows[i]; f.limit < 0 && w.stops(f, level) {
				f.rate = level * f.weight
				w.stopped = append(w.stopped, i)
			}
		}
		if len(w.stopped) == 0 {
			return // the level is no number: without progress there is no end
		}
		for _, i := range w.stopped {
			for _, s := range flows[i].segments {
				w.left[s] = max(0, w.left[s]-flows[i].rate)
				w.demand[s] -= flows[i].weight
			}
		}
	}
}

func (w *waterFill) reset(flows []flow) {
	for _, s := range w.seen {
		w.used[s], w.demand[s] = false, 0
	}
	w.seen = w.seen[:0]
	for i := range flows {
		f := &flows[i]
		f.rate, f.limit = math.Inf(1), -1
		for _, s := range f.segments {
			if !w.used[s] {
				w.used[s], w.left[s] = true, w.caps[s]
				w.seen = append(w.seen, s)
			}
			w.demand[s] += f.weight
		}
	}
}

// level is the rate per weight at which the next segment is full; ok is false
// where no growing flow meets a segment of known capacity.
func (w *waterFill) level() (level float64, ok bool) {
	level = math.Inf(1)
	for _, s := range w.seen {
		if w.demand[s] > tiny {
			level = min(level, w.left[s]/w.demand[s])
		}
	}
	return level, !math.IsInf(level, 1)
}

// tiny absorbs what subtraction leaves of sums, as a share.
const tiny = 1e-9

// stops says whether a flow crosses a segment that is full at a level, and
// notes the first such.
func (w *waterFill) stops(f *flow, level float64) bool {
	for _, s := range f.segments {
		if w.left[s] <= level*w.demand[s]*(1+tiny) {
			f.limit = s
			return true
		}
	}
	return false
}

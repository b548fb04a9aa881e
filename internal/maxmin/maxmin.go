// Package maxmin shares the capacity of links among flows so that no flow can get
// more without one that has as little getting less: max-min fairness, found by
// progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2). All flows grow
// alike, in proportion to their weights, until a segment is full; the flows across it
// stay where they are and the others grow on.
package maxmin

import "math"

// Segment is the place of one direction of a link, or of anything else of limited
// capacity, in the list that New takes.
type Segment int32

// None is the Limit of a flow that nothing limits.
const None Segment = -1

// Flow is one stream over some segments.
type Flow struct {
	// Segments are those that it crosses; one that it crosses twice is there twice.
	Segments []Segment
	// Weight must be above 0: a flow of weight 2 gets twice as much as one of weight 1.
	Weight float64

	// Share sets Rate, in the unit of the capacities: infinite where no segment of
	// finite capacity limits it.
	Rate float64
	// Share sets Limit: the first segment on its way that is full at its rate.
	Limit Segment
}

// Whole is a rate in whole units, never more than there are; rounding errors do not count.
func Whole(rate float64) int64 { return int64(math.Floor(rate + 1e-3)) }

// Unlimited says whether no segment of finite capacity limits a flow.
func (f *Flow) Unlimited() bool { return math.IsInf(f.Rate, 1) }

// Allocator shares the capacities of segments among flows, one set of flows after
// another, without allocating for each. It is not safe for concurrent use.
type Allocator struct {
	capacities []float64
	left       []float64 // what the flows that stopped leave of a segment that is in use
	growing    []float64 // summed weights of the flows across it that still grow
	inUse      []bool
	used       []Segment // each once
	stopped    []int     // the flows that the current round stops
}

// New makes an allocator of segments with the given capacities, infinite where they
// are unknown. It keeps the slice; a capacity may change between calls of Share.
func New(capacities []float64) *Allocator {
	n := len(capacities)
	return &Allocator{capacities: capacities, left: make([]float64, n), growing: make([]float64, n), inUse: make([]bool, n)}
}

// Share sets the rate and limit of every flow. They depend on what flows there are,
// never on their order.
func (a *Allocator) Share(flows []Flow) {
	a.reset(flows)
	for {
		level, ok := a.nextLevel()
		if !ok {
			return
		}
		// Which flows stop is settled before any is taken out of the sums, so
		// that their order does not matter.
		a.stopped = a.stopped[:0]
		for i := range flows {
			if f := &flows[i]; f.Limit == None && a.stops(f, level) {
				f.Rate = level * f.Weight
				a.stopped = append(a.stopped, i)
			}
		}
		if len(a.stopped) == 0 {
			return // the level is no number: without progress there is no end
		}
		for _, i := range a.stopped {
			for _, s := range flows[i].Segments {
				a.left[s] = max(0, a.left[s]-flows[i].Rate)
				a.growing[s] -= flows[i].Weight
			}
		}
	}
}

// Left is what the flows that were last shared leave of a segment.
func (a *Allocator) Left(s Segment) float64 {
	if a.inUse[s] {
		return a.left[s]
	}
	return a.capacities[s]
}

func (a *Allocator) reset(flows []Flow) {
	for _, s := range a.used {
		a.inUse[s], a.growing[s] = false, 0
	}
	a.used = a.used[:0]
	for i := range flows {
		f := &flows[i]
		f.Rate, f.Limit = math.Inf(1), None
		for _, s := range f.Segments {
			if !a.inUse[s] {
				a.inUse[s], a.left[s] = true, a.capacities[s]
				a.used = append(a.used, s)
			}
			a.growing[s] += f.Weight
		}
	}
}

// tolerance is the relative error that subtraction may leave in sums.
const tolerance = 1e-9

// nextLevel is the rate per weight at which the next segment is full; ok is false
// where no growing flow crosses a segment of finite capacity.
func (a *Allocator) nextLevel() (level float64, ok bool) {
	level = math.Inf(1)
	for _, s := range a.used {
		if a.growing[s] > tolerance {
			level = min(level, a.left[s]/a.growing[s])
		}
	}
	return level, !math.IsInf(level, 1)
}

// stops says whether a flow crosses a segment that is full at a level, and sets its
// limit to the first.
func (a *Allocator) stops(f *Flow, level float64) bool {
	for _, s := range f.Segments {
		if a.left[s] <= level*a.growing[s]*(1+tolerance) {
			f.Limit = s
			return true
		}
	}
	return false
}

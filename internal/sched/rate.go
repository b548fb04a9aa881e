package sched

// A service rate is believed after so many slices in so much busy time, on fast
// lanes after more slices in less time.
const (
	trustSlices     = 8
	trustNS         = 5 * millisecond
	trustManySlices = 64
	trustManyNS     = millisecond / 2
)

// estimate is the service rate of a lane: bytes completed per busy time, older
// ones counting less. Latency does not enter: an interval between completions
// counts only when the next slice was already on its way for a round trip as it
// began, so that the lane had something to do all the time.
type estimate struct {
	prior    float64 // what the topology promises, bytes per second
	known    bool    // it does
	believed bool    // and it was measured

	bytes, ns float64 // with weight by age
	slices    int64   // that were counted, ever
	total     int64   // nanoseconds that were counted, ever

	// The interval that ended last: slices that complete at one time are one.
	last struct {
		at, ns, bytes, slices int64
		counts                bool
	}
}

// rate is the best guess, bytes per second, never 0.
func (e *estimate) rate() float64 {
	if e.trusted() {
		return e.measured()
	}
	return e.prior
}

// soFar is the rate, but that a lane of which nothing is known has shown more before
// that is trusted: the prior is nobody's promise then, and bounds nothing.
func (e *estimate) soFar() float64 {
	if e.known || e.ns == 0 || e.trusted() {
		return e.rate()
	}
	return max(e.prior, e.measured())
}

// sampled says whether the estimate is better than a prior that nobody promised.
func (e *estimate) sampled() bool {
	return !e.known && e.slices >= trustSlices || e.trusted()
}

func (e *estimate) trusted() bool {
	return e.slices >= trustSlices && e.total >= trustNS || e.slices >= trustManySlices && e.total >= trustManyNS
}

func (e *estimate) measured() float64 { return max(e.bytes*1e9/max(e.ns, 1), 1) }

// begin starts a busy period.
func (e *estimate) begin(clock int64, halfLife float64) {
	e.fold(halfLife)
	e.last.at, e.last.bytes, e.last.counts = clock, 0, false
}

// done counts a completed slice that was posted at a time; rtt is what an empty
// lane takes without a payload.
func (e *estimate) done(clock, posted, bytes, rtt int64, halfLife float64) {
	if e.last.bytes > 0 && clock == e.last.at {
		e.last.bytes += bytes
		e.last.slices++
		return
	}
	e.fold(halfLife)
	ns := clock - e.last.at
	e.last.counts = posted+rtt <= e.last.at
	if !e.last.counts && posted == e.last.at && float64(bytes)*1e9/e.rate() > float64(2*rtt) {
		// The first of a busy period, and large: its way there and back hardly counts.
		e.last.counts, ns = true, max(ns-rtt, 1)
	}
	e.last.at, e.last.ns, e.last.bytes, e.last.slices = clock, ns, bytes, 1
}

// fold adds the last interval. Completions that come late and then all at once
// make an interval too short: it counts as four times the rate so far at most.
func (e *estimate) fold(halfLife float64) {
	if !e.last.counts || e.last.bytes == 0 {
		return
	}
	bytes, ns := float64(e.last.bytes), float64(e.last.ns)
	ns = max(ns, bytes*1e9/(4*e.soFar()))
	keep := halfLife / (halfLife + 0.693*ns)
	e.bytes, e.ns = e.bytes*keep+bytes, e.ns*keep+ns
	e.slices += e.last.slices
	e.total += int64(ns)
	e.last.bytes = 0
}

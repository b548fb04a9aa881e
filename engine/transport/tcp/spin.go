package tcp

import "time"

const (
	// spinPolls is how often an empty socket is read again before the reader parks:
	// some 50 µs, about what waking up costs.
	spinPolls = 200
	// yieldPolls is how often between letting others have the processor: a peer on
	// this host may wait for just this one, and then never answers in time.
	yieldPolls = 12
	// A wait that was shorter than this is worth spinning through. Waking up makes
	// the waits of a reader that parks longer.
	shortWait       = 50 * time.Microsecond
	shortParkedWait = 120 * time.Microsecond
	spinBest        = 8
)

// spin decides how long a reader polls before it parks: not at all where the last
// waits were too long for that to pay.
type spin struct {
	polls int // when it pays; 0 never
	score int
}

func (s *spin) now() int {
	if s.score == 0 {
		return 0
	}
	return s.polls
}

// waited tells how long the last wait was.
func (s *spin) waited(d time.Duration, parked bool) {
	short := shortWait
	if parked {
		short = shortParkedWait
	}
	if d < short {
		s.score = min(s.score+2, spinBest)
	} else {
		s.score = max(s.score-1, 0)
	}
}

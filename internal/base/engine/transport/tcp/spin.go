package tcp

import "time"

const (
	// spinPolls is how often an empty socket is read again before the reader parks:
	// some 50 µs, about what waking up costs.
	spinPolls = 200
	// yieldPolls is how often between letting others have the processor, in the last
	// polls: a peer on this host may wait for just this one, and then never answers in
	// time. Where both have one of their own the answer is there before that, and
	// yielding from the start kept them together on one.
	yieldPolls = 12
	lastPolls  = 120
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

// crowded says whether to yield with so many polls left.
func crowded(polls int) bool { return polls < lastPolls && polls%yieldPolls == 0 }

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

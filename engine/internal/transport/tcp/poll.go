package tcp

import (
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

// pollFactor is how much longer than a reader a waiter polls for its
// answer: the peer's reader may have parked, and wakes up in less time than that.
// Were both ends as patient, they could go on parking just before each other's
// bytes come.
const pollFactor = 2

// poller is for a waiter for a request: waking the reader and then the
// waiter takes several times as long as the answer of a peer that is awake.
// It is used with the link's turn.
type poller struct {
	waiter transport.Waiter
	spin   spin
	polls  int  // that are left
	got    bool // the last ones brought something
	// since is when polling began that was given up; what ends then shows whether
	// more of it would have paid.
	since time.Time
	// call is the callback of RawConn, made once.
	call func(fd uintptr)
}

func (c *conn) initPoll(polls int) {
	c.poller.spin = spin{polls: polls, score: spinBest / 2}
	c.poller.call = c.pollSome
}

// Poll takes in what comes, for some 100 µs at most, and only looks once where more
// did not pay recently.
func (c *conn) Poll(w transport.Waiter) {
	if c.sealed || w.Over() || !w.Brief() || !c.turn.TryLock() {
		return // there is nothing to wait for, or the reader is awake, or will be in time
	}
	p := &c.poller
	p.waiter, p.polls, p.since = w, max(pollFactor*p.spin.now(), 1), time.Time{}
	start := time.Now()
	err := c.pollAll()
	if err == nil && w.Over() {
		p.spin.waited(0, false)
	} else {
		p.since = start
	}
	p.waiter = nil
	c.turn.Unlock()
	for err == nil && c.missed.Swap(false) && c.turn.TryLock() {
		// The reader came in the meantime and parked: what had come by then is ours.
		p.polls = 1
		err = c.pollAll()
		c.turn.Unlock()
	}
}

// pollAll polls until there is nothing to wait for, or nothing comes. An error has
// ended the connection, which the reader tells.
func (c *conn) pollAll() error {
	p := &c.poller
	for {
		p.got = false
		if err := c.raw.Control(p.call); err != nil {
			return err
		}
		if !p.got {
			return nil
		}
		if err := c.take(); err != nil {
			c.refuse(err) // which wakes the reader, before it has the turn
			return err
		}
	}
}

// gaveUp learns from what ended after polling for it was given up.
func (p *poller) gaveUp() {
	if !p.since.IsZero() {
		p.spin.waited(time.Since(p.since), true)
		p.since = time.Time{}
	}
}

func (c *conn) pollSome(fd uintptr) {
	p := &c.poller
	for ; p.polls > 0 && !p.got; p.polls-- {
		if p.waiter != nil && p.waiter.Over() {
			return
		}
		p.got = c.receive(fd)
		if !p.got && crowded(p.polls) {
			yield()
		}
	}
	if p.got {
		p.polls = max(p.polls, 1)
	}
}

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

// crowded says whether to yield when that many polls are left.
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

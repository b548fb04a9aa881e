package faulty

import (
	"time"
)

// Plan says what happens at random, each with its probability (0 never, 1 always).
// The zero value does nothing.
type Plan struct {
	Seed uint64
	// Drop is for requests that are lost on the way: no completion until the
	// connection ends.
	Drop float64
	// Hold is for WRITEs that stay on the way, like those that are dropped, and land
	// after the connection has ended (up to LateMax later), unless the peer has left
	// it or what else was on the connection does not end within a second.
	Hold    float64
	LateMax time.Duration
	// Delay is for requests that go up to DelayMax later; others overtake them.
	Delay    float64
	DelayMax time.Duration
	// Duplicate is for requests that are executed twice.
	Duplicate float64
	// Fail is for requests that fail at once, without having been sent.
	Fail float64
	// Corrupt is for requests with Check whose checksum is wrong at the other end:
	// nothing lands.
	Corrupt float64
	// Kill is for requests that the connection dies of.
	Kill float64
	// FailDial is for dials, FailLeave for calls of Leave, which have no effect then.
	FailDial, FailLeave float64
}

// Counts are how often each fault happened.
type Counts struct {
	Dropped, Held, Landed, Delayed, Duplicated, Failed, Corrupted, Killed, FailedDials, FailedLeaves int64
}

// Sum is all faults together.
func (c Counts) Sum() int64 {
	return c.Dropped + c.Held + c.Delayed + c.Duplicated + c.Failed + c.Corrupted + c.Killed + c.FailedDials + c.FailedLeaves
}

func (c *Counts) add(n Counts) {
	c.Dropped += n.Dropped
	c.Held += n.Held
	c.Delayed += n.Delayed
	c.Duplicated += n.Duplicated
	c.Failed += n.Failed
	c.Corrupted += n.Corrupted
	c.Killed += n.Killed
}

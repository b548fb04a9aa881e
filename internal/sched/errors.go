package sched

import (
	"errors"
	"fmt"
)

// Why jobs end without all bytes in place, and why lanes are killed. Errors of jobs
// name lanes and ops, but neither route nor peer: who submitted the job knows those.
var (
	// ErrDeadline: the job's deadline passed.
	ErrDeadline = errors.New("deadline exceeded")
	// ErrUnsafe: the job ended and bytes of it may still land in the peer's memory,
	// see Result.Unsafe.
	ErrUnsafe = errors.New("bytes may still land in the peer's memory")
	// ErrNoLane: the job's route has no lane at all.
	ErrNoLane = errors.New("no lane")
	// ErrAttempts: a slice failed Config.MaxAttempts times.
	ErrAttempts = errors.New("too many attempts")
	// ErrStalled: the lane made no progress while others did, or up to a deadline.
	ErrStalled = errors.New("no progress")
	// ErrLost: the connection ended and nobody said why.
	ErrLost = errors.New("connection lost")
	// ErrLinkDown: the link of one of the lane's ports is down.
	ErrLinkDown = errors.New("link is down")
	// ErrTakenOut: the lane was suspended by the user or its port is gone.
	ErrTakenOut = errors.New("lane was taken out")
	// ErrSlow: the connection was closed at a job's deadline, because slices of the
	// job had not ended on it.
	ErrSlow = errors.New("did not end by the deadline")
)

// OpError says that the peer refused a slice, or that it failed too often, and
// which ops of the job were in it: First to Last, places in Job.Ops.
type OpError struct {
	First, Last int
	Lane        string
	Err         error
}

func (e *OpError) Error() string {
	ops := fmt.Sprintf("op %d", e.First)
	if e.Last != e.First {
		ops = fmt.Sprintf("ops %d to %d", e.First, e.Last)
	}
	return fmt.Sprintf("%s: lane %s: %v", ops, e.Lane, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }

// LaneError says what was last wrong with a lane that a job needed.
type LaneError struct {
	Lane string
	Err  error
}

func (e *LaneError) Error() string { return fmt.Sprintf("lane %s: %v", e.Lane, e.Err) }

func (e *LaneError) Unwrap() error { return e.Err }

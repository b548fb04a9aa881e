package transport

import (
	"fmt"
	"maps"
	"sync"
)

// This file divides what peers may make this process hold (memory, connections,
// sessions, calls) so that none of them can have all of it.
//
// There is no fixed amount for a peer, which would be too small for one peer and too large for
// a thousand: a peer may take more while it has no more than would be left for the others. One
// peer alone can have half of everything, and each of n greedy ones about 1/(n+1): as much
// is always free for the next one.

// Account is the peer that something is counted for: what it has proven to be, or where it is.
type Account string

// Shares are a limit that peers share; nil sets no limit. They may be used by many goroutines.
type Shares struct {
	what  string
	limit int64
	// reclaim gives back what is not held any more, where that is only known on looking; nil:
	// nothing is.
	reclaim func()

	mu    sync.Mutex
	taken int64
	by    map[Account]int64
}

// NewShares divides limit of something, which is called what in errors and counts: "memory".
func NewShares(what string, limit int64) *Shares {
	return &Shares{what: what, limit: limit, by: map[Account]int64{}}
}

// OnFull has a function called before anything is refused, which may Give. It must be set
// before the shares are used.
func (s *Shares) OnFull(reclaim func()) { s.reclaim = reclaim }

// Take takes n for an account, or gives an *Error.
func (s *Shares) Take(a Account, n int64) error {
	if s == nil || n == 0 {
		return nil
	}
	err := s.take(a, n)
	if err != nil && s.reclaim != nil {
		s.reclaim()
		err = s.take(a, n)
	}
	return err
}

func (s *Shares) take(a Account, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.by[a]
	if own > s.limit-s.taken-n {
		return &FullError{What: s.what, Own: own, Taken: s.taken, Limit: s.limit}
	}
	s.by[a] = own + n
	s.taken += n
	return nil
}

// Give gives n back.
func (s *Shares) Give(a Account, n int64) {
	if s == nil || n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= n
	if s.by[a] -= n; s.by[a] == 0 {
		delete(s.by, a)
	}
}

// Taken is how much is taken, and of how much.
func (s *Shares) Taken() (taken, limit int64) {
	if s == nil {
		return 0, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken, s.limit
}

// By is how much each account has.
func (s *Shares) By() map[Account]int64 {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.by)
}

// Price is what one thing takes of several shares.
type Price []Part

// Part is a part of a Price.
type Part struct {
	Of *Shares
	N  int64
}

// Take takes all parts for an account, or none and gives an *Error.
func (p Price) Take(a Account) error {
	for i, part := range p {
		if err := part.Of.Take(a, part.N); err != nil {
			p[:i].Give(a)
			return err
		}
	}
	return nil
}

// Give gives all parts back.
func (p Price) Give(a Account) {
	for _, part := range p {
		part.Of.Give(a, part.N)
	}
}

// FullError says that a peer may not have more of something now.
type FullError struct {
	What              string
	Own, Taken, Limit int64
}

func (e *FullError) Error() string {
	return fmt.Sprintf("no more %s for this peer now: it has %d, all peers have %d of %d", e.What, e.Own, e.Taken, e.Limit)
}

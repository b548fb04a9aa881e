package pick

import (
	"math/bits"
	"math/rand/v2"
)

// comparison is one of the policies that are there to compare Adaptive with, and
// what it remembers from one slice to the next.
type comparison struct {
	policy Policy
	seed   uint64
	random rand.PCG
	turn   int   // of RoundRobin: the lane that is asked first
	misses int64 // of Mooncake
}

// comparison starts a policy; nil is Adaptive.
func (s *Set) comparison(policy Policy, seed uint64) *comparison {
	switch policy {
	case RoundRobin, Random, First, Mooncake:
		c := &comparison{policy: policy, seed: seed}
		c.random.Seed(seed, 0)
		return c
	}
	return nil
}

// pick is Picker.Pick. It switches where an interface could call: what is passed by
// reference to an interface is allocated for each slice.
func (c *comparison) pick(s *Set, slice *Slice, st *States) int {
	switch c.policy {
	case RoundRobin:
		return c.inTurn(s, slice, st)
	case Random:
		return c.atRandom(s, slice, st)
	case First:
		return s.first(slice, st)
	}
	return c.mooncake(s, slice, st)
}

// first is the first lane that may be used; without room there it waits.
func (s *Set) first(slice *Slice, st *States) int {
	for i := range s.Lanes {
		if l := st.lane(i); l.open() {
			if l.room(slice.Bytes) {
				return i
			}
			return NoLane
		}
	}
	return NoLane
}

// takers are the lanes that policies without an estimate share among: the
// chosen ones, or if none of them may be used all lanes.
func (s *Set) takers(st *States) int {
	for i := range s.Chosen {
		if l := st.lane(i); l.open() {
			return s.Chosen
		}
	}
	return len(s.Lanes)
}

// inTurn takes the lanes in turn.
func (c *comparison) inTurn(s *Set, slice *Slice, st *States) int {
	n := s.takers(st)
	for k := range n {
		i := (c.turn + k) % n
		if l := st.lane(i); l.open() && l.room(slice.Bytes) {
			c.turn = i + 1
			return i
		}
	}
	return NoLane
}

// atRandom takes any of the lanes that have room.
func (c *comparison) atRandom(s *Set, slice *Slice, st *States) int {
	n, ready := s.takers(st), 0
	for i := range n {
		if l := st.lane(i); l.open() && l.room(slice.Bytes) {
			ready++
		}
	}
	if ready == 0 {
		return NoLane
	}
	k := below(c.random.Uint64(), ready)
	for i := range n {
		if l := st.lane(i); l.open() && l.room(slice.Bytes) {
			if k == 0 {
				return i
			}
			k--
		}
	}
	return NoLane
}

// below maps a random number to 0 up to n-1 evenly.
func below(random uint64, n int) int {
	hi, _ := bits.Mul64(random, uint64(n))
	return int(hi)
}

// mooncake draws both ports and walks on from there. Its draws hang on the
// request and the slice alone, so that asking again gives the same answer.
//
// The rule, read in Mooncake's classic engine (src/topology.cpp, selectDevice):
// attempt 0 is random among the preferred ports, attempt n takes port n-1 of the
// preferred and then the available ones, round and round. Windows are no
// matter to it: the caller keeps slices that a lane has no room for. Where theirs
// would fail for want of a path or on a sick lane, the walk goes on here.
func (c *comparison) mooncake(s *Set, slice *Slice, st *States) int {
	if len(s.Lanes) == 0 {
		return NoLane
	}
	var draw rand.PCG
	draw.Seed(c.seed^slice.Request, 1)
	local := below(draw.Uint64(), s.Local.Preferred)
	draw.Seed(c.seed^slice.Request, 2+uint64(slice.Index))
	remote := below(draw.Uint64(), s.Remote.Preferred)
	for tried := range s.Local.Ranked + 1 {
		if tried > 0 { // no remote port was any good
			local = (tried - 1) % s.Local.Ranked
		}
		for n := range s.Remote.Ranked + 1 {
			if attempt := slice.Attempt + n; attempt > 0 {
				remote = (attempt - 1) % s.Remote.Ranked
			}
			i := int(s.at[local*s.Remote.Ranked+remote])
			if i < 0 {
				c.misses++
				continue
			}
			if l := st.lane(i); l.open() {
				return i
			}
		}
	}
	return NoLane
}

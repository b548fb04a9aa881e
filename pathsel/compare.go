package pathsel

import (
	"math/bits"
	"math/rand/v2"
)

// comparison is a policy that is there to compare Adaptive with.
type comparison interface {
	// pick is Picker.Pick.
	pick(s *LaneSet, slice Slice, st LaneStates) int
}

// comparison starts a policy; nil is Adaptive.
func (s *LaneSet) comparison(policy Policy, seed uint64) comparison {
	switch policy {
	case RoundRobin:
		return &roundRobin{}
	case Random:
		p := &random{}
		p.state.Seed(seed, 0)
		return p
	case First:
		return first{}
	case Mooncake:
		return &mooncake{seed: seed}
	}
	return nil
}

// first takes the first lane that may be used; without room there it waits.
type first struct{}

func (first) pick(s *LaneSet, slice Slice, st LaneStates) int {
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
func (s *LaneSet) takers(st *LaneStates) int {
	for i := range s.Chosen {
		if l := st.lane(i); l.open() {
			return s.Chosen
		}
	}
	return len(s.Lanes)
}

// roundRobin takes the lanes in turn.
type roundRobin struct{ turn int }

func (p *roundRobin) pick(s *LaneSet, slice Slice, st LaneStates) int {
	n := s.takers(&st)
	for k := range n {
		i := (p.turn + k) % n
		if l := st.lane(i); l.open() && l.room(slice.Bytes) {
			p.turn = i + 1
			return i
		}
	}
	return NoLane
}

// random takes any of the lanes that have room.
type random struct{ state rand.PCG }

func (p *random) pick(s *LaneSet, slice Slice, st LaneStates) int {
	n, ready := s.takers(&st), 0
	for i := range n {
		if l := st.lane(i); l.open() && l.room(slice.Bytes) {
			ready++
		}
	}
	if ready == 0 {
		return NoLane
	}
	k := below(p.state.Uint64(), ready)
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
type mooncake struct {
	seed   uint64
	misses int64
}

func (p *mooncake) pick(s *LaneSet, slice Slice, st LaneStates) int {
	if len(s.Lanes) == 0 {
		return NoLane
	}
	var draw rand.PCG
	draw.Seed(p.seed^slice.Request, 1)
	local := below(draw.Uint64(), s.fromHere.preferred)
	draw.Seed(p.seed^slice.Request, 2+uint64(slice.Index))
	remote := below(draw.Uint64(), s.fromThere.preferred)
	for tried := range s.fromHere.ports + 1 {
		if tried > 0 { // no remote port was any good
			local = (tried - 1) % s.fromHere.ports
		}
		for n := range s.fromThere.ports + 1 {
			if attempt := slice.Attempt + n; attempt > 0 {
				remote = (attempt - 1) % s.fromThere.ports
			}
			i := int(s.at[local*s.fromThere.ports+remote])
			if i < 0 {
				p.misses++
				continue
			}
			if l := st.lane(i); l.open() {
				return i
			}
		}
	}
	return NoLane
}

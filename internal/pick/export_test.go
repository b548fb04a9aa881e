package pick

import (
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/maxmin"
)

// Pick prepares a picker and asks it once.
func (s *Set) Pick(slice Slice, states States) int {
	p := s.Picker()
	p.Prepare(states)
	return p.Pick(slice, states)
}

// WouldHelp is Adaptive's rule for engines in which lanes pull: it says whether a
// lane that asks for work should get this slice, or leave it to lanes that are
// nearer or done earlier. With much remaining every near lane helps; towards the
// end slow ones do not.
func (s *Set) WouldHelp(lane int, slice Slice, states States) bool {
	if lane < 0 || lane >= len(s.Lanes) {
		return false
	}
	p, l := s.Picker(), states.lane(lane)
	p.Prepare(states)
	at := slices.IndexFunc(p.takers, func(t taker) bool { return t.lane == lane })
	return at >= 0 && l.open() && l.room(slice.Bytes) && p.helps(&p.takers[at], slice, &states)
}

// ShareOf is what a lane has of the joint capacity, in bytes per second; 0 for failover,
// and where its rate is not known.
func (s *Set) ShareOf(lane int) topo.Rate {
	l := &s.Lanes[lane]
	if l.BytesPerSec() == nil {
		return 0
	}
	return topo.Rate(maxmin.Whole(l.share))
}

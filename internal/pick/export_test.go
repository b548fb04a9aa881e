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
	l := states.lane(lane)
	if !l.open() || !l.room(slice.Bytes) {
		return false
	}
	v := s.look(&states)
	return v.counts(lane) && v.rate(lane) > 0 && v.helps(lane, slice)
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

// counts says whether a lane is among those that count.
func (v *view) counts(i int) bool {
	if v.all || i < v.s.Chosen {
		return true
	}
	_, found := slices.BinarySearch(v.standIns[:v.few], int32(i))
	return found
}

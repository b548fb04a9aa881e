package pathsel

// WouldHelp is Adaptive's rule for engines in which lanes pull: it says whether a
// lane that asks for work should get this slice, or leave it to lanes that are
// nearer or done earlier. With much remaining every near lane helps; towards the
// end slow ones do not.
func (s *LaneSet) WouldHelp(lane int, slice Slice, states LaneStates) bool {
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

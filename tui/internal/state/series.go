package state

import "math"

// Series is the latest HistoryLen values of something, NaN where it was not known. The
// zero value is empty. It is a value: a copy of it is a history of its own.
type Series struct {
	ring [HistoryLen]float64
	next int // where the next value goes
	n    int
}

// Push adds a value; the oldest one goes where there is no room.
func (s *Series) Push(v float64) {
	s.ring[s.next] = v
	s.next = (s.next + 1) % HistoryLen
	s.n = min(s.n+1, HistoryLen)
}

// addGap adds n values that are not known.
func (s *Series) addGap(n int) {
	for range min(n, HistoryLen) {
		s.Push(math.NaN())
	}
}

// Values are the values so far, the oldest first. The slice is the caller's.
func (s *Series) Values() []float64 {
	out := make([]float64, 0, s.n)
	for i := range s.n {
		out = append(out, s.at(i))
	}
	return out
}

// at is the i-th value, counted from the oldest.
func (s *Series) at(i int) float64 { return s.ring[(s.next-s.n+i+HistoryLen)%HistoryLen] }

// Len is how many values there are, those that are not known among them.
func (s *Series) Len() int { return s.n }

// Last is the newest value; false where it is not known or there is none.
func (s *Series) Last() (float64, bool) {
	if s.n == 0 {
		return 0, false
	}
	v := s.at(s.n - 1)
	if math.IsNaN(v) {
		return 0, false
	}
	return v, true
}

// Max is the largest value that is known, 0 none.
func (s *Series) Max() float64 {
	most := 0.0
	for i := range s.n {
		if v := s.at(i); v > most { // never true of NaN
			most = v
		}
	}
	return most
}

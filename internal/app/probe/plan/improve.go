package plan

import "slices"

// improveBudget bounds the search for a better layout, in looks at a round: a fraction
// of a second.
const improveBudget = 1_000_000

// improve takes rounds away while there are more than the bound. The items of the
// smallest round go into others and put out what is in their way, which looks for
// another place in turn and may not come back for a while (tabu search over partial
// layouts). A round that resists the budget stays.
func (l *layout) improve(bound int) *layout {
	s := search{layout: l, budget: improveBudget, random: 1}
	for len(l.rounds) > bound {
		before := slices.Clone(l.at)
		if !s.dissolve() {
			back := newLayout(l.pr)
			for k, r := range before {
				back.place(k, int(r))
			}
			return back
		}
	}
	return l
}

type search struct {
	*layout
	budget  int
	random  uint64
	waiting []int   // items without a round
	banned  []int32 // for each item, the round that it may not enter
	until   []int   // and up to which move
}

// dissolve takes the smallest round away and finds other places for its items; it is
// false where that was not possible.
func (s *search) dissolve() bool {
	s.waiting = s.waiting[:0]
	s.banned, s.until = make([]int32, len(s.at)), make([]int, len(s.at))
	smallest := len(s.rounds) - 1
	for r := range s.rounds {
		if len(s.rounds[r]) < len(s.rounds[smallest]) {
			smallest = r
		}
	}
	s.empty(smallest)
	last := len(s.rounds) - 1
	if smallest != last { // the last one takes its number
		items := slices.Clone(s.rounds[last])
		for _, k := range items {
			s.remove(int(k))
			s.place(int(k), smallest)
		}
	}
	s.rounds = s.rounds[:last]
	for move := 0; len(s.waiting) > 0; move++ {
		if s.budget -= len(s.rounds); s.budget < 0 {
			return false
		}
		k := s.waiting[0]
		s.waiting = s.waiting[1:]
		r := s.choose(k, move)
		if r < 0 {
			s.waiting = append(s.waiting, k)
			continue
		}
		s.makeRoom(k, r, move)
		s.place(k, r)
	}
	return true
}

func (s *search) empty(r int) {
	for _, k := range slices.Clone(s.rounds[r]) {
		s.remove(int(k))
		s.waiting = append(s.waiting, int(k))
	}
}

// choose finds the round where the fewest resources are in an item's way, any of
// equals; -1 where it may enter none.
func (s *search) choose(k, move int) int {
	best, least, equals := -1, 0, uint64(0)
	for r := range s.rounds {
		if s.until[k] > move && s.banned[k] == int32(r) {
			continue
		}
		missing := 0
		for _, n := range s.pr.needs[k] {
			if s.lacks(n, r) {
				missing++
			}
		}
		switch {
		case best < 0 || missing < least:
			best, least, equals = r, missing, 1
		case missing == least:
			if equals++; s.next()%equals == 0 {
				best = r
			}
		}
		if least == 0 {
			break
		}
	}
	return best
}

// next is a number of a fixed sequence (xorshift64).
func (s *search) next() uint64 {
	s.random ^= s.random << 13
	s.random ^= s.random >> 7
	s.random ^= s.random << 17
	return s.random
}

// makeRoom puts items out of a round until another one fits.
func (s *search) makeRoom(k, r, move int) {
	for !s.fits(k, r) {
		out, most := -1, 0
		for _, x := range s.rounds[r] {
			if n := s.inTheWay(k, int(x), r); n > most {
				out, most = int(x), n
			}
		}
		s.remove(out)
		s.waiting = append(s.waiting, out)
		s.banned[out], s.until[out] = int32(r), move+len(s.waiting)+5+int(s.next()%10)
	}
}

// inTheWay counts the resources that an item lacks in a round and another one has there.
func (s *search) inTheWay(k, other, r int) int {
	count := 0
	for _, n := range s.pr.needs[k] {
		if !s.lacks(n, r) {
			continue
		}
		for _, m := range s.pr.needs[other] {
			if m.at == n.at {
				count++
			}
		}
	}
	return count
}

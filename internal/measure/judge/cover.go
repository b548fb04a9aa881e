package judge

import (
	"cmp"
	"slices"
)

// covering is the answer to the question which smallest sets of columns hit every row.
type covering struct {
	sets  [][]int32 // the smallest ones: several if they are equally small
	exact bool      // no smaller set is possible
	all   bool      // and sets are all that are this small
	least int       // no set is smaller than this
}

// The search gives up after this many steps, or this many sets.
const (
	coverSteps = 200_000
	coverSets  = 2_000
)

// problem is a set of rows of which none contains all of another. Columns that hit the same rows are
// represented by one of them.
type problem struct {
	rows    [][]int32
	columns int
	members map[int32][]int32 // the columns that one stands for, itself among them
}

// reduce leaves out what does not change the answer. Rows list columns, ascending; no row is empty.
func reduce(rows [][]int32, columns int) *problem {
	rows = minimal(rows, columns)
	hits := make([][]byte, columns)
	for i, row := range rows {
		for _, c := range row {
			hits[c] = append(hits[c], byte(i), byte(i>>8), byte(i>>16), byte(i>>24))
		}
	}
	p := &problem{columns: columns, members: make(map[int32][]int32)}
	standIn := make([]int32, columns)
	first := make(map[string]int32)
	for c, h := range hits {
		if len(h) == 0 {
			continue
		}
		in, ok := first[string(h)]
		if !ok {
			in = int32(c)
			first[string(h)] = in
		}
		standIn[c] = in
		p.members[in] = append(p.members[in], int32(c))
	}
	for _, row := range rows {
		var short []int32
		for _, c := range row {
			if standIn[c] == c {
				short = append(short, c)
			}
		}
		p.rows = append(p.rows, short)
	}
	return p
}

// apart splits a problem into problems that have no column in common.
func (p *problem) apart() []*problem {
	head := make([]int32, p.columns)
	for c := range head {
		head[c] = int32(c)
	}
	find := func(c int32) int32 {
		for head[c] != c {
			head[c] = head[head[c]]
			c = head[c]
		}
		return c
	}
	for _, row := range p.rows {
		for _, c := range row[1:] {
			head[find(c)] = find(row[0])
		}
	}
	at := make(map[int32]*problem)
	var out []*problem
	for _, row := range p.rows {
		h := find(row[0])
		if at[h] == nil {
			at[h] = &problem{columns: p.columns, members: p.members}
			out = append(out, at[h])
		}
		at[h].rows = append(at[h].rows, row)
	}
	return out
}

// search looks for covers of a problem.
func (p *problem) search() *search {
	s := &search{rows: p.rows, steps: coverSteps, seen: make(map[string]bool), hits: make([]int, len(p.rows))}
	s.rowsOf = make([][]int32, p.columns)
	for i, row := range p.rows {
		for _, c := range row {
			s.rowsOf[c] = append(s.rowsOf[c], int32(i))
		}
	}
	return s
}

// cover finds the smallest sets of columns that have one in each row. It is exact, by iterative deepening,
// until it takes too many steps; then it is greedy, with a lower bound: the number of rows that have no
// column in common.
func (s *search) cover() covering {
	for size := s.bound(); ; size++ {
		s.descend(size)
		if len(s.found) > 0 {
			return covering{sets: s.found, exact: true, all: s.steps > 0 && len(s.found) < coverSets, least: size}
		}
		if s.steps <= 0 {
			greedy := s.greedy()
			return covering{sets: [][]int32{greedy}, exact: len(greedy) == size, least: size}
		}
	}
}

// minimal leaves out rows that contain all of another row: a set that hits the other hits these.
func minimal(rows [][]int32, columns int) [][]int32 {
	sorted := slices.Clone(rows)
	slices.SortFunc(sorted, func(a, b []int32) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), slices.Compare(a, b))
	})
	sorted = slices.CompactFunc(sorted, slices.Equal)
	first := make([][][]int32, columns) // kept rows by their smallest column
	var kept [][]int32
	for _, row := range sorted {
		if !slices.ContainsFunc(row, func(c int32) bool {
			return slices.ContainsFunc(first[c], func(k []int32) bool { return subset(k, row) })
		}) {
			kept = append(kept, row)
			first[row[0]] = append(first[row[0]], row)
		}
	}
	return kept
}

// subset says whether row contains all of k; both ascend.
func subset(k, row []int32) bool {
	for _, c := range k {
		i, ok := slices.BinarySearch(row, c)
		if !ok {
			return false
		}
		row = row[i+1:]
	}
	return true
}

type search struct {
	rows   [][]int32
	rowsOf [][]int32 // by column
	hits   []int     // by row: columns taken
	taken  []int32
	steps  int
	found  [][]int32
	seen   map[string]bool
}

// bound counts rows, the shortest first, that have no column in common and are not hit yet: each needs a
// column of its own.
func (s *search) bound() int {
	used := make(map[int32]bool)
	n := 0
	for i, row := range s.rows { // they are sorted by length
		if s.hits[i] > 0 || slices.ContainsFunc(row, func(c int32) bool { return used[c] }) {
			continue
		}
		n++
		for _, c := range row {
			used[c] = true
		}
	}
	return n
}

// descend adds up to left more columns, and records the sets that hit every row.
func (s *search) descend(left int) {
	open := slices.Index(s.hits, 0)
	if open < 0 {
		s.keep()
		return
	}
	if left == 0 || s.steps <= 0 || len(s.found) >= coverSets {
		return
	}
	if s.steps -= 1 + len(s.rows)/16; s.bound() > left {
		return
	}
	for _, c := range s.rows[open] {
		s.take(c, 1)
		s.descend(left - 1)
		s.take(c, -1)
	}
}

func (s *search) take(c int32, by int) {
	for _, r := range s.rowsOf[c] {
		s.hits[r] += by
	}
	if by > 0 {
		s.taken = append(s.taken, c)
	} else {
		s.taken = s.taken[:len(s.taken)-1]
	}
}

func (s *search) keep() {
	set := slices.Clone(s.taken)
	slices.Sort(set)
	name := make([]byte, 0, 4*len(set))
	for _, c := range set {
		name = append(name, byte(c), byte(c>>8), byte(c>>16), byte(c>>24))
	}
	if !s.seen[string(name)] {
		s.seen[string(name)] = true
		s.found = append(s.found, set)
	}
}

// greedy takes the column that hits most of the remaining rows, the first of equals.
func (s *search) greedy() []int32 {
	left := make([]int, len(s.rowsOf))
	for c, rows := range s.rowsOf {
		left[c] = len(rows)
	}
	hit := make([]bool, len(s.rows))
	var set []int32
	for {
		best := 0
		for c := range left {
			if left[c] > left[best] {
				best = c
			}
		}
		if left[best] == 0 {
			slices.Sort(set)
			return set
		}
		set = append(set, int32(best))
		for _, r := range s.rowsOf[best] {
			if hit[r] {
				continue
			}
			hit[r] = true
			for _, c := range s.rows[r] {
				left[c]--
			}
		}
	}
}

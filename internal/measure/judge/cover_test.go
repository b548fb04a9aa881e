package judge

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawRows(t *rapid.T, columns, most int) [][]int32 {
	rows := make([][]int32, rapid.IntRange(1, most).Draw(t, "rows"))
	for i := range rows {
		mask := rapid.IntRange(1, 1<<columns-1).Draw(t, "row")
		for c := range columns {
			if mask>>c&1 == 1 {
				rows[i] = append(rows[i], int32(c))
			}
		}
	}
	return rows
}

// All sets of columns are tried: the search finds the same smallest ones.
func TestCoverIsSmallest(t *testing.T) {
	const columns = 8
	rapid.Check(t, func(t *rapid.T) {
		rows := drawRows(t, columns, 12)
		want := map[string]bool{}
		size := columns + 1
		for set := range 1 << columns {
			n := bits.OnesCount(uint(set))
			if n > size || slices.ContainsFunc(rows, func(row []int32) bool {
				return !slices.ContainsFunc(row, func(c int32) bool { return set>>c&1 == 1 })
			}) {
				continue
			}
			if n < size {
				size = n
				clear(want)
			}
			want[fmt.Sprint(columnsOf(set))] = true
		}
		total := 0
		for _, p := range reduce(rows, columns).apart() {
			c := p.search().cover()
			if !c.exact || !c.all || c.least != len(c.sets[0]) {
				t.Fatalf("%+v", c)
			}
			total += c.least
		}
		if total != size {
			t.Fatalf("%d columns, %d suffice", total, size)
		}
		got := expand(rows, columns)
		for _, s := range got {
			if !want[s] {
				t.Fatalf("%s is no smallest set of %v", s, want)
			}
		}
		for s := range want {
			if !slices.Contains(got, s) {
				t.Fatalf("set %s is missing in %v", s, got)
			}
		}
	})
}

func columnsOf(set int) []int32 {
	var out []int32
	for c := range 32 {
		if set>>c&1 == 1 {
			out = append(out, int32(c))
		}
	}
	return out
}

// expand is every smallest set that the search stands for.
func expand(rows [][]int32, columns int) []string {
	all := [][]int32{nil}
	for _, p := range reduce(rows, columns).apart() {
		var next [][]int32
		for _, set := range p.search().cover().sets {
			sets := slices.Clone(all)
			for _, c := range set {
				var wider [][]int32
				for _, s := range sets {
					for _, m := range p.members[c] {
						wider = append(wider, append(slices.Clone(s), m))
					}
				}
				sets = wider
			}
			next = append(next, sets...)
		}
		all = next
	}
	var out []string
	for _, s := range all {
		slices.Sort(s)
		out = append(out, fmt.Sprint(s))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// A search that is stopped is greedy, and says by how much it may be off.
func TestCoverGreedy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := reduce(drawRows(t, 10, 30), 10)
		s := p.search()
		s.steps = 1
		c := s.cover()
		if len(c.sets[0]) < c.least || c.exact && len(c.sets[0]) != c.least {
			t.Fatalf("%+v", c)
		}
		for _, row := range p.rows {
			if !slices.ContainsFunc(row, func(col int32) bool { return slices.Contains(c.sets[0], col) }) {
				t.Fatalf("row %v is not hit by %v", row, c.sets[0])
			}
		}
		if full := p.search().cover(); full.exact && full.least < c.least {
			t.Fatalf("at least %d, but %d suffice", c.least, full.least)
		}
	})
}

package pathsel

import "math"

// assignCost is the price of giving a row to a column: digits that count
// lexicographically, the first one most. Each digit is summed for itself, so
// nothing carries from one to the next and many small ones never outweigh a
// bigger one. Such vectors are an ordered group, which is all that the method
// below needs of numbers.
//
// With assignMax rows and digits below 2^51 no sum can overflow: what the
// method adds up stays within twice the rows times the largest digit.
type assignCost [9]int64

// The digits of a cost, the most important one first.
const (
	assignExtra = iota // 1 beyond what the column must have
	assignDoubt        // how uncertain it is that the port can be used
	assignClass        // how far it is
	assignRate         // what its limiting rate lacks to the best one
	assignHops         // links on the way
	// The next two are weighed by the room in the column: most in its first
	// slot, least in its last. The least sum then has the far and slow rows in
	// the last slots of all columns rather than all slots of some: everybody
	// gets of the good and of the bad.
	assignEvenClass
	assignEvenRate
	assignCard  // distance of order between consumer and card, squared
	assignPlace // the same with the port's own place
)

// assignMax bounds rows and columns: the method takes the cube of them.
const assignMax = 512

// assignDigitMax bounds each digit.
const assignDigitMax = 1 << 51

func (a *assignCost) less(b *assignCost) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

func (a *assignCost) add(b *assignCost) {
	for i := range a {
		a[i] += b[i]
	}
}

func (a *assignCost) sub(b *assignCost) {
	for i := range a {
		a[i] -= b[i]
	}
}

// lower makes a the cost c without two prices, if that is less. Most costs lose in their first digits.
func (a *assignCost) lower(c, price, other *assignCost) bool {
	for i := range c {
		switch v := c[i] - price[i] - other[i]; {
		case v > a[i]:
			return false
		case v < a[i]:
			for k := range c {
				a[k] = c[k] - price[k] - other[k]
			}
			return true
		}
	}
	return false
}

// assignSlot is room for one row in a column.
type assignSlot struct {
	col    int
	extra  int64 // 1 beyond what the column must have
	weight int64 // most in a column's first slot
}

// assignSlots are the slots of columns that each have between least and most rows.
func assignSlots(least, most []int) []assignSlot {
	var out []assignSlot
	for col := range least {
		for k := range most[col] {
			s := assignSlot{col: col, weight: int64(most[col] - k)}
			if k >= least[col] {
				s.extra = 1
			}
			out = append(out, s)
		}
	}
	return out
}

// price is a cost in this slot.
func (s *assignSlot) price(c assignCost) assignCost {
	c[assignExtra] += s.extra
	c[assignEvenClass] *= s.weight
	c[assignEvenRate] *= s.weight
	return c
}

// assign gives every row one column at the least total cost, and every column between least and
// most rows. It wants sum(least) <= rows <= sum(most). cost is that of each row with each column,
// row by row.
//
// A column becomes as many slots as it may have rows; those beyond its least cost one more in the
// first digit, so they are used only when all others are. What is left is the assignment problem,
// solved exactly by the Hungarian method in O(rows^2 * slots): one shortest augmenting path for each
// row, over costs that potentials keep from being negative.
func assign(rows int, least, most []int, cost []assignCost) []int {
	slots, cols := assignSlots(least, most), len(least)
	n := len(slots)
	rowPrice, slotPrice := make([]assignCost, rows), make([]assignCost, n) // potentials
	rowOf, before := filled(n), make([]int, n)                             // the row of each slot; the slot before it on the way
	way, visited := make([]assignCost, n), make([]bool, n)                 // the cheapest known way to each slot
	for first := range rows {
		for s := range way {
			way[s][assignExtra], visited[s] = math.MaxInt64, false
		}
		// The cheapest way to seat one more row, which may move others: a shortest path from the row
		// to a free slot, over slots whose rows move on. The first among equals is taken.
		row, slot, price := first, -1, rowPrice[first]
		for {
			next := -1
			for s := range slots {
				if visited[s] {
					continue
				}
				c := slots[s].price(cost[row*cols+slots[s].col])
				if way[s].lower(&c, &price, &slotPrice[s]) {
					before[s] = slot
				}
				if next < 0 || way[s].less(&way[next]) {
					next = s
				}
			}
			if slot = next; rowOf[slot] < 0 {
				break
			}
			visited[slot], row = true, rowOf[slot]
			price = rowPrice[row]
			price.sub(&way[slot])
		}
		rowPrice[first].add(&way[slot])
		for s, visited := range visited {
			if visited { // prices that make the path's edges cost nothing
				gain := way[slot]
				gain.sub(&way[s])
				rowPrice[rowOf[s]].add(&gain)
				slotPrice[s].sub(&gain)
			}
		}
		for ; before[slot] >= 0; slot = before[slot] {
			rowOf[slot] = rowOf[before[slot]]
		}
		rowOf[slot] = first
	}
	out := make([]int, rows)
	for s, row := range rowOf {
		if row >= 0 {
			out[row] = slots[s].col
		}
	}
	return out
}

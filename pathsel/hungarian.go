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

// assignment gives every row one column at the least total cost, and every
// column between least and most rows. It wants sum(least) <= rows <= sum(most).
//
// A column becomes as many slots as it may have rows; those beyond its least
// cost one more in the first digit, so they are used only when all others are.
// What is left is the assignment problem, solved exactly by the Hungarian
// method in O(rows^2 * slots): one shortest augmenting path for each row, over
// costs that potentials keep from being negative.
type assignment struct {
	cost  []assignCost // [row*columns+column]
	cols  int
	slots []assignSlot
	// Rows and slots count from 1 below; 0 is none.
	rowPrice, slotPrice []assignCost // potentials
	rowOf               []int        // the row of each slot
	// State of one search: the cheapest known way to each slot, and the slot before it.
	way     []assignCost
	before  []int
	visited []bool
}

// assignSlot is room for one row in a column.
type assignSlot struct {
	col    int
	extra  int64
	weight int64
}

func newAssignment(rows int, least, most []int, cost []assignCost) *assignment {
	a := &assignment{cost: cost, cols: len(least), slots: []assignSlot{{}}}
	for col := range least {
		for k := range most[col] {
			s := assignSlot{col: col, weight: int64(most[col] - k)}
			if k >= least[col] {
				s.extra = 1
			}
			a.slots = append(a.slots, s)
		}
	}
	n := len(a.slots)
	a.rowPrice, a.slotPrice, a.way = make([]assignCost, rows+1), make([]assignCost, n), make([]assignCost, n)
	a.rowOf, a.before, a.visited = make([]int, n), make([]int, n), make([]bool, n)
	return a
}

// solve gives the column of each row.
func (a *assignment) solve() []int {
	for row := 1; row < len(a.rowPrice); row++ {
		a.place(row)
	}
	out := make([]int, len(a.rowPrice)-1)
	for s := 1; s < len(a.slots); s++ {
		if row := a.rowOf[s]; row > 0 {
			out[row-1] = a.slots[s].col
		}
	}
	return out
}

// place finds the cheapest way to seat one more row, which may move others: a
// shortest path from the row to a free slot, over slots whose rows move on.
func (a *assignment) place(row int) {
	for s := range a.way {
		a.way[s][assignExtra], a.visited[s] = math.MaxInt64, false
	}
	slot := 0
	a.rowOf[0], a.way[0] = row, assignCost{}
	for a.rowOf[slot] != 0 {
		a.visited[slot] = true
		slot = a.extend(slot)
	}
	for s, visited := range a.visited {
		if visited { // prices that make the path's edges cost nothing
			gain := a.way[slot]
			gain.sub(&a.way[s])
			a.rowPrice[a.rowOf[s]].add(&gain)
			a.slotPrice[s].sub(&gain)
		}
	}
	for slot != 0 {
		a.rowOf[slot] = a.rowOf[a.before[slot]]
		slot = a.before[slot]
	}
}

// extend looks from a visited slot's row at all slots and gives the unvisited
// one that is cheapest to reach, the first among equals.
func (a *assignment) extend(slot int) int {
	row, next := a.rowOf[slot], 0
	base := a.cost[(row-1)*a.cols : row*a.cols]
	price := a.rowPrice[row]
	price.sub(&a.way[slot])
	for s := 1; s < len(a.slots); s++ {
		if a.visited[s] {
			continue
		}
		c := base[a.slots[s].col]
		c[assignExtra] += a.slots[s].extra
		c[assignEvenClass] *= a.slots[s].weight
		c[assignEvenRate] *= a.slots[s].weight
		if a.cheaper(&c, &price, s) {
			a.before[s] = slot
		}
		if next == 0 || a.way[s].less(&a.way[next]) {
			next = s
		}
	}
	return next
}

// cheaper takes the prices off a cost and keeps it, if it is the cheapest way
// to a slot so far. Most costs lose in their first digits.
func (a *assignment) cheaper(c, price *assignCost, s int) bool {
	way, own := &a.way[s], &a.slotPrice[s]
	for i := range c {
		switch v := c[i] - price[i] - own[i]; {
		case v > way[i]:
			return false
		case v < way[i]:
			for k := range c {
				way[k] = c[k] - price[k] - own[k]
			}
			return true
		}
	}
	return false
}

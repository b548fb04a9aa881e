package pathsel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
)

// cheapest tries every way to seat rows in slots.
func cheapest(cost [][]assignCost, slots []assignSlot, taken []bool) (best assignCost, ok bool) {
	if len(cost) == 0 {
		return assignCost{}, true
	}
	for s := range slots {
		if taken[s] {
			continue
		}
		taken[s] = true
		if rest, found := cheapest(cost[1:], slots, taken); found {
			c := slots[s].price(cost[0][slots[s].col])
			rest.add(&c)
			if !ok || rest.less(&best) {
				best, ok = rest, true
			}
		}
		taken[s] = false
	}
	return best, ok
}

// No other way to share costs less, and every column has its least and most.
func TestAssignmentIsTheCheapest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rows, cols := rapid.IntRange(1, 5).Draw(rt, "rows"), rapid.IntRange(1, 4).Draw(rt, "columns")
		least, most := make([]int, cols), make([]int, cols)
		for c := range cols {
			least[c], most[c] = rows/cols, (rows+cols-1)/cols
			if rapid.Bool().Draw(rt, "less") {
				least[c] = rapid.IntRange(0, least[c]).Draw(rt, "least")
			}
		}
		cost := make([]assignCost, rows*cols)
		for i := range cost {
			for d := range cost[i] {
				if d != assignExtra {
					cost[i][d] = rapid.Int64Range(0, 2).Draw(rt, "digit")
				}
			}
		}
		slots := assignSlots(least, most)
		want, ok := cheapest(slices.Collect(slices.Chunk(cost, cols)), slots, make([]bool, len(slots)))
		if !ok {
			rt.Fatal("no way at all")
		}
		out, count := assign(rows, least, most, cost), make([]int, cols)
		// Which of its slots a row has is not told: the cheapest way to seat the rows of these columns.
		only := make([][]assignCost, rows)
		for row, col := range out {
			only[row] = slices.Repeat([]assignCost{{assignExtra: 100}}, cols)
			only[row][col] = cost[row*cols+col]
		}
		got, _ := cheapest(only, slots, make([]bool, len(slots)))
		for _, c := range out {
			count[c]++
		}
		for c := range cols {
			if count[c] < least[c] || count[c] > most[c] {
				rt.Fatalf("column %d has %d rows, wants %d to %d", c, count[c], least[c], most[c])
			}
		}
		if got != want {
			rt.Fatalf("%v costs %v, the cheapest is %v", out, got, want)
		}
	})
}

// The largest digits that are let in overflow nothing: the answer is that of
// the same problem in small.
func TestAssignmentOfLargeNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const rows = 40
	large, small := make([]assignCost, rows*rows), make([]assignCost, rows*rows)
	for i := range large {
		v := r.Int64N(3)
		small[i][assignRate], large[i][assignRate] = v, v*(assignDigitMax/3)
	}
	one := slices.Repeat([]int{1}, rows)
	got, want := assign(rows, one, one, large), assign(rows, one, one, small)
	if !slices.Equal(got, want) {
		t.Errorf("large %v, small %v", got, want)
	}
}

func TestPlanQuotas(t *testing.T) {
	for _, tt := range []struct {
		rates       []float64
		g           int
		least, most []int
	}{
		{[]float64{1, 1}, 8, []int{3, 3}, []int{4, 4}},
		{[]float64{1, 1, 1}, 4, []int{1, 1, 1}, []int{2, 2, 2}},
		{[]float64{50, 25}, 6, []int{3, 1}, []int{4, 2}},
		{[]float64{50, 25}, 2, []int{1, 1}, []int{1, 1}},
		{[]float64{100, 1, 1}, 9, []int{6, 1, 1}, []int{7, 1, 1}},
		{[]float64{50}, 3, []int{2}, []int{3}},
	} {
		least, most := planQuotas(tt.rates, tt.g)
		if fmt.Sprint(least, most) != fmt.Sprint(tt.least, tt.most) {
			t.Errorf("%v for %d: %v to %v, want %v to %v", tt.rates, tt.g, least, most, tt.least, tt.most)
		}
	}
}

// Domains of five digits come after those of four, ports without address last.
func TestPlanOrder(t *testing.T) {
	want := []topo.ID{"pci:0000:0c:00.0", "pci:0000:47:00.0", "pci:0000:4b:00.0", "pci:2000:01:00.0", "pci:10000:01:00.0", ""}
	var ports []*Port
	for i, pci := range slices.Backward(want) {
		ports = append(ports, &Port{Index: len(want) - i, rdma: &topo.RDMADevice{PCI: pci}})
	}
	slices.SortFunc(ports, planOrder)
	for i, p := range ports {
		if p.pci() != want[i] {
			t.Errorf("place %d: %s, want %s", i, p.pci(), want[i])
		}
	}
}

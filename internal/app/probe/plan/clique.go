package plan

// maxClique bounds the items among which cliques are looked for: it is for phases so
// small that one round more or less matters.
const maxClique = 128

// clique is the size of a large set of items of which no two go together, found
// greedily from each item: so many rounds there are at least. 0: not looked for.
func (pr *problem) clique() int {
	n := len(pr.items)
	if n > maxClique {
		return 0
	}
	apart := make([][]bool, n)
	degree := make([]int, n)
	for i := range n {
		apart[i] = make([]bool, n)
		for j := range i {
			if pr.conflict(i, j) {
				apart[i][j], apart[j][i] = true, true
				degree[i]++
				degree[j]++
			}
		}
	}
	best := 0
	for start := range n {
		set := []int{start}
		for {
			next := -1
			for k := range n {
				if all(set, apart[k]) && (next < 0 || degree[k] > degree[next]) {
					next = k
				}
			}
			if next < 0 {
				break
			}
			set = append(set, next)
		}
		best = max(best, len(set))
	}
	return best
}

func all(set []int, of []bool) bool {
	for _, k := range set {
		if !of[k] {
			return false
		}
	}
	return true
}

// conflict says whether two items need more of a resource than a round has.
func (pr *problem) conflict(i, j int) bool {
	for _, x := range pr.needs[i] {
		for _, y := range pr.needs[j] {
			if x.at == y.at && x.amount+y.amount > pr.caps[x.at] {
				return true
			}
		}
	}
	return false
}

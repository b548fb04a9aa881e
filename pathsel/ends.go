package pathsel

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/maxmin"
)

// End is a port of a host whose topology is not known.
type End struct {
	BytesPerSec topo.Rate // what it carries in each direction, 0 not known
	Foreign     bool      // it is assigned to another process: for when those of this one fail
}

// capacity is what the port carries, infinite where that is unknown.
func (e *End) capacity() float64 {
	if e.BytesPerSec <= 0 {
		return math.Inf(1)
	}
	return float64(e.BytesPerSec)
}

// EndPair is a lane between two ends, by their places.
type EndPair struct{ Local, Remote int }

// ConnectEnds chooses lanes between two hosts by what their ports carry and which of them reach each
// other, as LanesOf does for hosts with topologies. Each port that reaches another one has a chosen
// lane. Those that are not chosen are for when chosen ones fail, the best first. It gives at most
// that many lanes.
func ConnectEnds(local, remote []End, reaches func(local, remote int) bool, most int) (chosen, failover []EndPair) {
	all := slices.Concat(local, remote)
	capacities := make([]float64, len(all))
	for i := range all {
		capacities[i] = all[i].capacity()
	}
	var edges []edge
	ours := false
	for i := range local {
		for j := range remote {
			if reaches(i, j) {
				ours = ours || !local[i].Foreign
				edges = append(edges, edge{i: i, j: j, foreign: local[i].Foreign, rate: min(capacities[i], capacities[len(local)+j]),
					segments: []segment{segment(i), segment(len(local) + j)}})
			}
		}
	}
	for k := range edges {
		edges[k].foreign = edges[k].foreign && ours // else there is nothing but those of others
	}
	b := &laneBuilder{allocator: maxmin.New(capacities), usedHere: make([]int, len(local)), usedThere: make([]int, len(remote))}
	order := b.arrange(edges)
	isChosen := make([]bool, len(order))
	used := make([]bool, len(all))
	take := func(k int) {
		isChosen[k], used[order[k].i], used[len(local)+order[k].j] = true, true, true
	}
	for _, k := range b.collect(order) {
		take(k)
	}
	for k := range order { // what is said of ports may be wrong: each is used
		if e := &order[k]; !e.foreign && (!used[e.i] || !used[len(local)+e.j]) {
			take(k)
		}
	}
	for k := range order {
		pair := EndPair{order[k].i, order[k].j}
		if isChosen[k] {
			chosen = append(chosen, pair)
		} else {
			failover = append(failover, pair)
		}
	}
	chosen = chosen[:min(len(chosen), most)]
	return chosen, failover[:min(len(failover), most-len(chosen))]
}

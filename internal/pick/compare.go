package pick

import (
	"math/bits"
	"math/rand/v2"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Policy is a rule that gives slices of transfers to lanes.
type Policy string

// The policies. The engine goes by Adaptive, see Picker; the others are there for predictions
// to be compared with: see Compare.
const (
	// Adaptive takes the nearest lanes first, there the one that is done first,
	// and a farther one only where the transfer then ends a tenth earlier.
	Adaptive Policy = "adaptive"
	// RoundRobin takes the chosen lanes in turn.
	RoundRobin Policy = "round-robin"
	// Random takes any of the chosen lanes.
	Random Policy = "random"
	// First takes the first lane.
	First Policy = "first"
	// Mooncake takes random ports of the preferred ones of each side, each side by
	// itself, and knows no load, rate or reachability: the local port for a whole
	// request, the remote one for each slice.
	Mooncake Policy = "mooncake"
)

// Policies lists the policies, for flags and completion.
func Policies() []string {
	return []string{string(Adaptive), string(RoundRobin), string(Random), string(First), string(Mooncake)}
}

// ParsePolicy reads the name of a policy; "" is Adaptive.
func ParsePolicy(s string) (Policy, error) {
	switch p := Policy(s); p {
	case "":
		return Adaptive, nil
	case Adaptive, RoundRobin, Random, First, Mooncake:
		return p, nil
	}
	return "", pkgerr.Errorf("pick", "policy %q: want %s", s, strings.Join(Policies(), ", "))
}

// Compare cuts a transfer into slices and gives them to lanes, all healthy and idle, by a policy
// other than Adaptive. given are the bytes of each lane of the set; misses counts the pairs of
// ports that Mooncake drew and that cannot reach each other: its engine fails such a slice and
// tries again. Equal seeds get equal answers.
func (s *Set) Compare(policy Policy, seed uint64, bytes, slice int64) (given []int64, misses int64) {
	given = make([]int64, len(s.Lanes))
	if s.Chosen == 0 {
		return given, 0
	}
	var random rand.PCG
	random.Seed(seed, 0)
	pairs := map[[2]int]int{} // the lane between two ports, by their places in the preferences
	if policy == Mooncake {
		for i := len(s.Lanes) - 1; i >= 0; i-- { // of several the first
			pairs[[2]int{s.Local.Places[s.Lanes[i].Local], s.Remote.Places[s.Lanes[i].Remote]}] = i
		}
	}
	for i := uint64(0); bytes > 0; i++ {
		lane := 0
		switch policy {
		case RoundRobin:
			lane = int(i % uint64(s.Chosen))
		case Random:
			lane = below(random.Uint64(), s.Chosen)
		case Mooncake:
			lane = s.mooncake(pairs, seed, i, &misses)
		}
		size := min(slice, bytes)
		given[lane] += size
		bytes -= size
	}
	return given, misses
}

// below maps a random number to 0 up to n-1 evenly.
func below(random uint64, n int) int {
	hi, _ := bits.Mul64(random, uint64(n))
	return int(hi)
}

// mooncake draws both ports, and walks on from there where they cannot reach each other.
//
// The rule, read in Mooncake's classic engine (src/topology.cpp, selectDevice):
// attempt 0 is random among the preferred ports, attempt n takes port n-1 of the
// preferred and then the available ones, round and round.
func (s *Set) mooncake(pairs map[[2]int]int, seed, slice uint64, misses *int64) int {
	var draw rand.PCG
	draw.Seed(seed, 1)
	local := below(draw.Uint64(), s.Local.Preferred)
	draw.Seed(seed, 2+slice)
	remote := below(draw.Uint64(), s.Remote.Preferred)
	for tried := range s.Local.Ranked + 1 {
		if tried > 0 { // no remote port was any good
			local = (tried - 1) % s.Local.Ranked
		}
		for attempt := range s.Remote.Ranked + 1 {
			if attempt > 0 {
				remote = (attempt - 1) % s.Remote.Ranked
			}
			if lane, ok := pairs[[2]int{local, remote}]; ok {
				return lane
			}
			*misses++
		}
	}
	return 0
}

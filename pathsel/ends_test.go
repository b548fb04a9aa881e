package pathsel

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
)

// Many ports on both sides: each has a lane, and there are not too many.
func TestConnectEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, k := rapid.IntRange(1, 20).Draw(t, "here"), rapid.IntRange(1, 20).Draw(t, "there")
		local, remote := make([]End, n), make([]End, k)
		reaches := make([][]bool, n)
		ours := false
		for i := range local {
			local[i] = End{BytesPerSec: topo.Rate(rapid.IntRange(0, 3).Draw(t, "rate")), Foreign: rapid.Bool().Draw(t, "foreign")}
			reaches[i] = make([]bool, k)
			for j := range remote {
				reaches[i][j] = rapid.IntRange(0, 3).Draw(t, "reaches") > 0
				ours = ours || !local[i].Foreign && reaches[i][j]
			}
		}
		for j := range remote {
			remote[j].BytesPerSec = topo.Rate(rapid.IntRange(0, 3).Draw(t, "rate"))
		}
		const most = 64
		chosen, failover := ConnectEnds(local, remote, func(i, j int) bool { return reaches[i][j] }, most)
		if len(chosen)+len(failover) > most {
			t.Fatalf("%d and %d pairs", len(chosen), len(failover))
		}
		seen := map[EndPair]bool{}
		here, there := make([]bool, n), make([]bool, k)
		for _, x := range append(append([]EndPair(nil), chosen...), failover...) {
			if seen[x] || !reaches[x.Local][x.Remote] {
				t.Fatalf("pair %v twice, or it does not reach", x)
			}
			seen[x] = true
		}
		for _, x := range chosen {
			here[x.Local], there[x.Remote] = true, true
			if ours && local[x.Local].Foreign {
				t.Fatalf("port %d is another process's", x.Local)
			}
		}
		for i := range n {
			for j := range k {
				if reaches[i][j] && (!ours || !local[i].Foreign) && (!here[i] || !there[j]) {
					t.Fatalf("ports %d and %d reach each other, and one has no lane", i, j)
				}
			}
		}
	})
}

// A port that carries twice as much gets two lanes, in whichever order the ports come.
func TestConnectEndsByRate(t *testing.T) {
	const rate = 100 * topo.MBPerSec
	two, slow := End{BytesPerSec: 2 * rate}, End{BytesPerSec: rate}
	for fast, local := range [][]End{{two, slow}, {slow, two}} {
		chosen, failover := ConnectEnds(local, []End{slow, slow, slow}, func(int, int) bool { return true }, 64)
		lanes := 0
		for _, x := range chosen {
			if x.Local == fast {
				lanes++
			}
		}
		if len(chosen) != 3 || lanes != 2 || len(failover) != 3 {
			t.Errorf("chosen %v, failover %v", chosen, failover)
		}
	}
}

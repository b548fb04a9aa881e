package pathsel

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
)

// The end of a transfer is that of its most loaded link: of a lane alone what it
// carries, of two lanes on one port the sum of their bytes.
func TestFinish(t *testing.T) {
	_, tops := machinesForLanes(t)
	host := func() *Host {
		h, err := New(tops["gb200-tray"], Options{})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	p, err := Connect(host(), host(), PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Lanes("gpu:0", "gpu:0")
	if err != nil {
		t.Fatal(err)
	}
	const gib = int64(1 << 30)
	lane := func(local, remote string) int {
		for i := range s.Lanes {
			if s.Lanes[i].LocalName == local && s.Lanes[i].RemoteName == remote {
				return i
			}
		}
		t.Fatalf("no lane %s to %s", local, remote)
		return 0
	}
	a, b := lane("mlx5_1", "mlx5_0"), lane("mlx5_1", "mlx5_1")
	through50 := int64(math.Ceil(float64(gib) / 50e9 * 1e9))
	for _, tt := range []struct {
		name   string
		shares []LaneShare
		want   int64
	}{
		{"one lane", []LaneShare{{Lane: a, Bytes: gib}}, through50},
		{"two lanes on one port", []LaneShare{{Lane: a, Bytes: gib / 2}, {Lane: b, Bytes: gib / 2}}, through50},
		{"the same lane twice", []LaneShare{{Lane: a, Bytes: gib / 2}, {Lane: a, Bytes: gib / 2}}, through50},
		{"nothing", nil, 0},
		{"no lane of the set", []LaneShare{{Lane: -1, Bytes: 1}, {Lane: len(s.Lanes), Bytes: 1}, {Lane: a, Bytes: -1}}, 0},
	} {
		got, basis := s.Finish(tt.shares)
		if got != tt.want || (got == 0) != (basis == topo.BasisUnknown) {
			t.Errorf("%s: %d ns (%s), want %d", tt.name, got, basis, tt.want)
		}
	}
}

// Whatever was measured and however a transfer is shared: the end is never before
// any lane alone could be done, nor before any link could, and what is shared as
// the joint capacity is ends when that says.
func TestFinishIsNoEarlierThanAnyCut(t *testing.T) {
	names, tops := machinesForLanes(t)
	told, joint := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		p, s := drawSet(rt, names, tops)
		if s.Chosen == 0 {
			return
		}
		shares, load := []LaneShare{}, map[segment]int64{}
		for i, way := range waysOf(p, s) {
			n := rapid.Int64Range(0, 1<<40).Draw(rt, "bytes")
			shares = append(shares, LaneShare{Lane: i, Bytes: n})
			for _, g := range way {
				load[g] += n
			}
		}
		end, basis := s.Finish(shares)
		if basis == topo.BasisUnknown {
			return
		}
		told++
		for _, x := range shares {
			if r := s.Lanes[x.Lane].BytesPerSec; r != nil && float64(end) < float64(x.Bytes)/float64(*r+1)*1e9*(1-1e-9) {
				rt.Fatalf("%d ns, but lane %d alone takes %g", end, x.Lane, float64(x.Bytes)/float64(*r)*1e9)
			}
		}
		for g, n := range load {
			if float64(end) < float64(n)/p.caps[g]*1e9*(1-1e-9) {
				rt.Fatalf("%d ns, but segment %d takes %g for %d bytes", end, g, float64(n)/p.caps[g]*1e9, n)
			}
		}
		if s.BytesPerSec == nil {
			return
		}
		joint++
		total := int64(0)
		for i := range shares {
			shares[i].Bytes = int64(*s.Lanes[i].Share) * 8
			total += shares[i].Bytes
		}
		if end, _ = s.Finish(shares); total > 1e6 && (end < 7_999_000_000 || end > 8_001_000_000) {
			rt.Fatalf("%d ns for 8 s of the joint capacity", end)
		}
	})
	if told < 5 || joint < 5 {
		t.Errorf("%d ends are told, %d of known joint capacity: too few to tell", told, joint)
	}
}

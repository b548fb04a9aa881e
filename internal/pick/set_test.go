package pick_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/pathsel"
)

// lanes are those between two machines of a kind, and as policies see them.
type lanes struct {
	*pick.Set
	plan *pathsel.LaneSet
}

// lanesBetween is a set of lanes between two machines of a kind.
func lanesBetween(t testing.TB, name string, src, dst pathsel.Location) lanes {
	t.Helper()
	local := machineOf(t, name)
	return connect(t, local, machineOf(t, name), src, dst, pathsel.LaneOptions{})
}

func machineOf(t testing.TB, name string) *pathsel.Host {
	t.Helper()
	tree, err := fixtures.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	top, err := discover.Discover(t.Context(), discover.Options{FS: tree})
	if err != nil {
		t.Fatal(err)
	}
	h, err := pathsel.New(top, pathsel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func connect(t testing.TB, local, remote *pathsel.Host, src, dst pathsel.Location, o pathsel.LaneOptions) lanes {
	t.Helper()
	pair, err := pathsel.Connect(local, remote, pathsel.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := pair.LanesOf(src, dst, o)
	if err != nil {
		t.Fatal(err)
	}
	return lanes{set.PickSet(), set}
}

func TestParsePolicy(t *testing.T) {
	for _, name := range pick.Policies() {
		if p, err := pick.ParsePolicy(name); err != nil || string(p) != name {
			t.Errorf("%q: %q, %v", name, p, err)
		}
	}
	if p, err := pick.ParsePolicy(""); err != nil || p != pick.Adaptive {
		t.Errorf("nothing: %q, %v", p, err)
	}
	if _, err := pick.ParsePolicy("tent"); err == nil || !strings.Contains(err.Error(), "adaptive, round-robin, random, first, mooncake") {
		t.Errorf("tent: %v", err)
	}
}

// How many lanes a transfer deserves: each lane busy for two round trips.
func TestDeserves(t *testing.T) {
	gpu, cpu := lanesBetween(t, "dgx-h100", "gpu:0", "gpu:0"), lanesBetween(t, "dgx-h100", "cpu:0", "cpu:0")
	tcp := lanesBetween(t, "cpu-2eth", "cpu:0", "cpu:0")
	for _, tt := range []struct {
		name  string
		set   lanes
		bytes int64
		rtt   time.Duration
		want  int
	}{
		{"nothing", cpu, 0, 0, 1},
		{"a page", cpu, 4 << 10, 0, 1},
		{"less than two lanes' worth", cpu, 1_999_999, 0, 1},
		{"50 GB/s for 2 x 10 us is 1 MB a lane", cpu, 2_000_000, 0, 2},
		{"four lanes' worth", cpu, 4_100_000, 0, 4},
		{"never more than add bandwidth", cpu, 1 << 40, 0, 5},
		{"a longer way", cpu, 4_100_000, 40 * time.Microsecond, 1},
		{"a GPU with one near NIC", gpu, 1 << 40, 0, 1},
		{"TCP", tcp, 1 << 40, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.set.Deserves(tt.bytes, tt.rtt); got != tt.want {
				t.Errorf("%d lanes, want %d", got, tt.want)
			}
		})
	}
}

// states are the states of every lane of a set, all healthy and idle.
func states(s *pick.Set) pick.States {
	return pick.States{Lanes: make([]pick.State, len(s.Lanes))}
}

// bytesOf are the predicted shares by lane.
func bytesOf(set lanes, shares []pick.Share) []int64 {
	out := make([]int64, set.Chosen)
	for _, s := range shares {
		for len(out) <= s.Lane {
			out = append(out, 0)
		}
		out[s.Lane] = s.Bytes
	}
	return out
}

// What lanes get: so that all are done at once.
func TestPredict(t *testing.T) {
	const mb = 1_000_000
	set := lanesBetween(t, "dgx-h100", "cpu:0", "cpu:0") // four lanes of 50 GB/s, one of 22
	for _, tt := range []struct {
		name  string
		bytes int64
		want  []int64
	}{
		{"by their rates", 222 * mb, []int64{50 * mb, 50 * mb, 50 * mb, 50 * mb, 22 * mb}},
		{"small transfers stay on one lane", 64 << 10, []int64{64 << 10, 0, 0, 0, 0}},
		{"nothing", 0, []int64{0, 0, 0, 0, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := bytesOf(set, set.Predict(tt.bytes))
			if len(got) != len(tt.want) {
				t.Fatalf("%v, want %v", got, tt.want)
			}
			for i := range got {
				if d := got[i] - tt.want[i]; d < -5 || d > 5 { // rates of PCIe links are not round
					t.Errorf("%v, want %v", got, tt.want)
					break
				}
			}
		})
	}
}

// One near lane for GPU memory: when it is sick, the next pair of ports carries
// the transfer; when all lanes but the last are, that one does.
func TestStandIns(t *testing.T) {
	set := lanesBetween(t, "dgx-h100", "gpu:0", "gpu:0")
	st := states(set.Set)
	for sick := range len(set.Lanes) - 1 {
		st.Lanes[sick].Health = pick.Sick
		lane := set.Pick(pick.Slice{Bytes: 1 << 20, Remaining: 1 << 30}, st)
		if lane <= sick {
			t.Fatalf("%d lanes are sick, and lane %d carries", sick+1, lane)
		}
		if sick == 0 && lane != 1 {
			t.Errorf("lane %d stands in for the first, want the second", lane)
		}
	}
}

// drawStates draws what an engine may know of a set's lanes.
func drawStates(t *rapid.T, set lanes, sick bool) pick.States {
	st := states(set.Set)
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "states"), 0))
	for i := range st.Lanes {
		l := &st.Lanes[i]
		l.Inflight = r.Int64N(2) * r.Int64N(1<<r.IntN(40))
		l.Window = r.Int64N(2)*r.Int64N(64<<20) - r.Int64N(2)
		l.Rate = topo.Rate(r.Int64N(2) * r.Int64N(100_000_000_000))
		if sick {
			l.Health = pick.Health(r.IntN(3))
		}
	}
	return st
}

// The shares sum to the transfer exactly, go to lanes in order, and end together as far as whole bytes allow.
func TestPredictProperties(t *testing.T) {
	sets := []lanes{lanesBetween(t, "dgx-h100", "cpu:0", "cpu:1"), lanesBetween(t, "aws-p5-44nic-synthetic", "cpu:0", "cpu:0"),
		lanesBetween(t, "dgx-h100-nic-gen1", "gpu:2", "gpu:2"), lanesBetween(t, "lab-softrdma", "cpu:0", "cpu:0")}
	rapid.Check(t, func(rt *rapid.T) {
		set := sets[rapid.IntRange(0, len(sets)-1).Draw(rt, "set")]
		bytes := rapid.Int64Range(1, 1<<50).Draw(rt, "bytes")
		shares := set.Predict(bytes)
		if len(shares) == 0 {
			rt.Fatal("nothing was shared out")
		}
		sum := int64(0)
		for i, s := range shares {
			if s.Bytes <= 0 || i > 0 && s.Lane <= shares[i-1].Lane {
				rt.Fatalf("share %d: %+v", i, s)
			}
			sum += s.Bytes
		}
		if sum != bytes {
			rt.Fatalf("shares of %d sum to %d", bytes, sum)
		}
		if len(shares) > max(set.Deserves(bytes, 0), 1) {
			rt.Fatalf("%d lanes for a transfer that deserves %d", len(shares), set.Deserves(bytes, 0))
		}
		first, last := shares[0].FinishNS, shares[0].FinishNS
		for _, s := range shares {
			first, last = min(first, s.FinishNS), max(last, s.FinishNS)
		}
		if float64(last-first) > 1e-6*float64(last)+100+float64(len(shares)) { // a byte takes a nanosecond at most
			rt.Fatalf("ends between %d and %d ns: %+v", first, last, shares)
		}
	})
}

// Whatever the states: the lane that is picked exists, is not sick, has room and helps; and there
// is an answer where a lane is idle and well.
func TestPickProperties(t *testing.T) {
	sets := []lanes{lanesBetween(t, "dgx-h100", "cpu:0", "cpu:1"), lanesBetween(t, "bonds", "cpu:0", "cpu:0"),
		lanesBetween(t, "a10-2nic", "gpu:0", "gpu:0"), lanesBetween(t, "dgx-h100-nic-gen1", "gpu:2", "gpu:2")}
	rapid.Check(t, func(rt *rapid.T) {
		set := sets[rapid.IntRange(0, len(sets)-1).Draw(rt, "set")]
		for range rapid.IntRange(1, 8).Draw(rt, "slices") {
			slice := pick.Slice{Bytes: rapid.Int64Range(1, 16<<20).Draw(rt, "bytes")}
			slice.Remaining = slice.Bytes * rapid.Int64Range(0, 100).Draw(rt, "remaining")
			st := drawStates(rt, set, rapid.Bool().Draw(rt, "sick"))
			lane := set.Pick(slice, st)
			if lane == pick.NoLane {
				continue
			}
			if lane < 0 || lane >= len(set.Lanes) {
				rt.Fatalf("lane %d of %d", lane, len(set.Lanes))
			}
			l := st.Lanes[lane]
			if l.Health == pick.Sick || l.Health == pick.HalfOpen && l.Inflight > 0 {
				rt.Fatalf("lane %d is %+v", lane, l)
			}
			if full := l.Window < 0 || l.Window > 0 && l.Inflight > 0 && l.Inflight+slice.Bytes > l.Window; full {
				rt.Fatalf("lane %d has no room for %d: %+v", lane, slice.Bytes, l)
			}
			if !set.WouldHelp(lane, slice, st) {
				rt.Fatalf("lane %d was picked and would not help", lane)
			}
		}
		// Nobody has anything to do: as long as one is healthy there is an answer.
		idle := states(set.Set)
		well := rapid.IntRange(0, len(set.Lanes)-1).Draw(rt, "well")
		for i := range idle.Lanes {
			if i != well {
				idle.Lanes[i].Health = pick.Health(rapid.IntRange(0, 1).Draw(rt, "health")) * pick.Sick
			}
		}
		if lane := set.Pick(pick.Slice{Bytes: 1 << 20}, idle); lane == pick.NoLane {
			rt.Fatalf("all idle, lane %d healthy, and no answer", well)
		}
	})
}

// A half-open lane gets one test slice at a time.
func TestHalfOpenLane(t *testing.T) {
	set := lanesBetween(t, "a10-2nic", "gpu:0", "gpu:0")
	st := states(set.Set)
	for i := range st.Lanes {
		st.Lanes[i].Health = pick.HalfOpen
	}
	if set.Pick(pick.Slice{Bytes: 1 << 20}, st) == pick.NoLane {
		t.Error("no test slice")
	}
	for i := range st.Lanes {
		st.Lanes[i].Inflight = 1 << 20
	}
	if again := set.Pick(pick.Slice{Bytes: 1 << 20}, st); again != pick.NoLane {
		t.Errorf("a second test slice on lane %d", again)
	}
}

// What the policies that Adaptive is compared with give to lanes: every byte, and each by its rule.
// Mooncake's draws random preferred ports, one local port for a request, and counts pairs without
// a path, where its own engine would fail.
func TestCompare(t *testing.T) {
	const count, slice = 1000, 64 << 10
	h := machineOf(t, "dgx-h100")
	a, err := h.Affinity("cpu:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	full := connect(t, h, machineOf(t, "dgx-h100"), "cpu:0", "cpu:0", pathsel.LaneOptions{})
	rails := lanesBetween(t, "bonds", "cpu:0", "cpu:0") // seven of eight pairs of ports do not exist
	for policy, used := range map[pick.Policy]func(set lanes, lane int) bool{
		pick.RoundRobin: func(set lanes, lane int) bool { return lane < set.Chosen },
		pick.Random:     func(set lanes, lane int) bool { return lane < set.Chosen },
		pick.First:      func(_ lanes, lane int) bool { return lane == 0 },
		pick.Mooncake:   nil,
	} {
		for _, set := range []lanes{full, rails} {
			given, misses := set.Compare(policy, 7, count*slice-1, slice)
			again, _ := set.Compare(policy, 7, count*slice-1, slice)
			sum, local := int64(0), map[topo.ID]bool{}
			for lane, bytes := range given {
				sum += bytes
				l := &set.plan.Lanes[lane]
				if bytes > 0 {
					local[l.Local] = true
				}
				if used != nil && (bytes > 0) != used(set, lane) {
					t.Errorf("%s: lane %d of %d gets %d bytes", policy, lane, set.Chosen, bytes)
				}
				if policy == pick.Mooncake && set.Set == full.Set && bytes > 0 && !(slices.Contains(a.Preferred(), l.Local) && slices.Contains(a.Preferred(), l.Remote)) {
					t.Errorf("drew %s and %s, which are not preferred both", l.Local, l.Remote)
				}
			}
			if sum != count*slice-1 || !slices.Equal(given, again) {
				t.Errorf("%s: %d bytes given of %d, or another answer", policy, sum, count*slice-1)
			}
			if policy == pick.Mooncake && set.Set == full.Set && (len(local) != 1 || misses != 0) {
				t.Errorf("one request leaves by %v, with %d misses where every pair is a lane", local, misses)
			}
			if want := policy == pick.Mooncake && set.Set == rails.Set; (misses > count/2) != want {
				t.Errorf("%s: %d misses in %d slices", policy, misses, count)
			}
		}
	}
	if given, _ := (pick.List{}).Set().Compare(pick.First, 1, 1, 1); len(given) != 0 {
		t.Errorf("no lanes: %v", given)
	}
}

// Nothing is allocated for a slice.
func TestDecisionsDoNotAllocate(t *testing.T) {
	set := lanesBetween(t, "dgx-h100", "cpu:0", "cpu:0")
	busy, lost := states(set.Set), states(set.Set)
	for i := range busy.Lanes {
		busy.Lanes[i] = pick.State{Inflight: int64(i) << 16, Window: 8 << 20, Rate: topo.Rate(20+i) * topo.GBPerSec}
	}
	lost.Lanes[0].Health, lost.Lanes[1].Health = pick.Sick, pick.HalfOpen
	slice := pick.Slice{Bytes: 1 << 20, Remaining: 1 << 30}
	for name, st := range map[string]pick.States{"idle": {}, "busy": busy, "lost": lost} {
		p := set.Picker()
		p.Prepare(st)
		if n := testing.AllocsPerRun(100, func() { p.Prepare(st); p.Pick(slice, st) }); n != 0 {
			t.Errorf("%s: %v allocations a slice", name, n)
		}
	}
}

// Lanes of ports that are not assigned are for when the assigned ones fail.
func TestAssignedLanesCarry(t *testing.T) {
	ports := []topo.ID{"port:mlx5_4/1", "port:mlx5_5/1"}
	set := connect(t, machineOf(t, "dgx-h100"), machineOf(t, "dgx-h100"), "cpu:0", "cpu:0", pathsel.LaneOptions{Local: ports, Remote: ports})
	assigned := func(lane int) bool { return set.plan.Lanes[lane].Reason.Code != "not-assigned" }
	slice := pick.Slice{Bytes: 1 << 20, Remaining: 1 << 40}
	for i := range set.Lanes {
		if set.WouldHelp(i, slice, states(set.Set)) != (i < 2) {
			t.Errorf("all well: lane %d would help: %v", i, i >= 2)
		}
	}
	if lane := set.Pick(slice, states(set.Set)); !assigned(lane) {
		t.Fatalf("lane %d is somebody else's", lane)
	}
	sick := states(set.Set)
	for i := range set.Lanes {
		if assigned(i) {
			sick.Lanes[i].Health = pick.Sick
		}
	}
	if lane := set.Pick(slice, sick); lane == pick.NoLane || assigned(lane) {
		t.Errorf("own lanes are sick: lane %d carries", lane)
	}
}

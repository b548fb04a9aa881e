package pathsel_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// shaped are two hosts joined by three lanes: two of one local port, and a far
// one of which nothing is known.
func shaped() pathsel.FixedOptions {
	return pathsel.FixedOptions{
		LocalHost: "a", RemoteHost: "b", Source: "cpu:0", Destination: "cpu:1", Transport: pathsel.TCP,
		Lanes: []pathsel.FixedLane{
			{LocalName: "r2", RemoteName: "q2", Tier: 7},
			{LocalName: "r0", RemoteName: "q0", BytesPerSec: 2 * topo.GBPerSec},
			{LocalName: "r0", RemoteName: "q1"},
		},
		LocalRates: map[string]topo.Rate{"r0": 3 * topo.GBPerSec}, RemoteRates: map[string]topo.Rate{"q1": 10 * topo.GBPerSec},
	}
}

// What a list becomes: tiers without gaps, ports by first mention, a shared
// port's rate shared.
func TestFixedLanes(t *testing.T) {
	set := pathsel.FixedLanes(shaped())
	const want = `a cpu:0 -> b cpu:1 over tcp: rate unknown together on 3 lanes
  rank  local  remote  tier  class  reach  alone     share     verdict  why
  1     r0     q0      0     ?/?    yes    2.0 GB/s  1.5 GB/s  chosen   listed: the caller's choice; listed: as the list has it
  2     r0     q1      0     ?/?    yes    3.0 GB/s  1.5 GB/s  chosen   listed: the caller's choice; listed: as the list has it
  3     r2     q2      1     ?/?    yes    ?         ?         chosen   rate-unknown: the list has no rate: measure it; listed: as the list has it
`
	if got := set.Text(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for i, l := range []struct{ local, remote int }{{1, 1}, {1, 2}, {0, 0}} {
		if got := set.Lanes[i]; got.LocalIndex != l.local || got.RemoteIndex != l.remote {
			t.Errorf("lane %d: ports %d and %d, want %d and %d", i, got.LocalIndex, got.RemoteIndex, l.local, l.remote)
		}
	}
	here, there := set.PortRates(pathsel.SideLocal), set.PortRates(pathsel.SideRemote)
	if len(here) != 2 || here[0] != 0 || here[1] != 3*topo.GBPerSec || len(there) != 3 || there[2] != 10*topo.GBPerSec {
		t.Errorf("ports carry %v and %v", here, there)
	}
	if l := set.Lanes[1]; l.Limit != "port:r0" || l.LimitHost != pathsel.SideLocal || l.Basis != topo.BasisConstant {
		t.Errorf("limit %s of %s, %s", l.Limit, l.LimitHost, l.Basis)
	}
	slice, st := pathsel.Slice{Bytes: 1 << 20}, states(set)
	if set.Picker(pathsel.Adaptive, 1).Pick(slice, st) == 2 {
		t.Error("the far lane takes a slice that near ones have room for")
	}
	st.Lanes[0].Health, st.Lanes[1].Health = pathsel.Sick, pathsel.Sick
	if got := set.Picker(pathsel.Adaptive, 1).Pick(slice, st); got != 2 {
		t.Errorf("the near lanes are sick: lane %d", got)
	}
	data, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(data); strings.Contains(s, "Index") || !strings.Contains(s, `"chosen_lanes":3`) || !strings.Contains(s, `"rejected":[]`) {
		t.Errorf("%s", s)
	}
}

// With every rate known the set has one too, and a transfer ends when that says.
func TestFixedLanesOfKnownRate(t *testing.T) {
	o := pathsel.FixedOptions{Transport: pathsel.TCP, Lanes: []pathsel.FixedLane{
		{LocalName: "r0", RemoteName: "q0", BytesPerSec: 2 * topo.GBPerSec},
		{LocalName: "r1", RemoteName: "q1", BytesPerSec: topo.GBPerSec},
	}}
	set := pathsel.FixedLanes(o)
	if set.BytesPerSec == nil || *set.BytesPerSec != 3*topo.GBPerSec || set.Basis != topo.BasisConstant {
		t.Fatalf("together %v (%s)", set.BytesPerSec, set.Basis)
	}
	shares := set.Predict(3e9, states(set), nil)
	if len(shares) != 2 || shares[0].Bytes != 2e9 || shares[1].Bytes != 1e9 {
		t.Errorf("shares %+v", shares)
	}
	if ns, basis := set.Finish(shares); ns != 1e9 || basis != topo.BasisConstant {
		t.Errorf("ends after %d ns (%s)", ns, basis)
	}
	// Lanes of a full port end later than each alone.
	o.LocalRates = map[string]topo.Rate{"r0": topo.GBPerSec}
	o.Lanes[1].LocalName = "r0"
	both := []pathsel.LaneShare{{Lane: 0, Bytes: 1e9}, {Lane: 1, Bytes: 1e9}}
	if ns, _ := pathsel.FixedLanes(o).Finish(both); ns != 2e9 {
		t.Errorf("two lanes of one port end after %d ns", ns)
	}
	if got := pathsel.FixedLanes(pathsel.FixedOptions{}); len(got.Lanes) != 0 || got.Deserves(1, 0) != 0 {
		t.Errorf("no lanes: %+v", got)
	}
}

// A lane of unknown rate counts as the slowest known one until it is measured,
// and one lane alone takes everything.
func TestFixedLanesOfUnknownRate(t *testing.T) {
	set := pathsel.FixedLanes(pathsel.FixedOptions{Transport: "shm", Lanes: []pathsel.FixedLane{{LocalName: "memory", RemoteName: "memory"}}})
	for _, policy := range pathsel.Policies() {
		p := set.Picker(pathsel.Policy(policy), 1)
		if got := p.Pick(pathsel.Slice{Bytes: 1 << 20}, pathsel.LaneStates{}); got != 0 {
			t.Errorf("%s: %d", policy, got)
		}
		full := pathsel.LaneStates{Lanes: []pathsel.LaneState{{Inflight: 1, Window: 1}}}
		if got := p.Pick(pathsel.Slice{Bytes: 1 << 20}, full); got != pathsel.NoLane && policy != string(pathsel.Mooncake) {
			t.Errorf("%s: lane %d, its window is full", policy, got)
		}
		sick := pathsel.LaneStates{Lanes: []pathsel.LaneState{{Health: pathsel.Sick}}}
		if got := p.Pick(pathsel.Slice{Bytes: 1 << 20}, sick); got != pathsel.NoLane {
			t.Errorf("%s: lane %d is sick", policy, got)
		}
	}
	if ns, basis := set.Finish([]pathsel.LaneShare{{Bytes: 1}}); ns != 0 || basis != topo.BasisUnknown {
		t.Errorf("%d ns (%s), nothing is known", ns, basis)
	}
	if !set.WouldHelp(0, pathsel.Slice{Bytes: 1}, pathsel.LaneStates{}) {
		t.Error("the only lane would not help")
	}
}

// drawFixed draws a list of lanes among few ports, rates known or not, some
// absurd.
func drawFixed(t *rapid.T) pathsel.FixedOptions {
	o := pathsel.FixedOptions{Transport: pathsel.TCP, LocalRates: map[string]topo.Rate{}, RemoteRates: map[string]topo.Rate{}}
	rate := rapid.SampledFrom([]topo.Rate{0, 0, topo.GBPerSec, 2 * topo.GBPerSec, 25 * topo.GBPerSec, 1, -1, math.MaxInt64})
	names := rapid.SampledFrom([]string{"r0", "r1", "r2", "r3"})
	for range rapid.IntRange(1, 8).Draw(t, "lanes") {
		l := pathsel.FixedLane{LocalName: names.Draw(t, "local"), RemoteName: names.Draw(t, "remote"),
			BytesPerSec: rate.Draw(t, "rate"), Tier: rapid.IntRange(-1, 3).Draw(t, "tier")}
		o.LocalRates[l.LocalName], o.RemoteRates[l.RemoteName] = rate.Draw(t, "here"), rate.Draw(t, "there")
		o.Lanes = append(o.Lanes, l)
	}
	return o
}

// Whatever is listed: every lane is there and chosen, no port and no lane gets
// more than it carries, an idle set takes slices under every policy, and what is
// predicted sums up and ends no earlier than any port allows.
func TestFixedLanesProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := drawFixed(rt)
		set := pathsel.FixedLanes(o)
		if len(set.Lanes) != len(o.Lanes) || set.Chosen != len(o.Lanes) {
			rt.Fatalf("%d lanes, %d chosen, of %d", len(set.Lanes), set.Chosen, len(o.Lanes))
		}
		here, there := set.PortRates(pathsel.SideLocal), set.PortRates(pathsel.SideRemote)
		sumHere, sumThere := make([]topo.Rate, len(here)), make([]topo.Rate, len(there))
		for i := range set.Lanes {
			l := &set.Lanes[i]
			if i > 0 && (l.Tier < set.Lanes[i-1].Tier || l.Tier > set.Lanes[i-1].Tier+1) || i == 0 && l.Tier != 0 {
				rt.Fatalf("tiers are not in order: %+v", set.Lanes)
			}
			if l.Share == nil {
				continue
			}
			if l.BytesPerSec == nil || *l.Share > *l.BytesPerSec {
				rt.Fatalf("lane %d: share %d, alone %v", i, *l.Share, l.BytesPerSec)
			}
			sumHere[l.LocalIndex] += *l.Share
			sumThere[l.RemoteIndex] += *l.Share
		}
		for i, r := range here {
			if r > 0 && sumHere[i] > r {
				rt.Fatalf("local port %d carries %d of %d", i, sumHere[i], r)
			}
		}
		for i, r := range there {
			if r > 0 && sumThere[i] > r {
				rt.Fatalf("remote port %d carries %d of %d", i, sumThere[i], r)
			}
		}
		for _, policy := range pathsel.Policies() {
			if got := set.Picker(pathsel.Policy(policy), 1).Pick(pathsel.Slice{Bytes: 1 << 20}, pathsel.LaneStates{}); got < 0 || got >= len(set.Lanes) {
				rt.Fatalf("%s: lane %d of an idle set", policy, got)
			}
		}
		checkShares(rt, set, rapid.Int64Range(1, 1<<44).Draw(rt, "bytes"))
	})
}

func checkShares(rt *rapid.T, set *pathsel.LaneSet, bytes int64) {
	shares := set.Predict(bytes, states(set), nil)
	here := make([]int64, len(set.PortRates(pathsel.SideLocal)))
	sum := int64(0)
	for _, x := range shares {
		sum += x.Bytes
		here[set.Lanes[x.Lane].LocalIndex] += x.Bytes
	}
	if sum != bytes {
		rt.Fatalf("shares of %d sum to %d", bytes, sum)
	}
	end, basis := set.Finish(shares)
	if basis == topo.BasisUnknown || end >= math.MaxInt64/2 { // nothing is known, or longer than can be told
		return
	}
	for i, r := range set.PortRates(pathsel.SideLocal) {
		if r > 0 && float64(end) < float64(here[i])/float64(r)*1e9*(1-1e-9) {
			rt.Fatalf("%d ns, but port %d has %d bytes at %d", end, i, here[i], r)
		}
	}
}

// A decision where there is nothing to decide.
func BenchmarkPickOneLane(b *testing.B) {
	set := pathsel.FixedLanes(pathsel.FixedOptions{Transport: pathsel.TCP, Lanes: []pathsel.FixedLane{{LocalName: "lo", RemoteName: "lo", BytesPerSec: 5 * topo.GBPerSec}}})
	st := pathsel.LaneStates{Lanes: []pathsel.LaneState{{Inflight: 1 << 20, Window: 8 << 20, Rate: 4 * topo.GBPerSec}}}
	slice := pathsel.Slice{Bytes: 1 << 20, Remaining: 1 << 30}
	p := set.Picker(pathsel.Adaptive, 1)
	b.ReportAllocs()
	for b.Loop() {
		if p.Pick(slice, st) != 0 {
			b.Fatal("not the lane")
		}
	}
}

// Lanes for failover come last, take nothing while a chosen one is well, and step
// in for it.
func TestFixedFailover(t *testing.T) {
	o := shaped()
	o.Lanes = []pathsel.FixedLane{
		{LocalName: "r1", RemoteName: "q1", BytesPerSec: topo.GBPerSec, Failover: true},
		{LocalName: "r0", RemoteName: "q0", BytesPerSec: topo.GBPerSec},
		{LocalName: "r0", RemoteName: "q1", BytesPerSec: topo.GBPerSec, Failover: true, Tier: 1},
		{LocalName: "r2", RemoteName: "q2", BytesPerSec: topo.GBPerSec},
	}
	set := pathsel.FixedLanes(o)
	const want = `a cpu:0 -> b cpu:1 over tcp: 2.0 GB/s together on 2 lanes
  rank  local  remote  tier  class  reach  alone     share     verdict   why
  1     r0     q0      0     ?/?    yes    1.0 GB/s  1.0 GB/s  chosen    listed: the caller's choice; listed: as the list has it
  2     r2     q2      0     ?/?    yes    1.0 GB/s  1.0 GB/s  chosen    listed: the caller's choice; listed: as the list has it
  3     r1     q1      1     ?/?    yes    1.0 GB/s            failover  listed: the caller's choice for when others fail; listed
  4     r0     q1      2     ?/?    yes    1.0 GB/s            failover  listed: the caller's choice for when others fail; listed
`
	if got := set.Text(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	picker, st := set.Picker(pathsel.Adaptive, 1), states(set)
	for range 50 { // however much there is to do
		at := picker.Pick(pathsel.Slice{Bytes: 1 << 20, Remaining: 1 << 40}, st)
		if at > 1 {
			t.Fatalf("lane %d takes a slice while both chosen ones are well", at)
		}
		st.Lanes[at].Inflight += 1 << 20
	}
	st = states(set)
	st.Lanes[0].Health = pathsel.Sick
	st.Lanes[1].Inflight, st.Lanes[1].Window = 1<<20, 1<<20
	if at := picker.Pick(pathsel.Slice{Bytes: 1 << 20, Remaining: 1 << 40}, st); at != 2 {
		t.Errorf("a chosen lane is sick: lane %d takes its part", at)
	}
}

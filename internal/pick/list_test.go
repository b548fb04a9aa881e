package pick_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/maxmin"
	"github.com/topoctl/topoctl/internal/pick"
)

// shaped are two hosts joined by three lanes: two of one local port, and a far
// one of which nothing is known.
func shaped() pick.List {
	return pick.List{
		TCP: true,
		Lanes: []pick.Listed{
			{LocalName: "r2", RemoteName: "q2", Tier: 7},
			{LocalName: "r0", LocalRate: 3 * topo.GBPerSec, RemoteName: "q0", BytesPerSec: 2 * topo.GBPerSec},
			{LocalName: "r0", RemoteName: "q1", RemoteRate: 10 * topo.GBPerSec},
		},
	}
}

// checkSet compares a set with what it should be, a line for each lane.
func checkSet(t *testing.T, set *pick.Set, want string) {
	t.Helper()
	got := fmt.Sprintf("%d of %d lanes chosen\n", set.Chosen, len(set.Lanes))
	for i := range set.Lanes {
		l := &set.Lanes[i]
		rates := "alone ? share ?"
		if alone := l.BytesPerSec(); alone != nil {
			rates = fmt.Sprintf("alone %d share %d", *alone, set.ShareOf(i))
		}
		got += fmt.Sprintf("  r%d>q%d tier %d %s\n", l.Local, l.Remote, l.Tier, rates)
	}
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// What a list becomes: tiers without gaps, ports by first mention, a shared
// port's rate shared.
func TestList(t *testing.T) {
	set := shaped().Set()
	checkSet(t, set, `3 of 3 lanes chosen
  r1>q1 tier 0 alone 2000000000 share 1500000000
  r1>q2 tier 0 alone 3000000000 share 1500000000
  r0>q0 tier 1 alone ? share ?
`)
	if here, there := set.Local.BytesPerSec(), set.Remote.BytesPerSec(); len(here) != 2 || here[0] != 0 || here[1] != 3*topo.GBPerSec ||
		len(there) != 3 || there[2] != 10*topo.GBPerSec {
		t.Errorf("ports carry %v and %v", here, there)
	}
	slice, st := pick.Slice{Bytes: 1 << 20}, states(set)
	if set.Pick(slice, st) == 2 {
		t.Error("the far lane takes a slice that near ones have room for")
	}
	st.Lanes[0].Health, st.Lanes[1].Health = pick.Sick, pick.Sick
	if got := set.Pick(slice, st); got != 2 {
		t.Errorf("the near lanes are sick: lane %d", got)
	}
}

// With every rate known the set has one too, and a transfer ends when that says.
func TestListOfKnownRate(t *testing.T) {
	o := pick.List{TCP: true, Lanes: []pick.Listed{
		{LocalName: "r0", RemoteName: "q0", BytesPerSec: 2 * topo.GBPerSec},
		{LocalName: "r1", RemoteName: "q1", BytesPerSec: topo.GBPerSec},
	}}
	set := o.Set()
	checkSet(t, set, `2 of 2 lanes chosen
  r0>q0 tier 0 alone 2000000000 share 2000000000
  r1>q1 tier 0 alone 1000000000 share 1000000000
`)
	shares := set.Predict(3e9)
	if len(shares) != 2 || shares[0].Bytes != 2e9 || shares[1].Bytes != 1e9 {
		t.Errorf("shares %+v", shares)
	}
	if ns, last, bounded := set.Finish(shares); ns != 1e9 || last == maxmin.None || bounded {
		t.Errorf("ends after %d ns (segment %d, %v)", ns, last, bounded)
	}
	// Lanes of a full port end later than each alone.
	o.Lanes[0].LocalRate, o.Lanes[1].LocalName = topo.GBPerSec, "r0"
	both := []pick.Share{{Lane: 0, Bytes: 1e9}, {Lane: 1, Bytes: 1e9}}
	if ns, _, _ := o.Set().Finish(both); ns != 2e9 {
		t.Errorf("two lanes of one port end after %d ns", ns)
	}
	if got := (pick.List{}).Set(); len(got.Lanes) != 0 || got.Deserves(1, 0) != 0 {
		t.Errorf("no lanes: %+v", got)
	}
}

// A lane of unknown rate counts as the slowest known one until it is measured,
// and one lane alone takes everything.
func TestListOfUnknownRate(t *testing.T) {
	set := pick.List{Lanes: []pick.Listed{{LocalName: "memory", RemoteName: "memory"}}}.Set()
	for want, st := range map[int]pick.State{0: {}, pick.NoLane: {Inflight: 1, Window: 1}} {
		if got := set.Pick(pick.Slice{Bytes: 1 << 20}, pick.States{Lanes: []pick.State{st}}); got != want {
			t.Errorf("%+v: lane %d, want %d", st, got, want)
		}
	}
	if ns, last, _ := set.Finish([]pick.Share{{Bytes: 1}}); ns != 0 || last != maxmin.None {
		t.Errorf("%d ns (segment %d), nothing is known", ns, last)
	}
	if !set.WouldHelp(0, pick.Slice{Bytes: 1}, pick.States{}) {
		t.Error("the only lane would not help")
	}
}

// drawList draws a list of lanes among few ports, rates known or not, some
// absurd.
func drawList(t *rapid.T) pick.List {
	o := pick.List{TCP: true}
	rate := rapid.SampledFrom([]topo.Rate{0, 0, topo.GBPerSec, 2 * topo.GBPerSec, 25 * topo.GBPerSec, 1, -1, math.MaxInt64})
	names := rapid.SampledFrom([]string{"r0", "r1", "r2", "r3"})
	for range rapid.IntRange(1, 8).Draw(t, "lanes") {
		l := pick.Listed{LocalName: names.Draw(t, "local"), RemoteName: names.Draw(t, "remote"),
			BytesPerSec: rate.Draw(t, "rate"), Tier: rapid.IntRange(-1, 3).Draw(t, "tier"), LocalRate: rate.Draw(t, "here"), RemoteRate: rate.Draw(t, "there")}
		o.Lanes = append(o.Lanes, l)
	}
	return o
}

// Whatever is listed: every lane is there and chosen, no port and no lane gets
// more than it carries, an idle set takes slices, and what is
// predicted sums up and ends no earlier than any port allows.
func TestListProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := drawList(rt)
		set := o.Set()
		if len(set.Lanes) != len(o.Lanes) || set.Chosen != len(o.Lanes) {
			rt.Fatalf("%d lanes, %d chosen, of %d", len(set.Lanes), set.Chosen, len(o.Lanes))
		}
		here, there := set.Local.BytesPerSec(), set.Remote.BytesPerSec()
		sumHere, sumThere := make([]topo.Rate, len(here)), make([]topo.Rate, len(there))
		for i := range set.Lanes {
			l := &set.Lanes[i]
			if i > 0 && (l.Tier < set.Lanes[i-1].Tier || l.Tier > set.Lanes[i-1].Tier+1) || i == 0 && l.Tier != 0 {
				rt.Fatalf("tiers are not in order: %+v", set.Lanes)
			}
			alone, share := l.BytesPerSec(), set.ShareOf(i)
			if alone == nil {
				continue
			}
			if share > *alone {
				rt.Fatalf("lane %d: share %d, alone %d", i, share, *alone)
			}
			sumHere[l.Local] += share
			sumThere[l.Remote] += share
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
		if got := set.Pick(pick.Slice{Bytes: 1 << 20}, pick.States{}); got < 0 || got >= len(set.Lanes) {
			rt.Fatalf("lane %d of an idle set", got)
		}
		checkShares(rt, set, rapid.Int64Range(1, 1<<44).Draw(rt, "bytes"))
	})
}

func checkShares(rt *rapid.T, set *pick.Set, bytes int64) {
	shares := set.Predict(bytes)
	here := make([]int64, len(set.Local.BytesPerSec()))
	sum := int64(0)
	for _, x := range shares {
		sum += x.Bytes
		here[set.Lanes[x.Lane].Local] += x.Bytes
	}
	if sum != bytes {
		rt.Fatalf("shares of %d sum to %d", bytes, sum)
	}
	end, last, _ := set.Finish(shares)
	if last == maxmin.None || end >= math.MaxInt64/2 { // nothing is known, or longer than can be told
		return
	}
	for i, r := range set.Local.BytesPerSec() {
		if r > 0 && float64(end) < float64(here[i])/float64(r)*1e9*(1-1e-9) {
			rt.Fatalf("%d ns, but port %d has %d bytes at %d", end, i, here[i], r)
		}
	}
}

// A decision where there is nothing to decide.
func BenchmarkPickOneLane(b *testing.B) {
	set := pick.List{TCP: true, Lanes: []pick.Listed{{LocalName: "lo", RemoteName: "lo", BytesPerSec: 5 * topo.GBPerSec}}}.Set()
	st := pick.States{Lanes: []pick.State{{Inflight: 1 << 20, Window: 8 << 20, Rate: 4 * topo.GBPerSec}}}
	slice := pick.Slice{Bytes: 1 << 20, Remaining: 1 << 30}
	p := set.Picker()
	p.Prepare(st)
	b.ReportAllocs()
	for b.Loop() {
		if p.Pick(slice, st) != 0 {
			b.Fatal("not the lane")
		}
	}
}

// Lanes for failover come last, take nothing while a chosen one is well, and step
// in for it.
func TestListFailover(t *testing.T) {
	o := shaped()
	o.Lanes = []pick.Listed{
		{LocalName: "r1", RemoteName: "q1", BytesPerSec: topo.GBPerSec, Failover: true},
		{LocalName: "r0", RemoteName: "q0", BytesPerSec: topo.GBPerSec},
		{LocalName: "r0", RemoteName: "q1", BytesPerSec: topo.GBPerSec, Failover: true, Tier: 1},
		{LocalName: "r2", RemoteName: "q2", BytesPerSec: topo.GBPerSec},
	}
	set := o.Set()
	checkSet(t, set, `2 of 4 lanes chosen
  r1>q1 tier 0 alone 1000000000 share 1000000000
  r2>q2 tier 0 alone 1000000000 share 1000000000
  r0>q0 tier 1 alone 1000000000 share 0
  r1>q0 tier 2 alone 1000000000 share 0
`)
	st := states(set)
	for range 50 { // however much there is to do
		at := set.Pick(pick.Slice{Bytes: 1 << 20, Remaining: 1 << 40}, st)
		if at > 1 {
			t.Fatalf("lane %d takes a slice while both chosen ones are well", at)
		}
		st.Lanes[at].Inflight += 1 << 20
	}
	st = states(set)
	st.Lanes[0].Health = pick.Sick
	st.Lanes[1].Inflight, st.Lanes[1].Window = 1<<20, 1<<20
	if at := set.Pick(pick.Slice{Bytes: 1 << 20, Remaining: 1 << 40}, st); at != 2 {
		t.Errorf("a chosen lane is sick: lane %d takes its part", at)
	}
}

package plan_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/probe/plan"
	"github.com/topoctl/topoctl/probe/plan/plantest"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// mostOverBound is how many rounds a plan may have, as a multiple of the bound.
const mostOverBound = 1.25

const roundsFile = "testdata/rounds.golden"

// Every fixture alone, and two and eight of it: no plan has more than 1.25 times the
// rounds that it must have. The table of all is kept; an ordinary run samples the
// fixtures, and TOPOCTL_PLANS=all plans the largest too.
func TestRoundsOfFixtures(t *testing.T) {
	kept := map[string]string{}
	if data, err := os.ReadFile(roundsFile); err == nil {
		for line := range strings.Lines(string(data)) {
			key, _, _ := strings.Cut(line, "|")
			kept[key] = line
		}
	}
	// The largest take 20 s: .ci/long plans them.
	all := os.Getenv("TOPOCTL_PLANS") == "all"
	var lines []string
	check := func(name string, pairs *plan.Pairs) {
		p := makePlan(t, pairs, plan.Options{})
		valid(t, p)
		n := len(p.Rounds)
		if float64(n) > mostOverBound*float64(p.LowerBound) {
			t.Errorf("%s: %d rounds, %d would do", name, n, p.LowerBound)
		}
		pairCount := 0
		for _, r := range p.Rounds {
			pairCount += len(r)
		}
		line := fmt.Sprintf("%-42s| %6d pairs %5d rounds, at best %5d  x%.3f\n", name, pairCount, n, p.LowerBound, float64(n)/float64(max(1, p.LowerBound)))
		lines = append(lines, line)
		if key, _, _ := strings.Cut(line, "|"); !golden.Updating() && kept[key] != line {
			t.Errorf("%s differs (-update rewrites it):\n got %swant %s", roundsFile, line, kept[key])
		}
	}
	names := slices.Concat(fixtures.Names(), fixtures.Captures())
	if !all {
		names = longtest.Sample(names, 16)
	}
	for _, name := range names {
		top := fixturetest.Topology(t, name)
		ports := usable(t, top)
		if all || ports <= 32 {
			check(name+" local", local(t, top, plan.LocalOptions{}))
		}
		for _, n := range []int{2, 8} {
			for _, rails := range []plan.Rails{plan.RailsSame, plan.RailsAll} {
				costly := n == 8 && rails == plan.RailsAll && ports > 4 && name != "dgx-h100"
				if all || ports <= 32 && !costly {
					check(fmt.Sprintf("%s x%d rails %s", name, n, rails), fabric(t, plantest.Hosts(top, n), plan.FabricOptions{Rails: rails, Fabric: plantest.Rails(t, top)}))
				}
			}
		}
	}
	if golden.Updating() && all {
		if err := os.WriteFile(roundsFile, []byte(strings.Join(lines, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// An odd number of hosts, of which one waits while the others meet if each has one port of a rail, and hosts
// that differ.
func TestRoundsOfOddFabrics(t *testing.T) {
	small, large := fixturetest.Topology(t, "l40-4gpu-2nic"), fixturetest.Topology(t, "dgx-h100")
	for _, c := range []struct {
		top  *topo.Topology
		want map[int]int // rounds by hosts
	}{
		{small, map[int]int{3: 6, 5: 10, 7: 15}},
		{large, map[int]int{3: 34, 5: 67, 7: 99}},
		{fixturetest.Topology(t, "vm-flat"), map[int]int{3: 128, 5: 256, 7: 385}},
	} {
		for n, want := range c.want {
			if n == 7 && !longtest.On() {
				continue
			}
			p := makePlan(t, fabric(t, plantest.Hosts(c.top, n), plan.FabricOptions{}), plan.Options{})
			valid(t, p)
			if len(p.Rounds) != want {
				t.Errorf("%d of %s: %d rounds, want %d", n, c.top.Host.Name, len(p.Rounds), want)
			}
		}
	}
	hosts := append(plantest.Hosts(large, 3), plan.Host{Name: "slow", Topology: fixturetest.Topology(t, "dgx-a100")}, plan.Host{Name: "small", Topology: small})
	p := makePlan(t, fabric(t, hosts, plan.FabricOptions{}), plan.Options{})
	valid(t, p)
	if float64(len(p.Rounds)) > mostOverBound*float64(p.LowerBound) {
		t.Errorf("hosts that differ: %d rounds, %d would do", len(p.Rounds), p.LowerBound)
	}
}

package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/plan"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// An ordinary run tries the properties on fewer cases.
func TestMain(m *testing.M) { longtest.Main(m) }

func local(t testing.TB, top *topo.Topology, o plan.LocalOptions) *plan.Pairs {
	t.Helper()
	pairs, err := plan.Local(top, o)
	if err != nil {
		t.Fatal(err)
	}
	return pairs
}

func fabric(t testing.TB, hosts []plan.Host, o plan.FabricOptions) *plan.Pairs {
	t.Helper()
	pairs, err := plan.Fabric(hosts, o)
	if err != nil {
		t.Fatal(err)
	}
	return pairs
}

func makePlan(t testing.TB, pairs *plan.Pairs, o plan.Options) *plan.Plan {
	t.Helper()
	p, err := plan.Make(pairs, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func usable(t testing.TB, top *topo.Topology) int {
	t.Helper()
	h, err := pathsel.New(top, pathsel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range h.Ports() {
		if p.Usable {
			n++
		}
	}
	return n
}

// find gives a pair by its ID.
func find(t testing.TB, pairs *plan.Pairs, id string) *probe.Pair {
	t.Helper()
	for i := range pairs.Pairs {
		if pairs.Pairs[i].ID == id {
			return &pairs.Pairs[i]
		}
	}
	t.Fatalf("there is no pair %q", id)
	return nil
}

// fataler is testing.TB or rapid.T.
type fataler interface {
	Helper()
	Errorf(format string, args ...any)
}

// valid checks a plan against what it promises, by other means than those it was made by.
func valid(t fataler, p *plan.Plan) {
	t.Helper()
	links := map[probe.LinkKey]*probe.Link{}
	for i := range p.Pairs.Links {
		links[p.Pairs.Links[i].Key] = &p.Pairs.Links[i]
	}
	times := make([]int, len(p.Pairs.Pairs))
	for n, round := range p.Rounds {
		if len(round) == 0 || !slices.IsSorted(round) {
			t.Errorf("round %d: %v: want places, ascending", n+1, round)
		}
		for _, i := range round {
			times[i]++
		}
		validRound(t, p, n, links)
	}
	for i, n := range times {
		pair := &p.Pairs.Pairs[i]
		if want := map[bool]int{true: 1, false: 0}[pair.Waived == ""]; n != want {
			t.Errorf("%s is in %d rounds, want %d (waived %q)", pair.ID, n, want, pair.Waived)
		}
	}
	if len(p.Rounds) < p.LowerBound {
		t.Errorf("%d rounds, below the bound of %d", len(p.Rounds), p.LowerBound)
	}
}

func validRound(t fataler, p *plan.Plan, n int, links map[probe.LinkKey]*probe.Link) {
	t.Helper()
	load, users := map[probe.LinkKey]float64{}, map[probe.LinkKey]int{}
	unknown := map[probe.LinkKey]bool{}
	ends, cpus, loaded, owned := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, i := range p.Rounds[n] {
		pair := &p.Pairs.Pairs[i]
		rate := 0.0
		if r := pair.Expected.BytesPerSec; r != nil {
			rate = float64(*r)
		}
		keys := map[probe.LinkKey]bool{}
		for _, k := range pair.Path {
			keys[k] = true
		}
		if pair.Variant == probe.VariantCopy {
			rate /= 2
		}
		for k := range keys {
			load[k] += rate
			users[k]++
			unknown[k] = unknown[k] || pair.Expected.BytesPerSec == nil
		}
		at := func(e *probe.End) string { return e.Host + " " + string(e.Node) }
		memory := func(e *probe.End) string { return e.Host + " " + string(e.Location.Node()) }
		if pair.Kind == probe.Memory {
			cpus[at(&pair.To)]++
			owned[memory(&pair.From)]++
			continue
		}
		once := map[string]bool{at(&pair.From): true, at(&pair.To): true}
		for k := range once {
			if pair.Kind == probe.Port || pair.Kind == probe.GPU && strings.HasPrefix(k[len(pair.From.Host)+1:], "gpu:") {
				ends[k]++
			}
		}
		loaded[memory(&pair.From)]++
		loaded[memory(&pair.To)]++
	}
	for name, m := range map[string]map[string]int{"end": ends, "processors": cpus, "memory": owned} {
		for k, count := range m {
			if count > 1 {
				t.Errorf("round %d: %s %s in %d pairs", n+1, name, k, count)
			}
		}
	}
	for k := range owned {
		if loaded[k] > 0 {
			t.Errorf("round %d: others load the memory of %s, which is measured", n+1, k)
		}
	}
	if p.Schedule != plan.ByLink {
		return
	}
	for k, sum := range load {
		l := links[k]
		switch {
		case k == p.Contend || l.Kind == probe.LinkMemory || users[k] == 1:
		case l.BytesPerSec == nil && l.Host == "":
		case l.BytesPerSec == nil || unknown[k]:
			t.Errorf("round %d: %s: %d pairs, and a rate is not known", n+1, k, users[k])
		case sum > float64(*l.BytesPerSec)*(1+1e-9):
			t.Errorf("round %d: %s has to carry %.0f of %d bytes/s", n+1, k, sum, *l.BytesPerSec)
		}
	}
}

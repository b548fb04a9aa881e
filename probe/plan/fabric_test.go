package plan_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/plan"
	"github.com/topoctl/topoctl/probe/plan/plantest"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// leaves is a fabric file of hosts n1 to n: their ports on rails, and by rail or by host
// on leaves.
func leaves(t testing.TB, top *topo.Topology, hosts int, byHost bool) *pathsel.Fabric {
	t.Helper()
	one := plantest.Rails(t, top)
	f := &pathsel.Fabric{}
	for h := range hosts {
		ports := slices.Clone(one.Hosts[0].Ports)
		for i := range ports {
			if byHost {
				ports[i].Leaf = fmt.Sprintf("l%d", h/2)
			}
		}
		f.Hosts = append(f.Hosts, pathsel.FabricHost{Host: fmt.Sprintf("n%d", h+1), Ports: ports})
	}
	return f
}

// spined joins the leaves l0 to n of a fabric file to spines, by so many links each.
func spined(f *pathsel.Fabric, leaves, spines, count int, each topo.Rate) *pathsel.Fabric {
	for l := range leaves {
		for s := range spines {
			f.Uplinks = append(f.Uplinks, pathsel.FabricUplink{Leaf: fmt.Sprintf("l%d", l), Spine: fmt.Sprintf("s%d", s), Count: count, BytesPerSec: &each})
		}
	}
	return f
}

func TestFabricGoldens(t *testing.T) {
	down := fixturetest.Topology(t, "dgx-h100-port-down")
	railOnly := plantest.Rails(t, down)
	railOnly.RailOnly = true
	eth := fixturetest.Topology(t, "cpu-2eth")
	mixed := []plan.Host{{Name: "a", Topology: fixturetest.Topology(t, "l40-4gpu-2nic")}, {Name: "b", Topology: eth}, {Name: "c", Topology: fixturetest.Topology(t, "l40-4gpu-2nic")}}
	for name, c := range map[string]struct {
		hosts []plan.Host
		o     plan.FabricOptions
	}{
		"rails-same":  {plantest.Hosts(down, 4), plan.FabricOptions{Rails: plan.RailsSame, Fabric: plantest.Rails(t, down)}},
		"rail-only":   {plantest.Hosts(down, 2), plan.FabricOptions{Fabric: railOnly}},
		"leaves":      {plantest.Hosts(eth, 4), plan.FabricOptions{Fabric: spined(leaves(t, eth, 4, true), 2, 1, 0, topo.GBPerSec)}},
		"spines":      {plantest.Hosts(eth, 4), plan.FabricOptions{Fabric: spined(leaves(t, eth, 4, true), 2, 2, 0, topo.GBPerSec)}},
		"uplinks":     {plantest.Hosts(eth, 4), plan.FabricOptions{Fabric: spined(leaves(t, eth, 4, true), 2, 1, 4, 2*topo.GBPerSec)}},
		"no-uplinks":  {plantest.Hosts(eth, 4), plan.FabricOptions{Fabric: spined(leaves(t, eth, 4, true), 1, 1, 0, topo.GBPerSec)}},
		"mixed":       {mixed, plan.FabricOptions{}},
		"gpu-memory":  {plantest.Hosts(fixturetest.Topology(t, "l40-4gpu-2nic"), 2), plan.FabricOptions{Memory: plan.OnGPU}},
		"softrdma":    {plantest.Hosts(fixturetest.Topology(t, "lab-softrdma"), 2), plan.FabricOptions{}},
		"virtual-fun": {plantest.Hosts(fixturetest.Topology(t, "sriov-pf-vf"), 2), plan.FabricOptions{Select: []string{"n1>n2"}}},
	} {
		pairs := fabric(t, c.hosts, c.o)
		checkPairs(t, pairs)
		p := makePlan(t, pairs, plan.Options{Spec: defaultSpec()})
		valid(t, p)
		golden.Check(t, "testdata/"+"fabric-"+name+".golden", describe(p))
	}
}

func TestRails(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	for rails, want := range map[plan.Rails]int{plan.RailsAll: 2 * 64, plan.RailsSame: 2 * 8, plan.RailsCross: 2 * 56} {
		if got := len(fabric(t, plantest.Hosts(top, 2), plan.FabricOptions{Rails: rails, Fabric: plantest.Rails(t, top)}).Pairs); got != want {
			t.Errorf("rails %s: %d pairs, want %d", rails, got, want)
		}
	}
	_, err := plan.Fabric(plantest.Hosts(top, 2), plan.FabricOptions{Rails: plan.RailsSame})
	if err == nil || !strings.Contains(err.Error(), "the rail of no port is known") || !strings.Contains(err.Error(), "use a fabric file") {
		t.Errorf("same rails without a fabric file: %v", err)
	}
	part := plantest.Rails(t, top)
	part.Hosts[0].Ports = part.Hosts[0].Ports[:2]
	pairs := fabric(t, plantest.Hosts(top, 2), plan.FabricOptions{Rails: plan.RailsSame, Fabric: part})
	gaps := 0
	for _, r := range pairs.Rejected {
		if r.Reason.Code == plan.CodeRailGap {
			gaps++
		}
	}
	if len(pairs.Pairs) != 4 || gaps != 12 {
		t.Errorf("two rails known: %d pairs and %d ports without rail, want 4 and 12", len(pairs.Pairs), gaps)
	}
}

func TestRailOnlyIsToldAsRejected(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	f := plantest.Rails(t, top)
	f.RailOnly = true
	pairs := fabric(t, plantest.Hosts(top, 3), plan.FabricOptions{Fabric: f})
	rejected := 0
	for _, r := range pairs.Rejected {
		if r.Pairs > 0 && r.Reason.Code == "other-rail" {
			rejected += r.Pairs
		}
	}
	if len(pairs.Pairs) != 6*8 || rejected != 3*56 {
		t.Errorf("%d pairs, %d rejected, want 48 and 168", len(pairs.Pairs), rejected)
	}
	if same := fabric(t, plantest.Hosts(top, 3), plan.FabricOptions{Fabric: f, Rails: plan.RailsSame}); slices.ContainsFunc(same.Rejected, func(r plan.Rejection) bool { return r.Pairs > 0 }) {
		t.Error("pairs are rejected that nobody asked for")
	}
}

func TestFabricSelect(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	for pattern, want := range map[string]int{"n1>n2": 64, "n1": 4 * 64, "n3/mlx5_0>*": 16, "mlx5_0>mlx5_0": 6, "n?>n1": 128} {
		if got := len(fabric(t, plantest.Hosts(top, 3), plan.FabricOptions{Select: []string{pattern}}).Pairs); got != want {
			t.Errorf("%s: %d pairs, want %d", pattern, got, want)
		}
	}
	for _, pattern := range []string{"n7>*", "n1>n1"} {
		if _, err := plan.Fabric(plantest.Hosts(top, 3), plan.FabricOptions{Select: []string{pattern}}); err == nil || !strings.Contains(err.Error(), "no pair has such ends") {
			t.Errorf("%s: error %v", pattern, err)
		}
	}
}

func TestFabricErrors(t *testing.T) {
	top := fixturetest.Topology(t, "cpu-2eth")
	two := plantest.Hosts(top, 2)
	bad := topo.Rate(-1)
	for want, c := range map[string]struct {
		hosts []plan.Host
		o     plan.FabricOptions
	}{
		"want two or more":          {two[:1], plan.FabricOptions{}},
		`two hosts are called`:      {[]plan.Host{two[0], two[0]}, plan.FabricOptions{}},
		"a host has no name":        {[]plan.Host{two[0], {Topology: top}}, plan.FabricOptions{}},
		"not derived":               {[]plan.Host{two[0], {Name: "x"}}, plan.FabricOptions{}},
		"want rdma, tcp":            {two, plan.FabricOptions{Transport: "udp"}},
		"bytes_per_sec -1: want 1":  {two, plan.FabricOptions{Fabric: &pathsel.Fabric{Uplinks: []pathsel.FabricUplink{{Leaf: "a", Spine: "b", BytesPerSec: &bad}}}}},
		"other switches give":       {two, plan.FabricOptions{Fabric: &pathsel.Fabric{Uplinks: []pathsel.FabricUplink{{Leaf: "a", Spine: "b/spine:c"}, {Leaf: "a/spine:b", Spine: "c"}}}}},
		"the host has no such port": {two, plan.FabricOptions{Fabric: &pathsel.Fabric{Hosts: []pathsel.FabricHost{{Host: "n1", Ports: []pathsel.FabricPort{{Port: "x"}}}}}}},
	} {
		if _, err := plan.Fabric(c.hosts, c.o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// The order of hosts and of pairs does not matter.
func TestOrderDoesNotMatter(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	hosts := plantest.Hosts(top, 4)
	want := fabric(t, hosts, plan.FabricOptions{Fabric: plantest.Rails(t, top)})
	wantRounds := ids(makePlan(t, want, plan.Options{}))
	random := rand.New(rand.NewPCG(1, 2))
	for range 3 {
		random.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
		got := fabric(t, hosts, plan.FabricOptions{Fabric: plantest.Rails(t, top)})
		if !reflect.DeepEqual(got, want) {
			t.Fatal("hosts in another order give other pairs")
		}
		random.Shuffle(len(got.Pairs), func(i, j int) { got.Pairs[i], got.Pairs[j] = got.Pairs[j], got.Pairs[i] })
		if rounds := ids(makePlan(t, got, plan.Options{})); !reflect.DeepEqual(rounds, wantRounds) {
			t.Fatal("pairs in another order give other rounds")
		}
	}
}

// ids are the pairs of each round by ID, sorted.
func ids(p *plan.Plan) [][]string {
	out := make([][]string, len(p.Rounds))
	for i := range p.Rounds {
		for _, x := range p.Round(i) {
			out[i] = append(out[i], x.ID)
		}
		slices.Sort(out[i])
	}
	return out
}

// Memory of GPUs is spread where several are equally near.
func TestGPUMemoryIsNearAndSpread(t *testing.T) {
	for _, name := range []string{"dgx-h100", "mi300x-8nic", "l40-4gpu-2nic"} {
		pairs := fabric(t, plantest.Hosts(fixturetest.Topology(t, name), 2), plan.FabricOptions{Memory: plan.OnGPU})
		used := map[pathsel.Location]string{}
		for _, p := range pairs.Pairs {
			if p.From.Host != "n1" {
				continue
			}
			if !strings.HasPrefix(string(p.From.Location), "gpu:") || !p.From.Class.Known() {
				t.Errorf("%s: %s moves memory of %q, class %s", name, p.ID, p.From.Location, p.From.Class)
			}
			if other := used[p.From.Location]; other != "" && other != p.From.Name {
				t.Errorf("%s: %s and %s both have %s", name, other, p.From.Name, p.From.Location)
			}
			used[p.From.Location] = p.From.Name
		}
	}
	pairs := fabric(t, []plan.Host{{Name: "a", Topology: fixturetest.Topology(t, "dgx-h100")}, {Name: "b", Topology: fixturetest.Topology(t, "cpu-2eth")}}, plan.FabricOptions{Memory: plan.OnGPU})
	for _, p := range pairs.Pairs {
		if p.Waived != "no GPU in host b" {
			t.Errorf("%s: waived with %q", p.ID, p.Waived)
		}
	}
}

// A container's interface has a wire too, of which nothing is known.
func TestWireThatNobodyLists(t *testing.T) {
	up := true
	veth := func(address string) *topo.Topology {
		top := &topo.Topology{}
		top.NUMANodes = []topo.NUMANode{{Node: topo.Node{ID: "numa:0"}, CPUs: "0-3"}}
		top.Netdevs = []topo.Netdev{{Node: topo.Node{ID: "net:eth0"}, Name: "eth0", Type: "ether", LinkKind: "veth", Virtual: true, State: "up", Carrier: &up, Addresses: []string{address}}}
		top.Derive()
		return top
	}
	hosts := []plan.Host{{Name: "a", Topology: veth("10.0.0.1/24")}, {Name: "b", Topology: veth("10.0.0.2/24")}}
	p := find(t, fabric(t, hosts, plan.FabricOptions{}), "port a/eth0>b/eth0 tcp")
	if want := []probe.LinkKey{"a port:eth0 down", "b port:eth0 up"}; !slices.Equal(p.Path, want) || p.Expected.BytesPerSec != nil {
		t.Errorf("path %q, expected %v, want %q and nothing", p.Path, p.Expected, want)
	}
}

// A host that can use TCP alone takes the others to TCP for its own pairs only.
func TestFabricHostOverTCP(t *testing.T) {
	hosts := plantest.Hosts(fixturetest.Topology(t, "l40-4gpu-2nic"), 3)
	hosts[2].Transport = pathsel.TCP
	pairs := fabric(t, hosts, plan.FabricOptions{})
	count := map[string]int{}
	for i := range pairs.Pairs {
		p := &pairs.Pairs[i]
		want := probe.RDMA
		if p.From.Host == "n3" || p.To.Host == "n3" {
			want = probe.TCP
			if e := &p.Expected; e.Basis != topo.BasisBound || !strings.Contains(e.Why, "one TCP stream reliably carries 10 Gb/s") {
				t.Errorf("%s: %s, %s", p.ID, e.Basis, e.Why)
			}
		}
		if p.Transport != want {
			t.Errorf("%s: %s, want %s", p.ID, p.Transport, want)
		}
		count[p.Transport]++
	}
	if count[probe.RDMA] == 0 || count[probe.TCP] == 0 {
		t.Errorf("%v: want pairs of both", count)
	}
}

// Ports for data that are down make a run partial where they were asked for.
func TestPortsDownArePartial(t *testing.T) {
	down := plantest.Hosts(fixturetest.Topology(t, "dgx-h100-port-down"), 2)
	for selected, want := range map[string]int{"": 2, "n1>n2": 2, "mlx5_0>mlx5_0": 0} {
		var o plan.FabricOptions
		if selected != "" {
			o.Select = []string{selected}
		}
		got := 0
		for _, n := range fabric(t, down, o).Notes {
			if strings.HasPrefix(n, probe.PartialNote) {
				got++
			}
		}
		if got != want {
			t.Errorf("%q: %d partial notes, want %d", selected, got, want)
		}
	}
}

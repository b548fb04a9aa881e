package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/plan"
	"github.com/topoctl/topoctl/probe/plan/plantest"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// defaultSpec is about what the command measures by.
func defaultSpec() probe.Spec {
	return probe.Spec{Warmup: 300 * time.Millisecond, SampleTime: 200 * time.Millisecond, MinSamples: 5, MaxSamples: 30, CI: 0.025,
		SizesBytes: []int64{1 << 20}, LatencySamples: 1000}
}

// describe is a plan as people see it, one pair of each group with all that is known of
// it, and the links.
func describe(p *plan.Plan) string {
	var b strings.Builder
	b.WriteString(p.Text())
	seen := map[string]int{}
	for i := range p.Pairs.Pairs {
		seen[p.Pairs.Pairs[i].Group]++
	}
	b.WriteString("\ngroups, and the first pair of each\n")
	for i := range p.Pairs.Pairs {
		x := &p.Pairs.Pairs[i]
		if seen[x.Group] == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s: %d\n  %s, from %s (%s) to %s (%s)\n  %s; basis %s, limit %q\n  path, known %t:", x.Group, seen[x.Group],
			x.ID, x.From.Location, x.From.Class, x.To.Location, x.To.Class, x.Expected.Why, x.Expected.Basis, x.Expected.Limit, x.PathKnown)
		for _, k := range x.Path {
			fmt.Fprintf(&b, " [%s]", k)
		}
		b.WriteString("\n")
		seen[x.Group] = 0
	}
	b.WriteString("\nlinks\n")
	for i := range p.Pairs.Links {
		l := &p.Pairs.Links[i]
		rate := "?"
		if l.BytesPerSec != nil {
			rate = fmt.Sprint(int64(*l.BytesPerSec))
		}
		fmt.Fprintf(&b, "%s: %s, %s, %s %s, on %s\n", l.Key, l.Name, l.Kind, rate, l.Basis, strings.Join(l.On, ", "))
	}
	b.WriteString("\ndevices\n")
	for _, d := range p.Pairs.Devices {
		fmt.Fprintf(&b, "%s: %s %s\n", d.Key, d.Kind, d.Name)
	}
	return b.String()
}

func TestLocalGoldens(t *testing.T) {
	for _, name := range []string{"dgx-h100", "dgx-h100-port-down", "cpu-2eth", "gb200-tray", "gh200-4gpu", "sriov-pf-vf", "mi300x-8nic", "vm-flat", "lab-numa4"} {
		p := makePlan(t, local(t, fixturetest.Topology(t, name), plan.LocalOptions{}), plan.Options{Spec: defaultSpec()})
		golden.Check(t, "testdata/"+"local-"+name+".golden", describe(p))
	}
}

// All that pairs name is there, and IDs are unique.
func checkPairs(t *testing.T, pairs *plan.Pairs) {
	t.Helper()
	links, devices, hosts, ids := map[probe.LinkKey]int{}, map[string]int{}, map[string]bool{}, map[string]bool{}
	for _, l := range pairs.Links {
		links[l.Key]++
	}
	for _, d := range pairs.Devices {
		devices[d.Key]++
		if d.Name == "" || d.Kind == "" {
			t.Errorf("device %q has no name or kind", d.Key)
		}
	}
	for _, h := range pairs.Hosts {
		hosts[h.Name] = true
	}
	for i := range pairs.Links {
		for _, d := range pairs.Links[i].On {
			if devices[d] != 1 {
				t.Errorf("link %q is on %q, of which there are %d", pairs.Links[i].Key, d, devices[d])
			}
		}
	}
	for i := range pairs.Pairs {
		p := &pairs.Pairs[i]
		if ids[p.ID] {
			t.Errorf("two pairs are called %q", p.ID)
		}
		ids[p.ID] = true
		if !hosts[p.From.Host] || !hosts[p.To.Host] || p.Group == "" || p.Expected.Why == "" || p.Expected.Basis == "" {
			t.Errorf("pair %q is not complete: %+v", p.ID, p)
		}
		lowest := topo.Rate(-1)
		for _, k := range p.Path {
			if links[k] != 1 {
				t.Errorf("pair %q crosses %q, of which there are %d", p.ID, k, links[k])
			}
			j := slices.IndexFunc(pairs.Links, func(l probe.Link) bool { return l.Key == k })
			if r := pairs.Links[j].Payload(); r != nil && (lowest < 0 || *r < lowest) {
				lowest = *r
			}
		}
		if p.Variant == probe.VariantCopy {
			lowest *= 2
		}
		if r := p.Expected.BytesPerSec; (r == nil) != (lowest < 0) || r != nil && (*r != lowest || !slices.Contains(p.Path, p.Expected.Limit)) {
			t.Errorf("pair %q: expected %v, the lowest rate on its way is %d, limit %q", p.ID, p.Expected, lowest, p.Expected.Limit)
		}
	}
}

func TestEverythingNamedIsThere(t *testing.T) {
	for _, name := range []string{"dgx-h100", "sriov-pf-vf", "gb200-tray", "v100-8gpu", "lab-numa2", "bonds", "h20-4ib-1roce"} {
		top := fixturetest.Topology(t, name)
		checkPairs(t, local(t, top, plan.LocalOptions{}))
		checkPairs(t, fabric(t, plantest.Hosts(top, 3), plan.FabricOptions{}))
		checkPairs(t, fabric(t, plantest.Hosts(top, 2), plan.FabricOptions{Transport: pathsel.TCP}))
		checkPairs(t, fabric(t, plantest.Hosts(top, 2), plan.FabricOptions{Memory: plan.OnGPU, BothWays: true}))
	}
}

// The expected rates are those of the topology's own relations, without the headers of
// PCIe packets.
func TestExpectedAgreesWithTopology(t *testing.T) {
	for _, name := range []string{"dgx-h100", "dgx-h100-gpu2-x8", "dgx-h100-nic-gen1", "gh200-4gpu", "mi300x-8nic", "h100-nvl-8gpu-2nic", "nd96asr-v4"} {
		top := fixturetest.Topology(t, name)
		pairs := local(t, top, plan.LocalOptions{Kinds: []probe.Kind{probe.GPU}})
		for _, p := range pairs.Pairs {
			if p.Variant == probe.VariantNoPeer {
				continue
			}
			r := top.Relate(p.From.Node, p.To.Node)
			limit := probe.Link{BytesPerSec: r.BytesPerSec}
			if j := slices.IndexFunc(pairs.Links, func(l probe.Link) bool { return l.Key == p.Expected.Limit }); j >= 0 {
				limit.Kind, limit.Basis = pairs.Links[j].Kind, pairs.Links[j].Basis
			}
			if got, want := rate(p.Expected.BytesPerSec), rate(limit.Payload()); got != want || p.Expected.Basis != r.Basis {
				t.Errorf("%s %s: expected %s, %s; the topology says %s, %s", name, p.ID, got, p.Expected.Basis, want, r.Basis)
			}
		}
	}
}

func rate(r *topo.Rate) string {
	if r == nil {
		return "unknown"
	}
	return fmt.Sprint(int64(*r))
}

func TestWaivedPairs(t *testing.T) {
	no := false
	for name, c := range map[string]struct {
		change func(top *topo.Topology)
		id     string
		want   string
	}{
		"peer access": {func(top *topo.Topology) {
			top.GPUs[1].P2P = map[topo.ID]string{"gpu:0": "chipset not supported"}
		}, "gpu h/gpu:1>h/gpu:0 cuda", "gpu:1 has no peer access to gpu:0: chipset not supported"},
		"staged all the same": {func(top *topo.Topology) {
			top.GPUs[1].P2P = map[topo.ID]string{"gpu:0": "chipset not supported"}
		}, "gpu h/gpu:1>h/gpu:0 cuda no-peer-access", ""},
		"invisible": {func(top *topo.Topology) { top.GPUs[1].Visible = &no }, "gpu h/cpu:0>h/gpu:1 cuda", "gpu:1 is not visible to this process"},
		"MIG":       {func(top *topo.Topology) { top.GPUs[0].MIG = &topo.MIG{Enabled: true} }, "gpu h/gpu:1>h/gpu:0 cuda", "gpu:0 is partitioned (MIG): its parts share what would be measured"},
		"no driver": {func(top *topo.Topology) { top.GPUs[0].KnownFrom = "pci" }, "gpu h/gpu:0>h/cpu:1 cuda", "gpu:0 has no driver: it is known from PCI only"},
		"vendor":    {func(top *topo.Topology) { top.GPUs[0].Vendor = "amd" }, "gpu h/gpu:0>h/cpu:1 cuda", "gpu:0 is not measured: copies go through CUDA, and its vendor is amd"},
		"cpuset":    {func(top *topo.Topology) { top.Host.AllowedCPUs = "0-3" }, "memory h/cpu:0>h/cpu:1 cpu read", "this process may not run on the CPUs of cpu:1"},
		"own CPUs":  {func(top *topo.Topology) { top.Host.AllowedCPUs = "0-3" }, "memory h/cpu:1>h/cpu:0 cpu read", ""},
		"no memory": {func(top *topo.Topology) { top.NUMANodes[1].MemoryBytes = new(int64) }, "memory h/cpu:1>h/cpu:0 cpu copy", "no memory in cpu:1"},
	} {
		top := fixturetest.Topology(t, "dgx-h100")
		c.change(top)
		pairs := local(t, top, plan.LocalOptions{Name: "h"})
		if got := find(t, pairs, c.id).Waived; got != c.want {
			t.Errorf("%s: %s is waived with %q, want %q", name, c.id, got, c.want)
		}
		valid(t, makePlan(t, pairs, plan.Options{}))
	}
}

func TestLocalWithoutHardware(t *testing.T) {
	pairs := local(t, fixturetest.Topology(t, "cpu-2eth"), plan.LocalOptions{})
	var texts []string
	for _, r := range pairs.Rejected {
		texts = append(texts, r.Reason.Text)
	}
	if !slices.Contains(texts, "no GPU in this host") {
		t.Errorf("rejected: %q", texts)
	}
	if p := find(t, pairs, "port cpu-2eth/lo>cpu-2eth/lo tcp"); p.Waived != "" || p.Expected.BytesPerSec != nil || len(p.Path) != 0 {
		t.Errorf("loopback: %+v", p)
	}
	pairs = local(t, fixturetest.Topology(t, "cpu-2eth"), plan.LocalOptions{Transport: pathsel.RDMA, Kinds: []probe.Kind{probe.Port}})
	if len(pairs.Pairs) != 0 || len(pairs.Rejected) == 0 {
		t.Errorf("RDMA of a host that has none: %d pairs, rejected %v", len(pairs.Pairs), pairs.Rejected)
	}
	if p := makePlan(t, pairs, plan.Options{}); len(p.Rounds) != 0 || p.LowerBound != 0 {
		t.Errorf("nothing to measure: %d rounds, bound %d", len(p.Rounds), p.LowerBound)
	}
	bare := &topo.Topology{Host: topo.Host{Name: "bare"}}
	bare.Derive()
	pairs = local(t, bare, plan.LocalOptions{})
	for _, p := range pairs.Pairs {
		if p.From.Name != "lo" {
			t.Errorf("a host of which nothing is known has %s", p.ID)
		}
	}
}

// Loopback that is switched off is no finding: it was so before anybody measured.
func TestLoopbackDown(t *testing.T) {
	for name, change := range map[string]func(*topo.Netdev){
		"down":         func(n *topo.Netdev) { n.State, n.AdminUp = "down", nil },
		"switched off": func(n *topo.Netdev) { n.State, n.AdminUp = "unknown", new(false) },
	} {
		top := fixturetest.Topology(t, "cpu-2eth")
		i := slices.IndexFunc(top.Netdevs, func(n topo.Netdev) bool { return n.Name == "lo" })
		if i < 0 {
			top.Netdevs = append(top.Netdevs, topo.Netdev{Node: topo.Node{ID: topo.NetdevID("lo")}, Name: "lo"})
			i = len(top.Netdevs) - 1
		}
		change(&top.Netdevs[i])
		for _, selected := range []string{"lo", "cpu:0"} {
			pairs, err := plan.Local(top, plan.LocalOptions{Select: []string{selected}})
			if err != nil {
				t.Fatal(err)
			}
			noted := slices.Contains(pairs.Notes, "partial: cpu-2eth/lo is down and was not measured")
			if noted != (selected == "lo") {
				t.Errorf("%s, --select %s: notes %q", name, selected, pairs.Notes)
			}
			if selected == "lo" {
				if p := find(t, pairs, "port cpu-2eth/lo>cpu-2eth/lo tcp"); p.Waived != "lo is down" {
					t.Errorf("%s: %+v", name, p)
				}
			}
		}
	}
}

// A link of a rate that no machine has does no harm.
func TestAbsurdRates(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	for i := range top.Links {
		rate := topo.Rate(1<<63 - 1)
		if top.Links[i].ID == "smp:0/1" {
			rate = -1
		}
		top.Links[i].BytesPerSec = &rate
	}
	pairs := local(t, top, plan.LocalOptions{})
	checkPairs(t, pairs)
	if got := find(t, pairs, "gpu dgx-h100/cpu:1>dgx-h100/gpu:0 cuda").Waived; got != "socket link cpu:0 - cpu:1 carries nothing" {
		t.Errorf("over a link of no rate: waived with %q", got)
	}
	p := makePlan(t, pairs, plan.Options{Spec: defaultSpec(), Schedule: plan.ByEndpoint})
	valid(t, p)
	valid(t, makePlan(t, pairs, plan.Options{Spec: defaultSpec()}))
}

// TCP between ports of one host does not cross the wire.
func TestTCPPortsOfOneHostAreWaived(t *testing.T) {
	pairs := local(t, fixturetest.Topology(t, "lab-softrdma"), plan.LocalOptions{Transport: pathsel.TCP, Kinds: []probe.Kind{probe.Port}})
	waived := 0
	for _, p := range pairs.Pairs {
		switch {
		case p.From.Name == "lo":
		case !strings.Contains(p.Waived, "the kernel takes a short cut"):
			t.Errorf("%s is waived with %q", p.ID, p.Waived)
		default:
			waived++
		}
	}
	if waived == 0 {
		t.Error("no pair of ports is there")
	}
}

func TestSelect(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	for _, c := range []struct {
		patterns []string
		want     int
		err      string
	}{
		{nil, 209, ""},
		{[]string{"*"}, 209, ""},
		{[]string{"gpu:0>*"}, 7*2 + 2, ""},
		{[]string{"gpu:0"}, 2 * (7*2 + 2), ""},
		{[]string{"cpu:?>cpu:?"}, 8, ""},
		{[]string{"mlx5_0>mlx5_*"}, 7, ""},
		{[]string{"dgx-h100/gpu:1>cpu:*", "lo"}, 3, ""},
		{[]string{"gpu:9>*"}, 0, `selection "gpu:9>*": no pair has such ends`},
		{[]string{"gpu:0>"}, 0, "want FROM>TO"},
		{[]string{"a>b>c"}, 0, "want FROM>TO"},
		{[]string{""}, 0, "want FROM>TO"},
		{[]string{strings.Repeat("*", 600)}, 0, "want FROM>TO"},
	} {
		pairs, err := plan.Local(top, plan.LocalOptions{Select: c.patterns})
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%.40q: error %v, want %q", c.patterns, err, c.err)
		case c.err == "" && err != nil:
			t.Errorf("%.40q: %v", c.patterns, err)
		case c.err == "" && len(pairs.Pairs) != c.want:
			t.Errorf("%.40q: %d pairs, want %d", c.patterns, len(pairs.Pairs), c.want)
		}
	}
}

func TestBadInput(t *testing.T) {
	top := fixturetest.Topology(t, "cpu-2eth")
	named := func(name string) error {
		_, err := plan.Local(top, plan.LocalOptions{Name: name})
		return err
	}
	odd := func(change func(*topo.Topology)) error {
		top := fixturetest.Topology(t, "cpu-2eth")
		change(top)
		_, err := plan.Local(top, plan.LocalOptions{})
		return err
	}
	_, none := plan.Local(nil, plan.LocalOptions{})
	_, raw := plan.Local(&topo.Topology{Host: topo.Host{Name: "x"}}, plan.LocalOptions{})
	_, contend := plan.Make(local(t, top, plan.LocalOptions{}), plan.Options{Contend: "x"})
	_, serial := plan.Make(local(t, top, plan.LocalOptions{}), plan.Options{Contend: "x", Schedule: plan.Serial})
	_, nothing := plan.Make(nil, plan.Options{})
	for want, err := range map[string]error{
		"printable characters without space": errors(named("a b"), named("a/b"), named("a>b"), named("a\nb"), named("\u202e")),
		"a name of 300 bytes":                named(strings.Repeat("x", 300)),
		"no topology":                        none,
		"not derived":                        raw,
		`contend on "x": no pair crosses it`: contend,
		"puts no two pairs together":         serial,
		"no pairs":                           nothing,
		"its topology has the name":          errors(odd(func(top *topo.Topology) { top.Netdevs[0].Name = "a>b" }), odd(func(top *topo.Topology) { top.Links[0].ID = "pcie:\x1b[31m" })),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// errors is one of several errors, nil where any is nil.
func errors(list ...error) error {
	for _, err := range list {
		if err == nil {
			return nil
		}
	}
	return list[0]
}

func FuzzSelect(f *testing.F) {
	top := fixturetest.Topology(f, "cpu-2eth")
	for _, s := range []string{"*", "cpu:0>*", "a>b", "?*?>**", ">"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		pairs, err := plan.Local(top, plan.LocalOptions{Select: []string{pattern}})
		if err == nil && len(pairs.Pairs) == 0 {
			t.Errorf("%q picks nothing and that is no error", pattern)
		}
	})
}

// Both ways is for GPUs too, but not through memory of the host, where each copy goes both ways already.
func TestLocalBothWays(t *testing.T) {
	pairs := local(t, fixturetest.Topology(t, "a10-2nic"), plan.LocalOptions{Kinds: []probe.Kind{probe.GPU}, BothWays: true})
	count := map[string]int{}
	for _, p := range pairs.Pairs {
		count[p.Variant]++
	}
	if gpus := len(fixturetest.Topology(t, "a10-2nic").GPUs); count[probe.VariantBothWays] == 0 || count[""] != 0 || count[probe.VariantNoPeer] != gpus*(gpus-1) {
		t.Errorf("pairs by variant: %v", count)
	}
}

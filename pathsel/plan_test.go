package pathsel_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/importtest"
	"github.com/topoctl/topoctl/testkit/schematest"
)

func planOf(t testing.TB, h *pathsel.Host, consumers []pathsel.Consumer) *pathsel.Plan {
	t.Helper()
	p, err := h.Plan(consumers)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlanOfFixtures(t *testing.T) {
	for _, name := range fixtures.Names() {
		t.Run(name, func(t *testing.T) {
			h := fixture(t, name)
			p := planOf(t, h, nil)
			checkPlan(t, h, p)
			golden.Check(t, "testdata/plan/"+name+".txt", p.Text())
		})
	}
}

func TestPlanOfImports(t *testing.T) {
	for name, top := range importtest.Hosts(t) {
		t.Run(name, func(t *testing.T) {
			h := prepare(t, top, pathsel.Options{})
			p, err := h.Plan(nil)
			if err != nil { // a file of GPUs' links only
				golden.Check(t, "testdata/plan/import-"+name+".txt", err.Error()+"\n")
				return
			}
			checkPlan(t, h, p)
			golden.Check(t, "testdata/plan/import-"+name+".txt", p.Text())
		})
	}
}

// checkPlan holds a plan to what every plan promises.
func checkPlan(t testing.TB, h *pathsel.Host, p *pathsel.Plan) {
	t.Helper()
	usable := []topo.ID{}
	for _, port := range h.Ports() {
		if port.Usable {
			usable = append(usable, port.ID)
		}
	}
	var listed []topo.ID
	for _, l := range p.Ports {
		listed = append(listed, l.Port)
	}
	if !slices.Equal(usable, listed) || len(p.Ports)+len(p.Rejected) != len(h.Ports()) {
		t.Fatalf("ports %v, usable are %v; %d rejected of %d", listed, usable, len(p.Rejected), len(h.Ports()))
	}
	if len(usable) == 0 {
		return
	}
	n, g := len(usable), len(p.Assignments)
	served := map[topo.ID][]string{}
	for _, a := range p.Assignments {
		checkPlanAssignment(t, h, &a)
		if want := max(1, n/g); len(a.Ports) < want || len(a.Ports) > max(1, (n+g-1)/g) {
			t.Errorf("%s has %d of %d ports among %d", a.Consumer, len(a.Ports), n, g)
		}
		for _, c := range a.Ports {
			served[c.Port] = append(served[c.Port], a.Consumer)
		}
	}
	total := 0.0
	for _, l := range p.Ports {
		if got := slices.Sorted(slices.Values(l.Consumers)); len(got) == 0 || !slices.Equal(got, slices.Sorted(slices.Values(served[l.Port]))) {
			t.Errorf("%s serves %v, assigned are %v", l.Name, got, served[l.Port])
		}
		if n >= g && len(l.Consumers) != 1 {
			t.Errorf("%s serves %v", l.Name, l.Consumers)
		}
		total += l.Share
	}
	if total < float64(g)-1e-6 || total > float64(g)+1e-6 {
		t.Errorf("shares add up to %f of %d consumers", total, g)
	}
	checkPlanRates(t, h, p)
}

// checkPlanAssignment: the reasons of what a consumer has are true.
func checkPlanAssignment(t testing.TB, h *pathsel.Host, a *pathsel.Assignment) {
	t.Helper()
	ranked, err := h.Affinity(a.Location, nil)
	if err != nil {
		t.Fatal(err)
	}
	best := ranked.Ranked[0]
	for _, c := range ranked.Ranked { // the doubtful rank last there, and share the work here
		if c.Class.Compare(best.Class) < 0 {
			best = c
		}
	}
	for i, c := range a.Ports {
		nearest := c.Class == best.Class
		switch c.Reason.Code {
		case pathsel.CodeBest:
			if !nearest {
				t.Errorf("%s: %s is called best: %s, and %s is %s", a.Consumer, c.Name, c.Class, best.Name, best.Class)
			}
		case pathsel.CodeSpare:
			if i == 0 {
				t.Errorf("%s: %s, its first, is called spare", a.Consumer, c.Name)
			}
		case "balance":
		default:
			t.Errorf("%s: %s: reason %+v", a.Consumer, c.Name, c.Reason)
		}
		if c.Verdict == pathsel.Preferred && !nearest || c.Verdict == pathsel.Rejected || c.Reason.Text == "" {
			t.Errorf("%s: %s (%s) is %s: %+v", a.Consumer, c.Name, c.Class, c.Verdict, c.Reason)
		}
	}
}

// checkPlanRates: nobody gets more together than alone, the sums agree, and the
// bottleneck is where the slowest is.
func checkPlanRates(t testing.TB, h *pathsel.Host, p *pathsel.Plan) {
	t.Helper()
	sum, known := topo.Rate(0), true
	for _, a := range p.Assignments {
		var ids []topo.ID
		for _, c := range a.Ports {
			ids = append(ids, c.Port)
		}
		alone, err := h.Capacity(a.Location, ids)
		if err != nil {
			t.Fatal(err)
		}
		if a.BytesPerSec == nil {
			known = false
			continue
		}
		sum += *a.BytesPerSec
		if alone.BytesPerSec != nil && *a.BytesPerSec > *alone.BytesPerSec+topo.Rate(len(ids)) {
			t.Errorf("%s: %d together, %d alone", a.Consumer, *a.BytesPerSec, *alone.BytesPerSec)
		}
		if b := p.Bottleneck; b == nil || b.SlowestBytesPerSec > *a.BytesPerSec {
			t.Errorf("%s gets %d, the bottleneck is %+v", a.Consumer, *a.BytesPerSec, b)
		} else if *a.BytesPerSec == b.SlowestBytesPerSec && !slices.Contains(slices.Concat(b.Consumers, b.AsSlow), a.Consumer) {
			t.Errorf("%s is as slow as any and not named: %+v", a.Consumer, b)
		}
	}
	if known != (p.BytesPerSec != nil) || known && *p.BytesPerSec != sum {
		t.Errorf("all together %v, the sum is %d (known: %v)", p.BytesPerSec, sum, known)
	}
}

// planGiven is a plan in one line: "gpu:0=mlx5_0,mlx5_1 gpu:1=...".
func planGiven(p *pathsel.Plan) string {
	var out []string
	for _, a := range p.Assignments {
		var names []string
		for _, c := range a.Ports {
			names = append(names, c.Name)
		}
		out = append(out, a.Consumer+"="+strings.Join(names, ","))
	}
	return strings.Join(out, " ")
}

// planCounts are the consumers of each port, in the order of names.
func planCounts(p *pathsel.Plan) []int {
	var out []int
	for _, l := range p.Ports {
		out = append(out, len(l.Consumers))
	}
	return out
}

// planRoot is a root complex of a made-up host, with one PCIe switch.
type planRoot struct {
	numa, gpus, nics int
	nic              string // the NIC part and its options; a 400 Gb/s InfiniBand one if left out
	dual             bool   // NICs have two ports
	direct           bool   // no switch: a root port for each
}

// planSpec writes a host down: each root has a PCI domain of its own, NICs are
// numbered through in that order.
func planSpec(t testing.TB, roots []planRoot) *topo.Topology {
	t.Helper()
	var b strings.Builder
	b.WriteString("machine: made-up\ndescription: a host of a test\ncpu: {vendor: GenuineIntel, family: 6, model: 143, name: Intel(R) Xeon(R), threads: 1}\n")
	b.WriteString("numa:\n- {node: 0, package: 0, cpus: 0-7, mem: 64GiB, distance: [10, 21]}\n- {node: 1, package: 1, cpus: 8-15, mem: 64GiB, distance: [21, 10]}\npci:\n")
	nic := 0
	for d, r := range roots {
		part := r.nic
		if part == "" {
			part = "connectx7, layer: ib"
		}
		fmt.Fprintf(&b, "- root: %04x:00\n  numa: %d\n  below:\n", d, r.numa)
		if !r.direct {
			b.WriteString("  - port: 00:01.0\n    below:\n    - switch: 01:00.0\n      part: broadcom-c030\n      below:\n")
		}
		for i := range r.gpus + r.nics {
			if r.direct {
				fmt.Fprintf(&b, "  - port: 00:%02x.0\n    below:\n", i+1)
			} else {
				fmt.Fprintf(&b, "      - down: 02:%02x.0\n        below:\n", i)
			}
			if i < r.gpus {
				fmt.Fprintf(&b, "        - {gpu: %02x:00.0, part: h100-sxm}\n", 3+i)
				continue
			}
			for f := range 1 + map[bool]int{true: 1}[r.dual] {
				fmt.Fprintf(&b, "        - {nic: %02x:00.%d, part: %s, rdma: mlx5_%d, net: ib%d, lid: %d}\n", 3+i, f, part, nic, nic, nic+1)
				nic++
			}
		}
	}
	return fixturetest.Spec(t, b.String())
}

// planRepeat gives a root n times.
func planRepeat(n int, r planRoot) []planRoot { return slices.Repeat([]planRoot{r}, n) }

// The failures of others, and what an engineer would do by hand.
func TestPlanKnownFailures(t *testing.T) {
	for _, tt := range []struct {
		name, fixture string
		roots         []planRoot
		want          string
		counts        []int
	}{
		{name: "UCX uses 4 of 8 NICs", fixture: "dgx-h100",
			want: "gpu:0=mlx5_0 gpu:1=mlx5_3 gpu:2=mlx5_4 gpu:3=mlx5_5 gpu:4=mlx5_6 gpu:5=mlx5_9 gpu:6=mlx5_10 gpu:7=mlx5_11"},
		{name: "B300 leaves 8 of 16 NICs idle", fixture: "b300-16nic", counts: slices.Repeat([]int{1}, 16)},
		{name: "pairing by index takes B200's decoys", fixture: "b200",
			want: "gpu:0=mlx5_0 gpu:1=mlx5_3 gpu:2=mlx5_4 gpu:3=mlx5_5 gpu:4=mlx5_6 gpu:5=mlx5_7 gpu:6=mlx5_8 gpu:7=mlx5_9"},
		{name: "a GPU's index is not its NIC's", fixture: "hgx-h20-8nic",
			want: "gpu:0=mlx5_1 gpu:1=mlx5_2 gpu:2=mlx5_3 gpu:3=mlx5_4 gpu:4=mlx5_5 gpu:5=mlx5_6 gpu:6=mlx5_7 gpu:7=mlx5_8"},
		{name: "all GPUs take the same NIC where all are alike", fixture: "vm-flat",
			want: "gpu:0=mlx5_0,mlx5_1 gpu:1=mlx5_2,mlx5_3 gpu:2=mlx5_4,mlx5_5 gpu:3=mlx5_6,mlx5_7"},
		{name: "a NIC is down", fixture: "dgx-h100-port-down",
			want: "gpu:0=mlx5_0 gpu:1=mlx5_3 gpu:2=mlx5_4 gpu:3=mlx5_5 gpu:4=mlx5_9 gpu:5=mlx5_9 gpu:6=mlx5_10 gpu:7=mlx5_11"},
		{name: "four NICs for eight GPUs, RoCE for storage", fixture: "h20-4ib-1roce", counts: []int{2, 2, 2, 2}},
		{name: "two NICs for eight GPUs", fixture: "h20-3e-8gpu-2nic", counts: []int{4, 4}},
		{name: "32 and more NICs for eight GPUs", fixture: "aws-p5-44nic-synthetic", counts: slices.Repeat([]int{1}, 44)},
		{name: "a PCI domain for each device", fixture: "gb200-tray", want: "gpu:0=mlx5_0 gpu:1=mlx5_1 gpu:2=mlx5_2 gpu:3=mlx5_3"},
		{name: "virtual functions", fixture: "sriov-pf-vf", want: "gpu:0=mlx5_0 gpu:1=mlx5_1"},
		{name: "both NICs on one socket", fixture: "l40-4gpu-2nic", want: "gpu:0=mlx5_0 gpu:1=mlx5_0 gpu:2=mlx5_1 gpu:3=mlx5_1"},
		{name: "no GPU: NUMA nodes share the NIC", fixture: "cpu-2eth", want: "cpu:0=ens5f0 cpu:1=ens5f0"},
		{name: "12 GPUs", roots: append(planRepeat(6, planRoot{numa: 0, gpus: 1, nics: 1}), planRepeat(6, planRoot{numa: 1, gpus: 1, nics: 1})...),
			want: "gpu:0=mlx5_0 gpu:1=mlx5_1 gpu:2=mlx5_2 gpu:3=mlx5_3 gpu:4=mlx5_4 gpu:5=mlx5_5 gpu:6=mlx5_6 gpu:7=mlx5_7 gpu:8=mlx5_8 gpu:9=mlx5_9 gpu:10=mlx5_10 gpu:11=mlx5_11"},
		{name: "16 GPUs share 8 NICs", roots: append(planRepeat(4, planRoot{numa: 0, gpus: 2, nics: 1}), planRepeat(4, planRoot{numa: 1, gpus: 2, nics: 1})...),
			want: "gpu:0=mlx5_0 gpu:1=mlx5_0 gpu:2=mlx5_1 gpu:3=mlx5_1 gpu:4=mlx5_2 gpu:5=mlx5_2 gpu:6=mlx5_3 gpu:7=mlx5_3 " +
				"gpu:8=mlx5_4 gpu:9=mlx5_4 gpu:10=mlx5_5 gpu:11=mlx5_5 gpu:12=mlx5_6 gpu:13=mlx5_6 gpu:14=mlx5_7 gpu:15=mlx5_7"},
		{name: "a GPU between two groups that are full", roots: []planRoot{{gpus: 3, nics: 2}, {numa: 1, gpus: 1, nics: 2}},
			want: "gpu:0=mlx5_0 gpu:1=mlx5_1 gpu:2=mlx5_2 gpu:3=mlx5_3"},
		{name: "asymmetric sockets: as few as can be cross", roots: []planRoot{{gpus: 4}, {nics: 3}, {numa: 1, gpus: 4}, {numa: 1, nics: 1}},
			want: "gpu:0=mlx5_0 gpu:1=mlx5_0 gpu:2=mlx5_1 gpu:3=mlx5_1 gpu:4=mlx5_2 gpu:5=mlx5_2 gpu:6=mlx5_3 gpu:7=mlx5_3"},
		{name: "all NICs on one socket, more than GPUs", roots: []planRoot{{gpus: 1, nics: 1}, {nics: 3}, {numa: 1, gpus: 1}},
			want: "gpu:0=mlx5_0,mlx5_1 gpu:1=mlx5_2,mlx5_3"},
		{name: "of two good and two bad NICs everybody gets one each", roots: []planRoot{{gpus: 2}, {nics: 2}, {numa: 1, nics: 1, dual: true}},
			want: "gpu:0=mlx5_0,mlx5_2 gpu:1=mlx5_1,mlx5_3"},
		{name: "of two fast and two slow ones too", roots: []planRoot{{gpus: 2}, {nics: 2}, {nics: 2, nic: "connectx6, layer: ib"}},
			want: "gpu:0=mlx5_0,mlx5_2 gpu:1=mlx5_1,mlx5_3"},
		{name: "the ports of a card stay together", roots: []planRoot{{gpus: 2}, {nics: 2, dual: true}}, want: "gpu:0=mlx5_0,mlx5_1 gpu:1=mlx5_2,mlx5_3"},
		{name: "and where the numbers do not divide", roots: []planRoot{{gpus: 3}, {nics: 2, dual: true}}, want: "gpu:0=mlx5_0,mlx5_1 gpu:1=mlx5_2 gpu:2=mlx5_3"},
		{name: "but balance comes first", roots: []planRoot{{gpus: 2}, {nics: 1, dual: true}}, want: "gpu:0=mlx5_0 gpu:1=mlx5_1"},
		{name: "a NIC of twice the rate carries twice the GPUs", roots: []planRoot{{gpus: 6}, {nics: 1}, {nics: 1, nic: "connectx6, layer: ib"}},
			want: "gpu:0=mlx5_0 gpu:1=mlx5_0 gpu:2=mlx5_0 gpu:3=mlx5_0 gpu:4=mlx5_1 gpu:5=mlx5_1"},
		{name: "fewer links on the way decide between equals", roots: []planRoot{{gpus: 3}, {nics: 1}, {nics: 1, direct: true}},
			want: "gpu:0=mlx5_0 gpu:1=mlx5_1 gpu:2=mlx5_1"},
		{name: "fewer GPUs than the rates would give: none is idle", roots: []planRoot{{gpus: 2}, {nics: 1}, {nics: 1, nic: "connectx6, layer: ib, gbps: 100"}},
			want: "gpu:0=mlx5_0 gpu:1=mlx5_1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var top *topo.Topology
			if tt.fixture != "" {
				top = fixturetest.Topology(t, tt.fixture)
			} else {
				top = planSpec(t, tt.roots)
			}
			h := prepare(t, top, pathsel.Options{})
			p := planOf(t, h, nil)
			checkPlan(t, h, p)
			if got := planGiven(p); tt.want != "" && got != tt.want {
				t.Errorf("got  %s\nwant %s\n%s", got, tt.want, p.Text())
			}
			if got := planCounts(p); tt.counts != nil && !slices.Equal(got, tt.counts) {
				t.Errorf("consumers of each port %v, want %v", got, tt.counts)
			}
		})
	}
}

// On a host whose switches are all alike, every consumer stays below its own
// switch, and neither consumers nor ports differ by more than one.
func TestPlanOfSymmetricTrees(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		switches := rapid.IntRange(1, 3).Draw(rt, "switches per socket")
		r := planRoot{gpus: rapid.IntRange(1, 4).Draw(rt, "GPUs per switch"), nics: rapid.IntRange(1, 4).Draw(rt, "NICs per switch")}
		other := r
		other.numa = 1
		h := prepare(t, planSpec(t, append(planRepeat(switches, r), planRepeat(switches, other)...)), pathsel.Options{})
		p := planOf(t, h, nil)
		checkPlan(t, h, p)
		if c := planCounts(p); slices.Max(c)-slices.Min(c) > 1 {
			rt.Fatalf("consumers of each port: %v", c)
		}
		last := -1
		for i, a := range p.Assignments {
			for _, c := range a.Ports {
				port, _ := h.Port(c.Port)
				var nic int
				if _, err := fmt.Sscanf(port.Name, "mlx5_%d", &nic); err != nil {
					rt.Fatal(err)
				}
				if nic/r.nics != i/r.gpus || nic < last || c.Class.Kind != topo.ClassPIX {
					rt.Fatalf("%s has %s (%s)\n%s", a.Consumer, c.Name, c.Class, p.Text())
				}
				last = nic
			}
		}
	})
}

// Any host, any consumers: a plan keeps its promises and does not depend on the
// order of what it was given, neither of the consumers nor of the devices.
func TestPlanProperties(t *testing.T) {
	tops := machines(t)
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(fixtures.Names()).Draw(rt, "machine")
		top := tops[name]
		if top == nil {
			return
		}
		h := prepare(t, top, pathsel.Options{Overlay: measured(rt, top)})
		var consumers []pathsel.Consumer
		for i := range rapid.IntRange(1, 20).Draw(rt, "consumers") {
			l := rapid.SampledFrom(h.Locations()).Draw(rt, "location")
			consumers = append(consumers, pathsel.Consumer{Name: fmt.Sprint("c", i), Location: l})
		}
		p := planOf(t, h, consumers)
		if len(p.Ports) > 0 {
			n, g := len(p.Ports), len(consumers)
			for _, a := range p.Assignments {
				if len(a.Ports) < max(1, n/g) || len(a.Ports) > max(1, (n+g-1)/g) {
					rt.Fatalf("%s has %d of %d ports among %d", a.Consumer, len(a.Ports), n, g)
				}
			}
			if slices.Min(planCounts(p)) < 1 {
				rt.Fatalf("idle: %v", planCounts(p))
			}
			checkPlanRates(t, h, p)
		}
		q := planOf(t, h, rapid.Permutation(consumers).Draw(rt, "order"))
		for _, c := range consumers {
			a, _ := p.Of(c.Name)
			b, ok := q.Of(c.Name)
			if !ok || cmp.Diff(a, b, cmp.AllowUnexported(pathsel.Candidate{})) != "" {
				rt.Fatalf("%s: %+v in one order, %+v in another", c.Name, a, b)
			}
		}
		if cmp.Diff(p.Ports, q.Ports) != "" || cmp.Diff(p.Bottleneck, q.Bottleneck) != "" {
			rt.Fatalf("%s: another order, another plan", name)
		}
	})
}

// Engines that know only their local rank take disjoint sets of ports.
func TestPlanByLocalRank(t *testing.T) {
	for _, tt := range []struct {
		fixture string
		size    int
		gpus    []int
		want    string
	}{
		{"dgx-h100", 8, nil, "rank 0=mlx5_0 rank 1=mlx5_3 rank 2=mlx5_4 rank 3=mlx5_5 rank 4=mlx5_6 rank 5=mlx5_9 rank 6=mlx5_10 rank 7=mlx5_11"},
		// Both on one socket: each gets two of its NICs and two of the other's.
		{"dgx-h100", 2, nil, "rank 0=mlx5_0,mlx5_4,mlx5_6,mlx5_9 rank 1=mlx5_3,mlx5_5,mlx5_10,mlx5_11"},
		{"dgx-h100", 2, []int{4, 0}, "rank 0=mlx5_6,mlx5_9,mlx5_10,mlx5_11 rank 1=mlx5_0,mlx5_3,mlx5_4,mlx5_5"},
		{"b300-16nic", 4, []int{7, 6, 5, 4}, "rank 0=mlx5_14,mlx5_15,mlx5_6,mlx5_7 rank 1=mlx5_12,mlx5_13,mlx5_4,mlx5_5 " +
			"rank 2=mlx5_10,mlx5_11,mlx5_2,mlx5_3 rank 3=mlx5_8,mlx5_9,mlx5_0,mlx5_1"},
		{"vm-flat", 4, nil, "rank 0=mlx5_0,mlx5_1 rank 1=mlx5_2,mlx5_3 rank 2=mlx5_4,mlx5_5 rank 3=mlx5_6,mlx5_7"},
		{"cpu-2eth", 3, nil, "rank 0=ens5f0 rank 1=ens5f0 rank 2=ens5f0"},
		// More ranks than GPUs: processes without GPU, on the NUMA nodes in turn.
		{"a10-2nic", 4, nil, "rank 0=mlx5_0 rank 1=mlx5_1 rank 2=mlx5_0 rank 3=mlx5_1"},
	} {
		t.Run(fmt.Sprint(tt.fixture, " ", tt.size, tt.gpus), func(t *testing.T) {
			h := fixture(t, tt.fixture)
			ranks, err := h.Ranks(tt.size, tt.gpus...)
			if err != nil {
				t.Fatal(err)
			}
			p := planOf(t, h, ranks)
			if got := planGiven(p); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			checkPlan(t, h, p)
			a, ok := p.Of(fmt.Sprint("rank ", tt.size-1))
			if !ok || a.Location != ranks[tt.size-1].Location {
				t.Errorf("last rank: %+v", a)
			}
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	h := fixture(t, "a10-2nic")
	for _, tt := range []struct {
		consumers []pathsel.Consumer
		want      string
	}{
		{[]pathsel.Consumer{{Location: "gpu:7"}}, "no memory location"},
		{[]pathsel.Consumer{{Location: "gpu:0"}, {Location: "gpu:0"}}, "given twice"},
		{[]pathsel.Consumer{{"x", "gpu:0"}, {"x", "gpu:1"}}, "given twice"},
		{make([]pathsel.Consumer, 513), "at most 512"},
	} {
		if _, err := h.Plan(tt.consumers); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.consumers[:1], err, tt.want)
		}
	}
	for _, tt := range []struct {
		size int
		gpus []int
		want string
	}{{0, nil, "want 1 to 512"}, {-1, nil, "want 1 to 512"}, {1 << 40, nil, "want 1 to 512"}, {2, []int{1}, "want one for each"}, {2, []int{0, 2}, "this host has 2"}, {1, []int{-1}, "this host has 2"}} {
		if _, err := h.Ranks(tt.size, tt.gpus...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d %v: %v, want %q", tt.size, tt.gpus, err, tt.want)
		}
	}
	if _, ok := planOf(t, h, nil).Of("rank 0"); ok {
		t.Error("the plan has a consumer that nobody gave")
	}
	empty := &topo.Topology{}
	empty.Derive()
	none := prepare(t, empty, pathsel.Options{})
	if _, err := none.Plan(nil); err == nil || !strings.Contains(err.Error(), "no GPU and no NUMA node") {
		t.Errorf("a host of nothing: %v", err)
	}
	if _, err := none.Ranks(1); err == nil || !strings.Contains(err.Error(), "no known NUMA node") {
		t.Errorf("ranks on a host of nothing: %v", err)
	}
}

// A host without a port that can be used still has a plan, and it says so.
func TestPlanWithoutPorts(t *testing.T) {
	top := fixturetest.Spec(t, "machine: down\ndescription: every port is down\nbase: a10-2nic\npatches:\n- {set: sys/class/infiniband/*/ports/*/state, to: \"1: DOWN\"}\n- {set: sys/class/net/*/operstate, to: down}\n")
	p := planOf(t, prepare(t, top, pathsel.Options{Transport: pathsel.RDMA}), nil)
	if len(p.Ports) != 0 || len(p.Rejected) == 0 || len(p.Assignments) != 2 || len(p.Assignments[0].Ports) != 0 || p.Bottleneck != nil {
		t.Errorf("%+v", p)
	}
	if text := p.Text(); !strings.Contains(text, "no data can leave") || !strings.Contains(text, "port-down") {
		t.Error(text)
	}
	if r := p.BytesPerSec; r == nil || *r != 0 || *p.Assignments[0].BytesPerSec != 0 {
		t.Errorf("all ports are down and carry %v", r)
	}
	unknown := planOf(t, prepare(t, planSpec(t, []planRoot{{gpus: 1}}), pathsel.Options{}), nil)
	if unknown.BytesPerSec != nil || unknown.Assignments[0].BytesPerSec != nil || !strings.Contains(unknown.Text(), "no port is known") {
		t.Errorf("nothing is known of ports, and the plan says %s", unknown.Text())
	}
}

// What bounds the whole: a link that several share, or each its own.
func TestPlanBottleneck(t *testing.T) {
	for _, tt := range []struct {
		fixture   string
		link      topo.LinkID
		consumers []string
		slowest   topo.Rate
		basis     topo.Basis
	}{
		{"dgx-h100-nic-gen1", "pcie:0000:4f:00.0", []string{"gpu:2"}, topo.PCIeRate(2500, 16), topo.BasisRead},
		{"dgx-h100-gpu2-x8", "pcie:0000:52:00.0", []string{"gpu:2"}, topo.PCIeRate(32000, 8), topo.BasisRead},
		{"dgx-h100-port-down", "port:mlx5_9/1", []string{"gpu:4", "gpu:5"}, 25 * gb, topo.BasisBound},
		{"v100-8gpu", "pcie:0000:1c:00.0", []string{"gpu:0", "gpu:1"}, topo.PCIeRate(8000, 16) / 2, topo.BasisRead},
		{"h100-nvl-8gpu-2nic", "smp:0/1", []string{"gpu:4", "gpu:5", "gpu:6", "gpu:7"}, 4 * gb, topo.BasisTypical},
	} {
		b := planOf(t, fixture(t, tt.fixture), nil).Bottleneck
		if b == nil || b.Link != tt.link || !slices.Equal(b.Consumers, tt.consumers) || b.SlowestBytesPerSec != tt.slowest || b.Basis != tt.basis {
			t.Errorf("%s: %+v, want %s with %v at %d (%s)", tt.fixture, b, tt.link, tt.consumers, tt.slowest, tt.basis)
		}
	}
}

// A consumer whose own link is full is held by that, however slow one of its
// ports is.
func TestPlanLimitOfAConsumer(t *testing.T) {
	h := fixture(t, "dgx-h100")
	for l, want := range map[pathsel.Location]topo.LinkID{"gpu:0": "pcie:0000:1b:00.0", "cpu:0": "smp:0/1"} {
		p := planOf(t, h, []pathsel.Consumer{{"a", l}, {"b", l}})
		for _, a := range p.Assignments {
			if a.Limit != want || p.Bottleneck.Link != want {
				t.Errorf("%s of %s: limit %s, want %s\n%s", a.Consumer, l, a.Limit, want, p.Text())
			}
		}
	}
}

// A consumer whose own port is broken is told so; one that has another as near
// has nothing to be told.
func TestPlanNamesTheBrokenPort(t *testing.T) {
	for machine, want := range map[string]string{
		"machine: a\ndescription: the only near one\nbase: dgx-h100\npatches:\n- {change: 0000:9a:00.0, state: down}\n":                          "gpu:4: mlx5_6 (PXB) is nearer",
		"machine: b\ndescription: one of two\nbase: b300-16nic\npatches:\n- {set: sys/class/infiniband/mlx5_1/ports/1/state, to: \"1: DOWN\"}\n": "",
	} {
		p := planOf(t, prepare(t, fixturetest.Spec(t, machine), pathsel.Options{}), nil)
		got := ""
		for _, a := range p.Assignments {
			for _, c := range a.Ports {
				for _, n := range c.Notes {
					got += a.Consumer + ": " + n.Text
				}
			}
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) || strings.Count(got, "gpu:") > 1 || len(p.Rejected) == 0 {
			t.Errorf("%s: %q, want %q\n%s", machine, got, want, p.Text())
		}
	}
}

// What is not known for sure gets the smaller part: a port whose state nobody
// tells, and one whose place in the host is unknown.
func TestPlanOfUncertainPorts(t *testing.T) {
	for name, change := range map[string]func(*topo.Topology){
		"none":  func(*topo.Topology) {},
		"state": func(top *topo.Topology) { top.Ports[0].State = "" },
		"place": func(top *topo.Topology) { top.RDMADevices[0].PCI, top.RDMADevices[0].NUMA = "", nil },
	} {
		// The NICs are far from the GPUs, so that the unknown would win if it counted as near.
		top := planSpec(t, []planRoot{{gpus: 3}, {numa: 1, nics: 2}})
		change(top)
		top.Derive()
		want := []int{1, 2}
		if name == "none" {
			want = []int{2, 1}
		}
		p := planOf(t, prepare(t, top, pathsel.Options{}), nil)
		if got := planCounts(p); !slices.Equal(got, want) {
			t.Errorf("%s: consumers of each port %v, want %v\n%s", name, got, want, p.Text())
		}
	}
}

// Noise in measurements sends nobody to a farther port; a port that was
// measured to be slow gets fewer consumers.
func TestPlanAfterMeasurement(t *testing.T) {
	near := planSpec(t, []planRoot{{gpus: 3, nics: 1, direct: true}, {nics: 1, direct: true}})
	noise := topo.Overlay{"port:mlx5_0/1": 48 * gb, "port:mlx5_1/1": 49 * gb}
	for _, overlay := range []topo.Overlay{nil, noise} {
		if got := planCounts(planOf(t, prepare(t, near, pathsel.Options{Overlay: overlay}), nil)); !slices.Equal(got, []int{2, 1}) {
			t.Errorf("%v: consumers of each port %v, want two at the near one", overlay, got)
		}
	}
	top := planSpec(t, []planRoot{{gpus: 4}, {nics: 3}})
	dead := topo.Overlay{"port:mlx5_0/1": 0, "port:mlx5_2/1": 0}
	if got := planCounts(planOf(t, prepare(t, top, pathsel.Options{Overlay: dead}), nil)); !slices.Equal(got, []int{4}) {
		t.Errorf("consumers of each port %v, want all four at the only one that carries anything", got)
	}
	slow := topo.Overlay{"port:mlx5_0/1": 20 * gb, "port:mlx5_1/1": 20 * gb}
	if got := planCounts(planOf(t, prepare(t, top, pathsel.Options{Overlay: slow}), nil)); !slices.Equal(got, []int{1, 1, 2}) {
		t.Errorf("consumers of each port %v, want the third to have two", got)
	}
}

func TestPlanDocument(t *testing.T) {
	data, err := json.Marshal(planOf(t, fixture(t, "a10-2nic"), nil))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(data), `{"schema":"topoctl.plan/v1","assignments":[{"consumer":"gpu:0"`) {
		t.Errorf("%.200s", data)
	}
	var again pathsel.Plan
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if twice, err := json.Marshal(&again); err != nil || string(twice) != string(data) {
		t.Errorf("%v: read and written again it differs:\n%s\n%s", err, data, twice)
	}
	// Nothing known is null, nothing there is an empty list.
	top := planSpec(t, []planRoot{{gpus: 1, nics: 1}})
	for i := range top.Links {
		top.Links[i].BytesPerSec = nil
	}
	if data, err = json.Marshal(planOf(t, prepare(t, top, pathsel.Options{}), nil)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"bytes_per_sec":null,"basis":"unknown","bottleneck":null`, `"rejected":[]`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in %s", want, data)
		}
	}
}

// Every plan is what the published schema says, and has no field that it does
// not name.
func TestPlanSchema(t *testing.T) {
	text, err := os.ReadFile("schema/plan.v1.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	strict := bytes.ReplaceAll(text, []byte(`"type": "object"`), []byte(`"type": "object", "additionalProperties": false`))
	schema := schematest.Compile(t, strict)
	for _, name := range fixtures.Names() {
		data, err := json.Marshal(planOf(t, fixture(t, name), nil))
		if err == nil {
			err = schema.Validate(data)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if schema.Validate(bytes.Replace(data, []byte(`"verdict":"`), []byte(`"verdict":"very`), 1)) == nil {
			t.Errorf("%s: the schema takes a verdict that does not exist", name)
		}
	}
}

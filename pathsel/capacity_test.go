package pathsel_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

const gb = topo.GBPerSec

// ids are the ports of the given NICs, each with one port.
func ids(nics ...string) []topo.ID {
	out := make([]topo.ID, 0, len(nics))
	for _, n := range nics {
		out = append(out, topo.ID("port:"+n+"/1"))
	}
	return out
}

// rates are shares in GB/s, rounded down.
func rates(c *pathsel.Capacity) []int {
	out := make([]int, 0, len(c.Shares))
	for _, s := range c.Shares {
		out = append(out, int(*s.BytesPerSec/gb))
	}
	return out
}

func TestJointCapacity(t *testing.T) {
	for _, tt := range []struct {
		name, fixture string
		location      pathsel.Location
		ports         []topo.ID
		want          []int // GB/s
		limit         topo.LinkID
	}{
		{"one NIC: its wire", "dgx-h100", "gpu:0", ids("mlx5_0"), []int{50}, "port:mlx5_0/1"},
		{"two NICs: the GPU's own link is shared", "dgx-h100", "gpu:0", ids("mlx5_0", "mlx5_3"), []int{31, 31}, "pcie:0000:1b:00.0"},
		{"a GPU at x8", "dgx-h100-gpu2-x8", "gpu:2", ids("mlx5_4"), []int{31}, "pcie:0000:52:00.0"},
		{"a slow NIC leaves its part to the fast one", "dgx-h100-nic-gen1", "cpu:0", ids("mlx5_4", "mlx5_3"), []int{4, 50}, "pcie:0000:4f:00.0"},
		{"host memory: every wire of the socket", "dgx-h100", "cpu:0", ids("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5"), []int{50, 50, 50, 50}, "port:mlx5_0/1"},
		{"the other socket: one link between sockets", "dgx-h100", "cpu:0", ids("mlx5_6", "mlx5_9"), []int{11, 11}, "smp:0/1"},
		{"two NICs behind one switch uplink count once", "dgx-a100", "cpu:3", ids("mlx5_0", "mlx5_1"), []int{15, 15}, "pcie:0000:01:00.0"},
		{"two ports of one card share its slot", "h20-3e-8gpu-2nic at x8", "cpu:0", ids("mlx5_0", "mlx5_1"), []int{15, 15}, "pcie:0000:19:00.0"},
		{"a port that is down adds nothing", "dgx-h100-port-down", "cpu:1", ids("mlx5_6", "mlx5_9"), []int{0, 50}, "port:mlx5_6/1"},
		{"a virtual function adds nothing to its physical one", "sriov-pf-vf", "cpu:0", ids("mlx5_0", "mlx5_2", "mlx5_3"), []int{4, 4, 4}, "port:mlx5_0/1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var top *topo.Topology
			if base, narrow := strings.CutSuffix(tt.fixture, " at x8"); narrow {
				top = fixturetest.Spec(t, "machine: narrow\ndescription: a narrow slot\nbase: "+base+"\npatches:\n- {change: 0000:19:00.0, at: x8}\n")
			} else {
				top = fixturetest.Topology(t, tt.fixture)
			}
			c, err := prepare(t, top, pathsel.Options{}).Capacity(tt.location, tt.ports)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, rates(c)); diff != "" {
				t.Errorf("GB/s (-want +got)\n%s", diff)
			}
			if tt.limit != "" && c.Shares[0].Limit != tt.limit {
				t.Errorf("limit %s, want %s", c.Shares[0].Limit, tt.limit)
			}
		})
	}
}

// What was measured replaces what is expected, and an unknown root complex
// counts once it was measured.
func TestCapacityUsesMeasurements(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	for _, tt := range []struct {
		name    string
		overlay topo.Overlay
		ports   []topo.ID
		want    []int
		basis   topo.Basis
	}{
		{"nothing measured", nil, ids("mlx5_3"), []int{50}, topo.BasisBound},
		{"a root complex that passes 9 GB/s", topo.Overlay{"rc:0000:15": 9 * gb, "rc:0000:3d": 20 * gb}, ids("mlx5_3"), []int{9}, topo.BasisMeasured},
		{"a wire that carries 48", topo.Overlay{"port:mlx5_0/1": 48 * gb}, ids("mlx5_0"), []int{48}, topo.BasisMeasured},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := prepare(t, top, pathsel.Options{Overlay: tt.overlay}).Capacity("gpu:0", tt.ports)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, rates(c)); diff != "" || c.Basis != tt.basis {
				t.Errorf("basis %s, want %s; GB/s (-want +got)\n%s", c.Basis, tt.basis, diff)
			}
		})
	}
}

func TestCapacityRefuses(t *testing.T) {
	h := fixture(t, "a10-2nic")
	for _, tt := range []struct {
		location pathsel.Location
		ports    []topo.ID
		want     string
	}{
		{"gpu:9", ids("mlx5_0"), "no memory location"},
		{"gpu:0", ids("mlx5_9"), "no port of this host"},
		{"gpu:0", ids("mlx5_0", "mlx5_0"), "given twice"},
	} {
		if _, err := h.Capacity(tt.location, tt.ports); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %v: %v", tt.location, tt.ports, err)
		}
	}
}

// machines are the fixtures that properties are tried on, discovered once.
func machines(t *testing.T) map[string]*topo.Topology {
	out := map[string]*topo.Topology{}
	for _, name := range fixtures.Names() {
		if name != "nvl72-synthetic" {
			out[name] = fixturetest.Topology(t, name)
		}
	}
	return out
}

// measured draws an overlay that gives some links a rate.
func measured(t *rapid.T, top *topo.Topology) topo.Overlay {
	o := topo.Overlay{}
	for i := range top.Links {
		if l := &top.Links[i]; rapid.IntRange(0, 3).Draw(t, "measured") == 0 {
			o[l.ID] = topo.Rate(rapid.IntRange(0, 64).Draw(t, "GB/s")) * gb
		}
	}
	return o
}

func subset(t *rapid.T, all []topo.ID) []topo.ID {
	var out []topo.ID
	for _, id := range all {
		if rapid.Bool().Draw(t, "in") {
			out = append(out, id)
		}
	}
	return out
}

// Whatever links were measured: a NIC less never carries more, the order of
// NICs does not matter, and no cut is exceeded: neither a single link of the
// routes nor the sum of what each NIC carries alone.
func TestCapacityProperties(t *testing.T) {
	tops := machines(t)
	names := fixtures.Names()
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(names).Draw(rt, "machine")
		top := tops[name]
		if top == nil {
			return
		}
		overlay := measured(rt, top)
		h, err := pathsel.New(top, pathsel.Options{Overlay: overlay})
		if err != nil {
			rt.Fatal(err)
		}
		var all []topo.ID
		for _, p := range h.Ports() {
			all = append(all, p.ID)
		}
		loc := rapid.SampledFrom(h.Locations()).Draw(rt, "location")
		set := subset(rt, all)
		whole, err := h.Capacity(loc, set)
		if err != nil {
			rt.Fatal(err)
		}
		g := topo.NewGraph(top, overlay)
		checkAlone(rt, h, g, loc, whole)
		checkOwnLink(rt, g, top, loc, whole)
		checkOrder(rt, h, loc, set, whole)
		for i := range set {
			less, err := h.Capacity(loc, slices.Delete(slices.Clone(set), i, i+1))
			if err != nil {
				rt.Fatal(err)
			}
			if whole.BytesPerSec != nil && less.BytesPerSec != nil && *less.BytesPerSec > *whole.BytesPerSec+topo.Rate(len(set)) {
				rt.Fatalf("%s %s: %d without %s, %d with it", name, loc, *less.BytesPerSec, set[i], *whole.BytesPerSec)
			}
		}
	})
}

// checkAlone: a NIC's share is never more than what it carries alone, and unknown only if that is,
// or if others may share a wire of unknown rate.
func checkAlone(t *rapid.T, h *pathsel.Host, g *topo.Graph, loc pathsel.Location, c *pathsel.Capacity) {
	unknownWire := slices.ContainsFunc(h.Ports(), func(p pathsel.Port) bool {
		l, ok := g.Link(topo.LinkID(p.ID))
		return !ok || l.BytesPerSec == nil
	})
	for _, s := range c.Shares {
		alone, err := h.Capacity(loc, []topo.ID{s.Port})
		if err != nil {
			t.Fatal(err)
		}
		if s.BytesPerSec == nil {
			if alone.BytesPerSec != nil && (!unknownWire || len(c.Shares) == 1) {
				t.Fatalf("%s: known alone, unknown together", s.Port)
			}
			continue
		}
		if alone.BytesPerSec != nil && *s.BytesPerSec > *alone.BytesPerSec {
			t.Fatalf("%s: %d alone, %d together", s.Port, *alone.BytesPerSec, *s.BytesPerSec)
		}
	}
}

// checkOwnLink: all of a GPU's traffic crosses its own link, which is that to its CPU where it has C2C.
func checkOwnLink(t *rapid.T, g *topo.Graph, top *topo.Topology, loc pathsel.Location, c *pathsel.Capacity) {
	for i := range top.GPUs {
		gpu := &top.GPUs[i]
		if gpu.ID != loc.Node() || gpu.BDF == nil || c.BytesPerSec == nil {
			continue
		}
		l, ok := g.Link(topo.C2CLinkID(gpu.ID))
		if !ok {
			l, ok = g.Link(topo.PCIeLinkID(*gpu.BDF))
		}
		if ok && l.BytesPerSec != nil && *c.BytesPerSec > *l.BytesPerSec {
			t.Fatalf("%s: %d together, its own link has %d", loc, *c.BytesPerSec, *l.BytesPerSec)
		}
	}
}

func checkOrder(t *rapid.T, h *pathsel.Host, loc pathsel.Location, set []topo.ID, want *pathsel.Capacity) {
	shuffled := rapid.Permutation(set).Draw(t, "order")
	got, err := h.Capacity(loc, shuffled)
	if err != nil {
		t.Fatal(err)
	}
	share := map[topo.ID]topo.Rate{}
	for _, s := range got.Shares {
		if s.BytesPerSec != nil {
			share[s.Port] = *s.BytesPerSec
		}
	}
	for _, s := range want.Shares {
		if s.BytesPerSec != nil && share[s.Port] != *s.BytesPerSec {
			t.Fatalf("%s: %d in one order, %d in another", s.Port, *s.BytesPerSec, share[s.Port])
		}
	}
}

// The order in which a host's devices are listed never changes a decision: neither on ports, nor on
// plans, nor on the lanes to another host.
func TestInputOrderDoesNotMatter(t *testing.T) {
	for name, top := range machines(t) {
		other := prepare(t, otherHost(fixturetest.Topology(t, name)), pathsel.Options{})
		decisions := func(top *topo.Topology) string {
			h := prepare(t, top, pathsel.Options{})
			lanes, err := json.Marshal(laneSet(t, other, h, "cpu:0", "cpu:0", pathsel.PairOptions{}))
			if err != nil {
				t.Fatal(err)
			}
			return digest(t, h) + planOf(t, h, nil).Text() + string(lanes)
		}
		r := rand.New(rand.NewPCG(1, 2))
		shuffled := *top
		shuffled.Links = shuffle(r, top.Links)
		shuffled.GPUs = shuffle(r, top.GPUs)
		shuffled.PCIDevices = shuffle(r, top.PCIDevices)
		shuffled.RDMADevices = shuffle(r, top.RDMADevices)
		shuffled.Ports = shuffle(r, top.Ports)
		shuffled.Netdevs = shuffle(r, top.Netdevs)
		shuffled.NUMANodes = shuffle(r, top.NUMANodes)
		shuffled.Derive()
		if diff := cmp.Diff(decisions(top), decisions(&shuffled)); diff != "" {
			t.Errorf("%s (-as listed +shuffled)\n%s", name, diff)
		}
	}
}

func shuffle[T any](r *rand.Rand, list []T) []T {
	out := slices.Clone(list)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Lists for 8 GPUs, 16 NICs and 2 NUMA nodes: the goal is under 1 ms.
func BenchmarkAffinity(b *testing.B) {
	top := fixturetest.Topology(b, "b300-16nic")
	b.Run("prepare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := pathsel.New(top, pathsel.Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	h := prepare(b, top, pathsel.Options{})
	b.Run("all-locations", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, l := range h.Locations() {
				if _, err := h.Affinity(l, nil); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

package sim

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// pairOf is two hosts of a kind whose ports all have a leaf of their own beside
// the peer's, so that only the hosts are in the way.
func pairOf(t testing.TB, k *Kind) *Cluster {
	t.Helper()
	f := &Fabric{}
	for i := range k.ports {
		if p := &k.ports[i]; p.PF == "" {
			for h := range 2 {
				f.Cables = append(f.Cables, Cable{Host: h, Port: p.ID, Leaf: f.Leaves, Rail: -1})
			}
			f.Leaves++
		}
	}
	return build(t, Spec{Hosts: named(2, k), Fabric: f})
}

// From every location of every machine: what several ports carry together in the
// simulator is what pathsel says, port by port, in both directions.
func TestHostsCarryWhatPathselSays(t *testing.T) {
	for _, name := range longtest.Sample(append(fixtures.Names(), fixtures.Captures()...), 12) {
		k := kind(t, name)
		c := pairOf(t, k)
		for _, loc := range k.Host().Locations() {
			a, err := k.Host().Affinity(loc, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, ports := range [][]topo.ID{a.Preferred(), append(a.Preferred(), a.Available()...), k.allPorts()} {
				want, err := k.Host().Capacity(loc, ports)
				if err != nil {
					t.Fatal(err)
				}
				for _, out := range []bool{true, false} {
					checkShares(t, c, name, loc, want, out)
				}
			}
		}
	}
}

func (k *Kind) allPorts() []topo.ID {
	var out []topo.ID
	for i := range k.ports {
		out = append(out, k.ports[i].ID)
	}
	return out
}

func checkShares(t *testing.T, c *Cluster, name string, loc pathsel.Location, want *pathsel.Capacity, out bool) {
	t.Helper()
	flows := make([]*Flow, 0, len(want.Shares))
	for _, s := range want.Shares {
		// The peer's end is the wire alone: it has the same rate.
		from, to := End{0, loc, s.Port}, End{1, "", s.Port}
		if !out {
			from, to = to, from
		}
		f, err := c.Move(Transfer{From: from, To: to, Bytes: Endless})
		if err != nil {
			t.Fatalf("%s %s %s: %v", name, loc, s.Port, err)
		}
		flows = append(flows, f)
	}
	for i, s := range want.Shares {
		got := flows[i].BytesPerSec()
		switch {
		case s.BytesPerSec == nil:
			if got != Unlimited {
				t.Errorf("%s %s %s: %d bytes/s, pathsel knows no rate", name, loc, s.Port, got)
			}
		case math.Abs(float64(got-*s.BytesPerSec)) > 2:
			t.Errorf("%s %s %s out %v: %d bytes/s, pathsel says %d", name, loc, s.Port, out, got, *s.BytesPerSec)
		case len(want.Shares) == 1 && got > 0: // which of equal ones it is does not matter
			a, _ := c.Rate(flows[i].limiter)
			if b, _ := c.Rate(c.firstLink(0) + Link(c.Kind(0).at[s.Limit])); a != b {
				t.Errorf("%s %s %s: limited by %d bytes/s, pathsel says %s with %d", name, loc, s.Port, a, s.Limit, b)
			}
		}
	}
	for _, f := range flows {
		f.Stop()
	}
}

// Ports of one leaf never cross a spine: in a rail-optimized fabric those of one
// rail, by host those of neighbours.
func TestPathsThroughFabrics(t *testing.T) {
	for _, tt := range []struct {
		name     string
		byHost   bool
		from, to int // places of the ports
		hosts    [2]int
		spine    bool
	}{
		{"rails: one rail", false, 3, 3, [2]int{0, 7}, false},
		{"rails: two rails", false, 3, 4, [2]int{0, 7}, true},
		{"by host: one leaf", true, 3, 4, [2]int{0, 1}, false},
		{"by host: two leaves", true, 3, 3, [2]int{0, 7}, true},
	} {
		c := dgx(t, 8, tt.byHost, nil, 0)
		ports := c.Kind(0).DataPorts()
		path, err := c.Path(End{tt.hosts[0], "gpu:0", ports[tt.from]}, End{tt.hosts[1], "gpu:0", ports[tt.to]}, 0)
		if err != nil {
			t.Fatal(err)
		}
		crossed := 0
		for _, l := range path {
			if _, _, _, _, ok := uplinks(c, l); ok {
				crossed++
			}
		}
		if crossed != map[bool]int{true: 2, false: 0}[tt.spine] {
			t.Errorf("%s: %d uplinks", tt.name, crossed)
		}
	}
}

// The way of a flow, link by link.
func TestWayOfAFlow(t *testing.T) {
	c := dgx(t, 2, false, func(s *Shape) { s.Spines = 1 }, 0)
	ports := c.Kind(0).DataPorts()
	path, err := c.Path(End{0, "gpu:0", ports[0]}, End{1, "gpu:1", ports[1]}, 0)
	if err != nil {
		t.Fatal(err)
	}
	k := c.Kind(0)
	var want []Link
	for _, x := range []struct {
		host int
		link topo.LinkID
		up   bool
	}{{0, "pcie:0000:1b:00.0", true}, {0, "pcie:0000:19:00.0", true}, {0, "pcie:0000:18:00.0", false}, {0, "port:mlx5_0/1", false},
		{-1, "", true}, {-1, "", false},
		{1, "port:mlx5_3/1", true}, {1, "pcie:0000:40:00.0", true}, {1, "pcie:0000:41:00.0", false}, {1, "pcie:0000:43:00.0", false}} {
		if x.host < 0 {
			l := path[len(want)]
			if leaf, spine, number, up, ok := uplinks(c, l); !ok || up != x.up || leaf != map[bool]int{true: 0, false: 1}[up] || spine != 0 || number != 0 {
				t.Errorf("link %d: leaf %d, spine %d, number %d, up %v, %v", l, leaf, spine, number, up, ok)
			}
			want = append(want, l)
			continue
		}
		l := c.firstLink(x.host) + Link(k.at[x.link])
		if x.up {
			l++
		}
		want = append(want, l)
	}
	if diff := cmp.Diff(want, path); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// With eight flows from each leaf over four spines of a fabric by host some collide:
// the sum falls below that of the same flows within rails, and the seed decides by how
// much.
func TestECMPCollides(t *testing.T) {
	sum := func(byHost bool, seed uint64) topo.Rate {
		c := dgx(t, 8, byHost, nil, seed)
		total := topo.Rate(0)
		var flows []*Flow
		for h := range 4 { // hosts of the first leaf to those of the second
			for i, p := range c.Kind(0).DataPorts() {
				f, err := c.Move(Transfer{From: End{h, "", p}, To: End{h + 4, "", p}, Bytes: Endless, Entropy: uint64(i)})
				if err != nil {
					t.Fatal(err)
				}
				flows = append(flows, f)
			}
		}
		for _, f := range flows {
			total += f.BytesPerSec()
		}
		return total
	}
	rails, one, two := sum(false, 1), sum(true, 1), sum(true, 2)
	if want := 32 * 50 * gb; rails != want {
		t.Errorf("within rails %d, want %d", rails, want)
	}
	if one == two || one > rails*9/10 || one < rails/3 {
		t.Errorf("by host %d and %d, within rails %d", one, two, rails)
	}
}

// An oversubscribed fabric carries its part of what the ports do.
func TestOversubscription(t *testing.T) {
	c := dgx(t, 8, true, func(s *Shape) { s.Spines, s.Oversubscription = 1, 2 }, 0)
	load := topo.Rate(0)
	var flows []*Flow
	for h := range 4 {
		for _, p := range c.Kind(0).DataPorts() {
			for e := range uint64(16) {
				f, err := c.Move(Transfer{From: End{h, "", p}, To: End{h + 4, "", p}, Bytes: Endless, Entropy: e})
				if err != nil {
					t.Fatal(err)
				}
				flows = append(flows, f)
			}
		}
	}
	for _, f := range flows {
		load += f.BytesPerSec()
	}
	if want := 16 * 50 * gb; load < want*98/100 || load > want {
		t.Errorf("%d bytes/s through uplinks of %d", load, want)
	}
}

// What pathsel is told of the fabric is what the simulator has: in a rail-only one
// there is no lane between rails, and no way either.
func TestRailOnly(t *testing.T) {
	c := dgx(t, 2, false, func(s *Shape) { s.Spines = 0 }, 0)
	pair, err := c.Pair(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	set, err := pair.Lanes("cpu:0", "cpu:0")
	if err != nil {
		t.Fatal(err)
	}
	lanes := map[[2]topo.ID]bool{}
	for i := range set.Lanes {
		lanes[[2]topo.ID{set.Lanes[i].Local, set.Lanes[i].Remote}] = true
	}
	for _, a := range c.Kind(0).DataPorts() {
		for _, b := range c.Kind(0).DataPorts() {
			_, err := c.Path(End{0, "cpu:0", a}, End{1, "cpu:0", b}, 0)
			if lane := lanes[[2]topo.ID{a, b}]; lane != (a == b) || lane != (err == nil) {
				t.Errorf("%s to %s: lane %v, way: %v", a, b, lane, err)
			}
		}
	}
}

// Memory to memory within a host goes by the graph's way.
func TestWithinAHost(t *testing.T) {
	k := kind(t, "dgx-h100")
	c := build(t, Spec{Hosts: named(1, k)})
	for _, tt := range []struct {
		from, to pathsel.Location
	}{{"cpu:0", "cpu:1"}, {"gpu:0", "gpu:7"}, {"gpu:0", "cpu:0"}, {"gpu:0", "cpu:1"}} {
		f, err := c.Move(Transfer{From: End{Location: tt.from}, To: End{Location: tt.to}, Bytes: Endless})
		if err != nil {
			t.Fatal(err)
		}
		want := k.Topology().Relate(tt.from.Node(), tt.to.Node()).BytesPerSec
		if want == nil || f.BytesPerSec() != *want {
			t.Errorf("%s to %s: %d bytes/s, want %v", tt.from, tt.to, f.BytesPerSec(), want)
		}
		f.Stop()
	}
}

func TestClusterRefuses(t *testing.T) {
	k := kind(t, "dgx-h100")
	port := k.DataPorts()[0]
	for _, tt := range []struct {
		s    Spec
		want string
	}{
		{Spec{}, "no hosts"},
		{Spec{Hosts: []HostSpec{{"a", nil}}}, "no kind"},
		{Spec{Hosts: []HostSpec{{"a", k}, {"a", k}}}, "name of its own"},
		{Spec{Hosts: named(1, k), Fabric: &Fabric{Leaves: 1, Cables: []Cable{{Host: 1}}}}, "there are 1"},
		{Spec{Hosts: named(1, k), Fabric: &Fabric{Leaves: 1, Cables: []Cable{{Port: port, Leaf: 1}}}}, "is on leaf 1"},
		{Spec{Hosts: named(1, k), Fabric: &Fabric{Leaves: 1, Cables: []Cable{{Port: "port:x/1"}}}}, "no port"},
		{Spec{Hosts: named(1, k), Fabric: &Fabric{Leaves: 1, Cables: []Cable{{Port: port}, {Port: port}}}}, "cabled twice"},
		{Spec{Hosts: named(1, k), Fabric: &Fabric{Leaves: 1, Spines: 1, Uplinks: []Uplink{{Links: 1<<20 + 1}}}}, "uplinks"},
		{Spec{Hosts: named(1, k), Fabric: &Fabric{Leaves: -1}}, "below 0"},
	} {
		if _, err := New(tt.s); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
	c := build(t, Spec{Hosts: named(2, k), Fabric: &Fabric{Leaves: 1, Cables: []Cable{{Port: port}}}})
	for _, tt := range []struct {
		t    Transfer
		want string
	}{
		{Transfer{From: End{Host: 7}}, "no host 7"},
		{Transfer{From: End{0, "cpu:0", port}, To: End{Host: 1, Location: "cpu:0"}}, "a port at both ends"},
		{Transfer{From: End{0, "cpu:0", ""}, To: End{1, "cpu:0", ""}}, "two hosts"},
		{Transfer{From: End{0, "cpu:0", port}, To: End{1, "cpu:0", port}}, "not cabled"},
		{Transfer{From: End{0, "cpu:9", port}, To: End{1, "cpu:0", port}}, "no memory location"},
		{Transfer{From: End{0, "cpu:0", "port:x/1"}, To: End{1, "cpu:0", port}}, "no port"},
		{Transfer{From: End{0, "cpu:0", ""}, To: End{0, "cpu:1", ""}}, "0 bytes"},
	} {
		if _, err := c.Move(tt.t); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}

// A port that is down carries nothing, for as long as one reason for it lasts, and the port is as it was afterwards.
func TestPortDown(t *testing.T) {
	c := dgx(t, 2, false, nil, 0)
	p := c.Kind(0).DataPorts()[0]
	f, err := c.Move(Transfer{From: End{0, "gpu:0", p}, To: End{1, "gpu:0", p}, Bytes: Endless})
	if err != nil {
		t.Fatal(err)
	}
	down(t, c, 1, []topo.ID{p}, second, 3*second)
	down(t, c, 1, []topo.ID{p}, 2*second, 4*second)
	for i, want := range []topo.Rate{50 * gb, 0, 0, 0, 50 * gb} {
		c.Run(int64(2*i+1) * second / 2)
		if got := f.BytesPerSec(); got != want || c.portIsDown(1, p) != (want == 0) {
			t.Errorf("%d bytes/s in second %d, want %d", got, i, want)
		}
	}
	c.Run(5 * second)
	if f.Moved() != 100e9 {
		t.Errorf("moved %d bytes", f.Moved())
	}
	for _, err := range []error{c.PortDown(1, p, second, second), c.PortDown(7, p, 0, 0), c.PortDown(0, "port:x/1", 0, 0)} {
		if err == nil {
			t.Error("taken")
		}
	}
}

// What File says is a fabric file, with the uplinks that links are named by.
func TestFileIsAFabricFile(t *testing.T) {
	k := kind(t, "dgx-h100")
	f := Shape{Hosts: 8, Ports: k.DataPorts(), Rate: 50 * gb, HostsPerGroup: 4, Spines: 2, Oversubscription: 2}.fabric(false)
	c := build(t, Spec{Hosts: named(8, k), Fabric: f})
	data, err := json.Marshal(c.File())
	if err != nil {
		t.Fatal(err)
	}
	back, err := pathsel.ParseFabric(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.File(), back); diff != "" {
		t.Errorf("(-written +read)\n%s", diff)
	}
	if n := len(back.Uplinks); n != 16*2 {
		t.Fatalf("%d uplinks, want one for each of 16 leaves and 2 spines", n)
	}
	last := back.Uplinks[len(back.Uplinks)-1]
	b := c.joined[[2]int{15, 1}]
	if rate, ok := c.Rate(b.up); !ok || last.Leaf != "leaf15" || last.Spine != "spine1" || last.BytesPerSec == nil || *last.BytesPerSec != rate || last.Count != b.links {
		t.Errorf("%+v, want what %d links of %d bytes/s are", last, b.links, rate)
	}
	f.Uplinks[0].BytesPerSec = 0
	if u := f.File(c.Names()).Uplinks; u[0].BytesPerSec != nil {
		t.Errorf("a rate that is not known became %d", *u[0].BytesPerSec)
	}
}

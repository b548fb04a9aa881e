package sim

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// An ordinary run tries the properties on fewer cases.
func TestMain(m *testing.M) { longtest.Main(m) }

const (
	gb          = topo.GBPerSec
	microsecond = int64(1000)
	millisecond = 1000 * microsecond
	second      = 1000 * millisecond
)

func kind(t testing.TB, name string) *Kind {
	t.Helper()
	k, err := NewKind(fixturetest.Topology(t, name), "")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// named are n hosts of a kind: n0, n1 and so on.
func named(n int, k *Kind) []HostSpec {
	out := make([]HostSpec, n)
	for i := range out {
		out[i] = HostSpec{fmt.Sprintf("n%d", i), k}
	}
	return out
}

func build(t testing.TB, s Spec) *Cluster {
	t.Helper()
	c, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Shape is a fabric of equal hosts with the rate of each port, and of its part of the uplinks.
type Shape struct {
	Hosts, Spines    int
	Ports            []topo.ID
	Rate             topo.Rate
	HostsPerGroup    int // 0: with rails all hosts, by host 4
	Oversubscription int // 0: none
}

// fabric cables port i of every host of a group to leaf i of the group, or all ports of a host, and of
// its neighbours, to one leaf.
func (s Shape) fabric(byHost bool) *Fabric {
	per, leaves := cmp.Or(s.HostsPerGroup, s.Hosts), len(s.Ports)
	if byHost {
		per, leaves = cmp.Or(s.HostsPerGroup, 4), 1
	}
	f := &Fabric{Spines: s.Spines, RailOnly: s.Spines == 0 && !byHost}
	for h := range s.Hosts {
		for p, id := range s.Ports {
			leaf := h/per*leaves + p%leaves
			f.Leaves = max(f.Leaves, leaf+1)
			f.Cables = append(f.Cables, Cable{Host: h, Port: id, Leaf: leaf, Rail: p, BytesPerSec: s.Rate})
		}
	}
	want := per * len(s.Ports) / leaves / max(s.Oversubscription, 1) // uplinks of the rate of a port
	for at := range f.Leaves * s.Spines {
		links := max(1, (2*want+s.Spines)/(2*s.Spines))
		f.Uplinks = append(f.Uplinks, Uplink{at / s.Spines, at % s.Spines, links, topo.Rate(want) * s.Rate / topo.Rate(s.Spines*links)})
	}
	return f
}

// dgx is a cluster of DGX H100 with eight data ports each.
func dgx(t testing.TB, hosts int, byHost bool, change func(*Shape), seed uint64) *Cluster {
	t.Helper()
	k := kind(t, "dgx-h100")
	s := Shape{Hosts: hosts, Ports: k.DataPorts(), Rate: 50 * gb, Spines: 4}
	if change != nil {
		change(&s)
	}
	return build(t, Spec{Hosts: named(hosts, k), Fabric: s.fabric(byHost), Seed: seed})
}

// down takes ports of a host down for a while.
func down(t testing.TB, c *Cluster, host int, ports []topo.ID, fromNS, untilNS int64) {
	t.Helper()
	for _, p := range ports {
		if err := c.PortDown(host, p, fromNS, untilNS); err != nil {
			t.Fatal(err)
		}
	}
}

// uplinks are the links of the fabric, by the leaf and the spine that they join, upwards and downwards.
func uplinks(c *Cluster, l Link) (leaf, spine, number int, up, ok bool) {
	for at, b := range c.joined {
		if n := int(l - b.up); n >= 0 && n < 2*b.links {
			return at[0], at[1], n % b.links, n < b.links, true
		}
	}
	return 0, 0, 0, false, false
}

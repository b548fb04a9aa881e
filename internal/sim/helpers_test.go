package sim

import (
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

// dgx is a cluster of DGX H100 with eight data ports each.
func dgx(t testing.TB, hosts int, byHost bool, change func(*Shape), seed uint64) *Cluster {
	t.Helper()
	k := kind(t, "dgx-h100")
	s := Shape{Hosts: hosts, Ports: k.DataPorts(), PortBytesPerSec: 50 * gb, Spines: 4}
	if change != nil {
		change(&s)
	}
	f, err := s.RailOptimized()
	if byHost {
		f, err = s.ByHost()
	}
	if err != nil {
		t.Fatal(err)
	}
	return build(t, Spec{Hosts: named(hosts, k), Fabric: f, Seed: seed})
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
	n := c.fabric.Leaves * c.fabric.Spines * c.stride
	if int(l) >= 2*n {
		return 0, 0, 0, false, false
	}
	at := int(l) % n
	return at / c.stride / c.fabric.Spines, at / c.stride % c.fabric.Spines, at % c.stride, int(l) < n, true
}

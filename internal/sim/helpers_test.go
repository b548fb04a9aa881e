package sim

import (
	"fmt"
	"strings"
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

func kind(t testing.TB, name string, o KindOptions) *Kind {
	t.Helper()
	k, err := NewKind(fixturetest.Topology(t, name), o)
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
func dgx(t testing.TB, hosts int, byHost bool, change func(*Shape), o Options) *Cluster {
	t.Helper()
	k := kind(t, "dgx-h100", KindOptions{})
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
	return build(t, Spec{Hosts: named(hosts, k), Fabric: f, Options: o})
}

// logTo writes events down.
func logTo(b *strings.Builder) func(Event) {
	return func(e Event) {
		fmt.Fprintf(b, "%d %s %d %d %d %s\n", e.AtNS, e.What, e.Flow, e.Link, e.BytesPerSec, e.Text)
	}
}

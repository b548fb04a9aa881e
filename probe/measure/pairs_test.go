package measure

import (
	"errors"
	"slices"
	"testing"

	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/plan"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// An agent without RDMA takes its own host to TCP, and the pairs say so; one that takes no part is named.
func TestPairsWithoutRDMA(t *testing.T) {
	top := fixturetest.Topology(t, "a10-2nic")
	both := []string{probe.RDMA, probe.TCP}
	known := []Agent{
		{Host: probe.Host{Name: "n1"}, Topology: top, Transports: both},
		{Host: probe.Host{Name: "gone", Error: "no answer"}},
		{Host: probe.Host{Name: "n2"}, Topology: top, Transports: []string{probe.TCP}, Unavailable: []string{"rdma: no device file"}},
		{Host: probe.Host{Name: "n3"}, Topology: top, Transports: both},
	}
	for transport, want := range map[pathsel.Transport]string{pathsel.Auto: probe.TCP, pathsel.RDMA: probe.RDMA} {
		f := &Fleet{pairs: plan.FabricOptions{Transport: transport}}
		for _, a := range known {
			if a.Error == "" {
				a.NoRDMA = a.noRDMA()
			}
			f.agents = append(f.agents, &agent{host: a})
		}
		pairs, err := f.Pairs(t.Context())
		if pairs == nil || err == nil || err.Error() != "gone does not take part: no answer" {
			t.Fatalf("%s: %v", transport, err)
		}
		for i := range pairs.Pairs {
			p, expected := &pairs.Pairs[i], probe.RDMA
			if p.From.Host == "n2" || p.To.Host == "n2" {
				expected = want
			}
			if p.Transport != expected {
				t.Errorf("%s: %s", transport, p.ID)
			}
		}
		note := probe.PartialNote + "n2 has RDMA devices that cannot be used (rdma: no device file); its pairs are measured over TCP"
		if got := slices.Contains(pairs.Notes, note); got != (transport == pathsel.Auto) {
			t.Errorf("%s: notes %q", transport, pairs.Notes)
		}
		f.agents = f.agents[:2]
		var few *TooFewError
		if pairs, err := f.Pairs(t.Context()); pairs != nil || !errors.As(err, &few) || few.Usable != 1 || few.Agents != 2 {
			t.Errorf("%s: one agent: %v, %v", transport, pairs, err)
		}
	}
}

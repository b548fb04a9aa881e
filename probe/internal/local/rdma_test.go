//go:build cgo && linux && (amd64 || arm64)

package local

import (
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/enginetest"
	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
	"github.com/topoctl/topoctl/probe"
)

// Each pair of RDMA ports of the host is measured over exactly these two; a port that is
// down is told as the reason.
func TestRDMAPorts(t *testing.T) {
	f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{
		verbsfake.RoCE("a0", 1, "10.0.0.1"), verbsfake.RoCE("a1", 2, "10.0.0.2"), verbsfake.RoCE("a2", 3, "10.0.0.3"),
	}})
	defer f.Close()
	p := portProber(t, enginetest.Verbs(f.Lib("a0", "a1", "a2")), engine.TCP())
	f.SetPort("a2", 1, verbs.PortDown)
	port := func(name string) topo.ID { return topo.PortID(name, 1) }
	for _, c := range []struct{ from, to, variant string }{{"a0", "a1", ""}, {"a1", "a0", ""}, {"a0", "a1", probe.VariantBothWays}} {
		pair := portPair(port(c.from), port(c.to), probe.RDMA, c.variant)
		m := one(t, p, pair, portSpec())
		checkPort(t, &pair, &m)
	}
	both := []probe.Pair{portPair(port("a0"), port("a1"), probe.RDMA, ""), portPair(port("a1"), port("a0"), probe.RDMA, "")}
	for i, m := range p.Round(t.Context(), both, portSpec(), nil) {
		checkPort(t, &both[i], &m)
	}
	if m := one(t, p, portPair(port("a0"), port("a2"), probe.RDMA, ""), portSpec()); m.Err != nil || !strings.Contains(m.Waived, "no lane over rdma from port:a0/1 to the peer's port:a2/1") {
		t.Errorf("%+v", m)
	}
}

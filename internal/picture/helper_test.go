package picture

import (
	"maps"
	"slices"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/importtest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// An ordinary run tries the properties on fewer cases.
func TestMain(m *testing.M) { longtest.Main(m) }

// hosts are fixtures and imports by name, of which an ordinary run takes some.
func hosts(t testing.TB) map[string]*topo.Topology {
	t.Helper()
	out := map[string]*topo.Topology{}
	for _, name := range longtest.Sample(append(fixtures.Names(), "empty"), 12) {
		out[name] = fixturetest.Topology(t, name)
	}
	imports := importtest.HostsIfThere(t)
	if len(imports) == 0 {
		t.Logf("%s is not here: imports are left out", fixturetest.Shared)
	}
	for _, name := range longtest.Sample(slices.Sorted(maps.Keys(imports)), 12) {
		out[name] = imports[name]
	}
	return out
}

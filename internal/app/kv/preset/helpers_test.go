package preset

import (
	"testing"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
)

// topologies reads the machines that ship with topoctl, each once.
func topologies(t testing.TB) func(string) (*topo.Topology, error) {
	known := map[string]*topo.Topology{}
	return func(fixture string) (*topo.Topology, error) {
		if known[fixture] != nil {
			return known[fixture], nil
		}
		tree, err := fixtures.Open(fixture)
		if err != nil {
			return nil, err
		}
		known[fixture], err = discover.Discover(t.Context(), discover.Options{FS: tree, Origin: "fixture:" + fixture})
		return known[fixture], err
	}
}

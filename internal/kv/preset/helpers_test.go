package preset

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// topologies gives the machines that ship with topoctl.
func topologies(t testing.TB) func(string) (*topo.Topology, error) {
	return func(fixture string) (*topo.Topology, error) { return fixturetest.Topology(t, fixture), nil }
}

// Package plantest has hosts and fabrics for tests of plans and what judges them. Only tests
// import it.
package plantest

import (
	"fmt"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe/plan"
)

// Hosts is a host n times: n1, n2 and so on.
func Hosts(top *topo.Topology, n int) []plan.Host {
	hosts := make([]plan.Host, n)
	for i := range hosts {
		hosts[i] = plan.Host{Name: fmt.Sprintf("n%d", i+1), Topology: top}
	}
	return hosts
}

// Rails is a fabric file in which the i-th usable port of every host is on rail i.
func Rails(tb testing.TB, top *topo.Topology) *pathsel.Fabric {
	tb.Helper()
	h, err := pathsel.New(top, pathsel.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	f := &pathsel.Fabric{Hosts: []pathsel.FabricHost{{Host: "*"}}}
	for _, p := range h.Ports() {
		if p.Usable {
			rail := len(f.Hosts[0].Ports)
			f.Hosts[0].Ports = append(f.Hosts[0].Ports, pathsel.FabricPort{Port: p.ID.Name(), Rail: &rail, Leaf: fmt.Sprintf("l%d", rail)})
		}
	}
	return f
}

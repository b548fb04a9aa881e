package pathsel_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

func prepare(t testing.TB, top *topo.Topology, o pathsel.Options) *pathsel.Host {
	t.Helper()
	h, err := pathsel.New(top, o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

package pathsel_test

import (
	"sync"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

var hosts sync.Map // of fixtures, by name

// fixture is a fixture prepared without options. Many tests ask it; none can change it.
func fixture(t testing.TB, name string) *pathsel.Host {
	t.Helper()
	h, ok := hosts.Load(name)
	if !ok {
		h, _ = hosts.LoadOrStore(name, prepare(t, fixturetest.Topology(t, name), pathsel.Options{}))
	}
	return h.(*pathsel.Host)
}

func prepare(t testing.TB, top *topo.Topology, o pathsel.Options) *pathsel.Host {
	t.Helper()
	h, err := pathsel.New(top, o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

package pathsel_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel"
)

// fixture discovers a machine that ships with topoctl.
func fixture(t testing.TB, name string) *topo.Topology {
	t.Helper()
	tree, err := fixtures.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	top, err := discover.Discover(t.Context(), discover.Options{FS: tree, Origin: "fixture:" + name})
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// spec discovers a machine that is written down in the test.
func spec(t testing.TB, text string) *topo.Topology {
	t.Helper()
	tree, err := fixtures.OpenFile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	top, err := discover.Discover(t.Context(), discover.Options{FS: tree, Origin: "spec"})
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func prepare(t testing.TB, top *topo.Topology, o pathsel.Options) *pathsel.Host {
	t.Helper()
	h, err := pathsel.New(top, o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

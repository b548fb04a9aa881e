package doctor_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/longtest"
)

func TestMain(m *testing.M) { longtest.Main(m) }

func run(tb testing.TB, t *topo.Topology, codes ...doctor.Code) *doctor.Report {
	tb.Helper()
	r, err := doctor.Run(t, doctor.Options{Codes: codes})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

var reports sync.Map // of fixtures, by name

// fixture is what doctor says of a fixture, which many tests look at.
func fixture(tb testing.TB, name string) *doctor.Report {
	tb.Helper()
	r, _ := reports.LoadOrStore(name, sync.OnceValue(func() *doctor.Report { return run(tb, fixturetest.Topology(tb, name)) }))
	return r.(func() *doctor.Report)()
}

// What people read of each machine when they want all of it.
func TestFixtures(t *testing.T) {
	files := map[string]bool{}
	for _, name := range fixtures.Names() {
		files[name+".txt"] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden.Check(t, filepath.Join("testdata", name+".txt"), fixture(t, name).Text(doctor.TextOptions{All: true}))
		})
	}
	found, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if !files[filepath.Base(path)] {
			t.Errorf("%s belongs to no fixture", path)
		}
	}
}

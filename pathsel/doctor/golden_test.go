package doctor_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/base/fixturetest"
	"github.com/topoctl/topoctl/internal/base/golden"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

func run(tb testing.TB, t *topo.Topology, codes ...doctor.Code) *doctor.Report {
	tb.Helper()
	r, err := doctor.Run(t, doctor.Options{Codes: codes})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// readable is a report as people read it, and the checks that need no words.
func readable(r *doctor.Report) string {
	text := r.Text(doctor.TextOptions{}) + "\n"
	for _, c := range r.Checks {
		switch c.Status {
		case doctor.OK:
			text += fmt.Sprintf("ok             %s: %s\n", c.Code, c.Note)
		case doctor.NotApplicable:
			text += fmt.Sprintf("not applicable %s: %s\n", c.Code, c.Note)
		}
	}
	return text
}

// What people read of each machine.
func TestFixtures(t *testing.T) {
	files := map[string]bool{}
	for _, name := range fixtures.Names() {
		files[name+".txt"] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden.Check(t, filepath.Join("testdata", name+".txt"), readable(run(t, fixturetest.Topology(t, name))))
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

package main_test

import (
	"path/filepath"
	"testing"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/testkit/golden"
)

// What people see of the lab's machines as they were captured.
func TestCaptureViews(t *testing.T) {
	for _, name := range fixtures.Captures() {
		for _, command := range []string{"topo", "matrix"} {
			file := filepath.Join("captures", name+"."+command+".txt")
			t.Run(file, func(t *testing.T) {
				t.Parallel()
				golden.Check(t, "testdata/golden/"+file, view(t, command, "--fixture", name, "-q"))
			})
		}
	}
}

package main_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/testkit/golden"
)

// What people see of texts of other tools: the tree and the matrix.
func TestImportViews(t *testing.T) {
	texts, err := filepath.Glob("../../discover/formats/texts/testdata/*.txt")
	if err != nil || len(texts) == 0 {
		t.Fatal(texts, err)
	}
	for _, path := range texts {
		for _, command := range []string{"topo", "matrix"} {
			file := strings.TrimSuffix(filepath.Base(path), ".txt") + "." + command + ".txt"
			t.Run(file, func(t *testing.T) {
				golden.Check(t, "testdata/golden/imports/"+file, view(t, command, "--from", path))
			})
		}
	}
}

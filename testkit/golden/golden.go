// Package golden compares what a test made with a file in the repository. It registers the flag
// -update of test binaries, with which files are written instead:
//
//	go test ./pathsel/doctor -update
//
// Only tests import it.
package golden

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Updating says whether the test runs with -update, for tests that write files in their own way.
func Updating() bool { return *update }

// Check compares got with the file at path, relative to the folder of the package under test. With
// -update it writes the file instead, and creates missing folders.
func Check[T ~string | ~[]byte](tb testing.TB, path string, got T) {
	tb.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatalf("golden: %v", err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			tb.Fatalf("golden: %v", err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		tb.Fatalf("golden: there is no %s: go test with -update writes it", path)
	} else if err != nil {
		tb.Fatalf("golden: %v", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		tb.Errorf("%s differs (-golden +got; go test with -update rewrites it):\n%s", path, diff)
	}
}

// Package longtest says how thorough a test is to be, and where it puts very many files. In an
// ordinary run (go test ./...) a test that goes through very many cases takes a sample of them;
// .ci/long sets TOPOCTL_TESTS=long, and it takes all. Only tests import it.
package longtest

import (
	"flag"
	"os"
	"testing"
)

// On says whether tests take the time for all of their cases.
func On() bool { return os.Getenv("TOPOCTL_TESTS") == "long" }

// Only skips a test where tests are not long: others check the same thing less closely.
func Only(t testing.TB) {
	t.Helper()
	if !On() {
		t.Skip("TOPOCTL_TESTS is not \"long\" (.ci/long)")
	}
}

// Main runs the tests of a package whose properties are dear: in an ordinary run rapid draws 25
// cases for each and not 100. A -rapid.checks on the command line stands. It does not return.
func Main(m *testing.M) {
	if !On() && flag.Lookup("rapid.checks") != nil {
		if err := flag.Set("rapid.checks", "25"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// Overlap lets four parallel tests of a package run at once, however few processors there are: for
// those that wait most of the time. A -parallel on the command line stands. TestMain calls it.
func Overlap() {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
}

// Sample is all cases where tests are long, else at most most of them, evenly spread, the first
// one included.
func Sample[T any](cases []T, most int) []T {
	if On() || len(cases) <= most {
		return cases
	}
	out := make([]T, most)
	for i := range out {
		out[i] = cases[i*len(cases)/most]
	}
	return out
}

// TempDir is t.TempDir for thousands of files: in memory where the machine has /dev/shm, which is
// many times faster than a disk.
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "topoctl-test-") //nolint:usetesting // t.TempDir is on a disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("removing %s: %v", dir, err)
		}
	})
	return dir
}

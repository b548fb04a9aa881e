// Package golden compares what a test made with a file in the repository. It registers the flag
// -update of test binaries, with which files are written instead:
//
//	go test ./pathsel/doctor -update
//
// Only tests import it.
package golden

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"io"
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
		write(tb, path, []byte(got))
		return
	}
	compare(tb, path, read(tb, path), []byte(got))
}

// CheckPacked is Check with a file that gzip has compressed.
func CheckPacked(tb testing.TB, path string, got []byte) {
	tb.Helper()
	if *update {
		var packed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // which is a level, and a buffer takes every write
		_, _ = z.Write(got)
		_ = z.Close()
		write(tb, path, packed.Bytes())
		return
	}
	z, err := gzip.NewReader(bytes.NewReader(read(tb, path)))
	if err != nil {
		tb.Fatalf("golden: %s: %v", path, err)
	}
	want, err := io.ReadAll(z)
	if err != nil {
		tb.Fatalf("golden: %s: %v", path, err)
	}
	compare(tb, path, want, got)
}

func write(tb testing.TB, path string, data []byte) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatalf("golden: %v", err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		tb.Fatalf("golden: %v", err)
	}
}

func read(tb testing.TB, path string) []byte {
	tb.Helper()
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		tb.Fatalf("golden: there is no %s: go test with -update writes it", path)
	} else if err != nil {
		tb.Fatalf("golden: %v", err)
	}
	return data
}

func compare(tb testing.TB, path string, want, got []byte) {
	tb.Helper()
	if bytes.Equal(want, got) {
		return
	}
	diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n"))
	tb.Errorf("%s differs (-golden +got; go test with -update rewrites it):\n%s", path, diff)
}

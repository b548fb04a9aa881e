package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// recorder keeps what a test would fail with.
type recorder struct {
	testing.TB
	failure string
	stopped bool
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) { r.failure += fmt.Sprintf(format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.stopped = true
	runtime.Goexit()
}

// check is what Check of some text comes to.
func check[T ~string | ~[]byte](t *testing.T, path string, got T) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // which Fatalf ends
		defer close(done)
		Check(r, path, got)
	}()
	<-done
	return r
}

func setUpdate(t *testing.T, on bool) {
	before := *update
	*update = on
	t.Cleanup(func() { *update = before })
}

func TestCheck(t *testing.T) {
	setUpdate(t, false)
	path := filepath.Join(t.TempDir(), "golden.txt")
	if err := os.WriteFile(path, []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := check(t, path, "one\ntwo\n"); r.failure != "" {
		t.Error(r.failure)
	}
	if r := check(t, path, []byte("one\ntwo\n")); r.failure != "" {
		t.Error(r.failure)
	}
	for _, got := range []string{"one\nthree\n", "one\ntwo", ""} {
		r := check(t, path, got)
		if !strings.Contains(r.failure, path) || !strings.Contains(r.failure, "-update") || r.stopped {
			t.Errorf("%q fails with %q", got, r.failure)
		}
	}
	if r := check(t, path, "one\nthree\n"); !strings.Contains(r.failure, `"two"`) || !strings.Contains(r.failure, `"three"`) {
		t.Errorf("no diff: %s", r.failure)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "one\ntwo\n" {
		t.Errorf("the file was written: %q, %v", data, err)
	}
}

func TestMissingFile(t *testing.T) {
	setUpdate(t, false)
	path := filepath.Join(t.TempDir(), "missing.txt")
	if r := check(t, path, ""); !r.stopped || !strings.Contains(r.failure, path) || !strings.Contains(r.failure, "-update writes it") {
		t.Errorf("fails with %q", r.failure)
	}
}

func TestUpdate(t *testing.T) {
	setUpdate(t, true)
	if !Updating() {
		t.Error("not updating")
	}
	path := filepath.Join(t.TempDir(), "testdata", "deep", "golden.txt")
	for _, text := range []string{"first\n", "second\n"} {
		if r := check(t, path, text); r.failure != "" {
			t.Error(r.failure)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != text {
			t.Errorf("wrote %q, %v", data, err)
		}
	}
	if r := check(t, filepath.Join(path, "below a file"), ""); !r.stopped {
		t.Error("could not write, and nothing was said")
	}
	setUpdate(t, false)
	if Updating() {
		t.Error("updating")
	}
}

package transporttest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder is a test that may fail without anybody failing.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	skipped  bool
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Error(args ...any)        { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Fatal(args ...any)        { r.Fatalf("%s", fmt.Sprint(args...)) }
func (r *recorder) FailNow()                 { r.Fatalf("failed") }
func (r *recorder) Logf(string, ...any)      {}
func (r *recorder) Log(...any)               {}
func (r *recorder) Skipf(f string, a ...any) { r.Skip() }
func (r *recorder) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Skip(...any) {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}

// record runs one check of the suite and gives what it complained about.
func record(t *testing.T, h Harness, name string) string {
	t.Helper()
	r := &recorder{TB: t}
	for _, c := range checks() {
		if c.name != name {
			continue
		}
		inGoroutine(func() { h.run(r, c) })
		for i := len(r.cleanups) - 1; i >= 0; i-- {
			inGoroutine(r.cleanups[i])
		}
		if r.skipped {
			t.Fatalf("%q was skipped", name)
		}
		return strings.Join(r.failures, "\n")
	}
	t.Fatalf("the suite has no check %q", name)
	return ""
}

// inGoroutine lets f end by runtime.Goexit.
func inGoroutine(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

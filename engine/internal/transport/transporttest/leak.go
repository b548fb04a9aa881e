package transporttest

import (
	"os"
	"runtime"
	"testing"
	"time"
)

// held is what a process holds and must give back.
type held struct {
	goroutines  int
	descriptors int // -1 where the system does not tell
}

func countHeld() held {
	// With a process's first timer the runtime opens two descriptors for good: go test starts one
	// for its -timeout, a test program that is run by itself does not.
	time.Sleep(time.Nanosecond)
	h := held{goroutines: runtime.NumGoroutine(), descriptors: -1}
	if names, err := os.ReadDir("/proc/self/fd"); err == nil {
		h.descriptors = len(names)
	}
	return h
}

// checkHeld waits until no more is held than before.
func checkHeld(t testing.TB, patience time.Duration, before held) {
	t.Helper()
	var now held
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		now = countHeld()
		if now.goroutines <= before.goroutines && now.descriptors <= before.descriptors {
			return
		}
	}
	if now.goroutines > before.goroutines {
		stacks := make([]byte, 64<<10)
		t.Errorf("%d goroutines at the end, %d at the start:\n%s", now.goroutines, before.goroutines,
			stacks[:runtime.Stack(stacks, true)])
	}
	if now.descriptors > before.descriptors {
		t.Errorf("%d file descriptors at the end, %d at the start", now.descriptors, before.descriptors)
	}
}

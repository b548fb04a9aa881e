package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"
)

// slowChild is an environment variable that makes this test binary a child that takes its time to end.
const slowChild = "TOPOCTL_TEST_SLOW_CHILD"

// endSlowly is that child.
func endSlowly() {
	fmt.Println(`"ready"`)
	io.Copy(io.Discard, os.Stdin) // until the end of it
	time.Sleep(time.Hour)
}

// A child ends in its own time; when the command was interrupted it is killed.
func TestStopOfInterruptedChild(t *testing.T) {
	t.Setenv(slowChild, "1")
	ctx, cancel := context.WithCancel(t.Context())
	var said string
	pid, stop, err := startChild(ctx, nil, []byte("\n"), &said)
	if err != nil || said != "ready" {
		t.Fatalf("%q, %v", said, err)
	}
	cancel()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the child is still there: %v", err)
	}
}

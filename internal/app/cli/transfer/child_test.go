package transfer

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// slowChild is an environment variable that makes this test binary a child that takes its time to end.
const slowChild = "TOPOCTL_TEST_SLOW_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(slowChild) == "" {
		os.Exit(m.Run())
	}
	fmt.Println(`"ready"`)
	io.Copy(io.Discard, os.Stdin) // until the end of it
	time.Sleep(10 * time.Second)
}

// A child ends in its own time, but not when the command was interrupted.
func TestStopOfInterruptedChild(t *testing.T) {
	t.Setenv(slowChild, "1")
	ctx, cancel := context.WithCancel(t.Context())
	var said string
	_, stop, err := startChild(ctx, nil, []byte("\n"), &said)
	if err != nil || said != "ready" {
		t.Fatalf("%q, %v", said, err)
	}
	cancel()
	if err := stop(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the child ended with %v, want it killed", err)
	}
}

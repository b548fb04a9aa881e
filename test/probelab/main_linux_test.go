package probelab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/topoctl/topoctl/cmd/topoctl/inprocess"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// The tests run inside a network namespace of their own, which is the network's switches:
// TestMain starts this program again in one. A host is this program once more, in a
// namespace of its own, and so is topoctl.
const (
	roleVar    = "TOPOCTL_PROBELAB_ROLE"
	roleInside = "inside"
	roleHost   = "host"    // topoctl, once its input says so
	roleTool   = "topoctl" // topoctl at once
	roleLoop   = "loop"    // a processor that has something else to do
)

// notPermitted says why there is no lab, "" where there is one.
var notPermitted string

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case roleHost:
		if err := waitForCables(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(topoctl())
	case roleTool:
		os.Exit(topoctl())
	case roleLoop:
		for {
			runtime.Gosched()
		}
	case roleInside:
		longtest.Overlap()
		os.Exit(m.Run())
	}
	if code, err := runInside(); err == nil {
		os.Exit(code)
	} else {
		notPermitted = err.Error()
	}
	os.Exit(m.Run())
}

func topoctl() int {
	return inprocess.Main(context.Background(), os.Args[1:], nil, nil)
}

// waitForCables waits for a line: the ports are there.
func waitForCables() error {
	var line [1]byte
	_, err := os.Stdin.Read(line[:])
	return err
}

// runInside runs the tests in a network namespace: in a user namespace where we are root, so
// that nothing of the host can be touched, or without one.
func runInside() (code int, err error) {
	for _, user := range []bool{true, false} {
		c := command(roleInside, syscall.CLONE_NEWNET, os.Args[1:]...)
		if user {
			c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err = c.Start(); err != nil {
			continue
		}
		err = c.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			if s := exit.Sys().(syscall.WaitStatus); s.Signaled() {
				fmt.Fprintln(os.Stderr, "the tests inside the namespace ended by", s.Signal())
				return 1, nil
			}
			return exit.ExitCode(), nil
		}
		return 0, err
	}
	return 0, fmt.Errorf("no network namespace can be made here: %w", err)
}

// command is this program in a role. It dies with us.
func command(role string, namespaces uintptr, args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", args...)
	c.Env = append(os.Environ(), roleVar+"="+role)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	return c
}

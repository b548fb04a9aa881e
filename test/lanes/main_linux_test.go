package lanes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// The tests run inside a network namespace of their own. TestMain starts this
// program again in one, with the same arguments; the helper in the far namespace
// is this program once more.
const (
	roleVar    = "TOPOCTL_LANES_ROLE"
	roleInside = "inside"
	roleFar    = "far"
)

// notPermitted says why there is no lab, "" where there is one.
var notPermitted string

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case roleFar:
		os.Exit(far())
	case roleInside:
		os.Exit(m.Run())
	}
	if code, err := runInside(); err == nil {
		os.Exit(code)
	} else {
		notPermitted = err.Error()
	}
	os.Exit(m.Run())
}

// runInside runs the tests in a network namespace: in a user namespace where we are
// root, so that nothing of the host can be touched, or without one.
func runInside() (code int, err error) {
	for _, user := range []bool{true, false} {
		c := command(roleInside, user)
		c.Args = append(c.Args, os.Args[1:]...)
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

// command is this program in a new network namespace. It dies with us.
func command(role string, user bool) *exec.Cmd {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), roleVar+"="+role)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if user {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return c
}

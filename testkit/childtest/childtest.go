// Package childtest starts processes for tests: the test's own program again, which its TestMain
// makes something else of. It has addresses for them, too.
package childtest

import (
	"bufio"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Address is one of this host at which nothing listens, for a child that must be told where to: the
// port is held, by a socket that is bound and does not listen, so that nobody else is given it before
// the child listens there, or between two that do.
func Address(tb testing.TB) string {
	tb.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		tb.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	tb.Cleanup(func() { _ = syscall.Close(fd) })
	loopback := [4]byte{127, 0, 0, 1}
	// Who listens sets the same, as package net does: it may have the port then.
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: loopback})
	}
	if err != nil {
		tb.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		tb.Fatal(err)
	}
	return netip.AddrPortFrom(netip.AddrFrom4(loopback), uint16(at.(*syscall.SockaddrInet4).Port)).String()
}

// Process is a child of a test. It is killed when the test ends, and its standard input ends when
// the test's process does, however that ends.
type Process struct {
	*exec.Cmd
	In  io.WriteCloser
	Out *bufio.Reader
}

// Start runs the test's program with a variable in its environment (NAME=value), by which TestMain
// knows it, and arguments.
func Start(tb testing.TB, variable string, args ...string) *Process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Process{Cmd: exec.Command(self, args...)}
	p.Env, p.Stderr = append(os.Environ(), variable), os.Stderr
	if p.In, err = p.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.Out = bufio.NewReader(out)
	if err := p.Cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Kill)
	return p
}

// Line is the next line that the child prints, without its end.
func (p *Process) Line(tb testing.TB) string {
	tb.Helper()
	line, err := p.Out.ReadString('\n')
	if err != nil {
		tb.Fatalf("%s says %q and no more: %v", p.Path, line, err)
	}
	return line[:len(line)-1]
}

// Stop sends a child SIGSTOP and waits until all of its threads stand still: until then some answer.
func Stop(tb testing.TB, child *os.Process) {
	tb.Helper()
	err := child.Signal(syscall.SIGSTOP)
	for err == nil {
		var status syscall.WaitStatus
		if _, err = syscall.Wait4(child.Pid, &status, syscall.WUNTRACED, nil); err == nil && status.Stopped() {
			return
		}
		if errors.Is(err, syscall.EINTR) {
			err = nil
		}
	}
	tb.Fatalf("not stopped: %v", err)
}

// Kill is kill -9; it waits until the process is gone. It may be so already.
func (p *Process) Kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// End ends the child's standard input and waits until it is gone.
func (p *Process) End() error {
	_ = p.In.Close()
	return p.Wait()
}

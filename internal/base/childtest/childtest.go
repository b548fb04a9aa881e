// Package childtest starts processes for tests: the test's own program again, which its TestMain
// makes something else of.
package childtest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
)

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

//go:build cgo && linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/topoctl/topoctl/engine/memory/cuda"
)

// envNotes names the file where a child writes figures and what it could not check.
const envNotes = "TOPOCTL_GPUCHECK_NOTES"

// envStandIn is set by the test of this package: the libraries are stand-ins, at sizes for them.
const envStandIn = "TOPOCTL_GPUCHECK_STANDIN"

func standIn() bool { return os.Getenv(envStandIn) != "" }

// check is what a part has found.
type check struct {
	out   string
	wrong []string
	notes *os.File
	err   error
}

// note is a line of the file of notes.
type note struct {
	Figure    *figure `json:"figure,omitempty"`
	Unchecked string  `json:"unchecked,omitempty"`
}

func newCheck(out string) *check {
	c := &check{out: out}
	if file := os.Getenv(envNotes); file != "" {
		c.notes, c.err = os.Create(file)
	}
	return c
}

func (c *check) close() error {
	if c.notes != nil {
		return c.notes.Close()
	}
	return c.err
}

func (c *check) write(n note) {
	if c.notes == nil {
		return
	}
	if data, err := json.Marshal(n); err == nil {
		_, _ = c.notes.Write(append(data, '\n'))
	}
}

// wrongf records a failure; the part goes on.
func (c *check) wrongf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintln(os.Stdout, "WRONG:", text)
	c.wrong = append(c.wrong, text)
}

// cannotf records a step that could not be checked.
func (c *check) cannotf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintln(os.Stdout, "could not check:", text)
	c.write(note{Unchecked: text})
}

// equal compares what we say with what another source says.
func (c *check) equal(what string, ours, theirs any) {
	a, b := fmt.Sprint(ours), fmt.Sprint(theirs)
	if a != b {
		c.wrongf("%s: topoctl says %q, the other source %q", what, a, b)
		return
	}
	fmt.Fprintf(os.Stdout, "same: %s: %s\n", what, a)
}

// figure records what was measured. Less than goal (0: none) is wrong, but for stand-ins, whose
// rates mean nothing.
func (c *check) figure(name string, value float64, unit string, goal float64) {
	fmt.Fprintf(os.Stdout, "figure: %s: %.4g %s", name, value, unit)
	if goal > 0 {
		fmt.Fprintf(os.Stdout, " (goal %g)", goal)
	}
	fmt.Fprintln(os.Stdout)
	c.write(note{Figure: &figure{Name: name, Value: value, Unit: unit, Goal: goal}})
	if value < goal && !standIn() {
		c.wrongf("%s is %.4g %s, %g is wanted", name, value, unit, goal)
	}
}

// read notes of a child.
type notes struct {
	figures   []figure
	unchecked []string
}

func readNotes(file string) (out notes) {
	data, err := os.ReadFile(file)
	if err != nil {
		return out
	}
	for line := range bytes.Lines(data) {
		var n note
		if json.Unmarshal(line, &n) != nil {
			continue // the child died while it wrote
		}
		if n.Figure != nil {
			out.figures = append(out.figures, *n.Figure)
		}
		if n.Unchecked != "" {
			out.unchecked = append(out.unchecked, n.Unchecked)
		}
	}
	return out
}

// uncheckedError says why a whole part could not be checked.
type uncheckedError struct{ why string }

func (e *uncheckedError) Error() string { return e.why }

func cannot(format string, args ...any) error {
	return &uncheckedError{fmt.Sprintf(format, args...)}
}

// beside is a file that lies where this program was started from.
func beside(name string) string { return filepath.Join(filepath.Dir(os.Args[0]), name) }

// topoctl runs the program, which lies beside this one. Exit codes that are answers are no error:
// 1 is a finding, 3 an incomplete answer.
func (c *check) topoctl(ctx context.Context, args ...string) ([]byte, error) {
	return c.run(ctx, nil, beside("topoctl"), args...)
}

// run runs a program and gives what it prints.
func (c *check) run(ctx context.Context, env []string, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	what := filepath.Base(program) + " " + strings.Join(args, " ")
	if errs.Len() > 0 {
		fmt.Fprintf(os.Stdout, "%s: standard error:\n%s", what, errs.String())
	}
	if code := cmd.ProcessState.ExitCode(); err != nil && code != 1 && code != 3 {
		return nil, fmt.Errorf("%s: %w: %s", what, err, lastLine(errs.String()))
	}
	return out.Bytes(), nil
}

// open opens the driver.
func open() (*cuda.Driver, error) {
	d, err := cuda.Open(cuda.Options{})
	if err != nil {
		return nil, cannot("no GPU: %v", err)
	}
	return d, nil
}

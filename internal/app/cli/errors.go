package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/topoctl/topoctl/internal/base/text"
)

// The exit codes of every command.
const (
	exitOK          = 0   // it ran and the answer is good
	exitBad         = 1   // it ran and the answer is bad
	exitFailed      = 2   // it could not run: usage, permission, input
	exitPartial     = 3   // it ran, but something that is there could not be read
	exitInterrupted = 130 // the user stopped it
)

// errPartial says that the output is written and incomplete. The warnings have
// told what is missing, so nothing more is printed.
var errPartial = errors.New("incomplete")

// errBad says that the output is written and the answer is bad: differences, or
// findings. The output has told what, so nothing more is printed.
var errBad = errors.New("the answer is bad")

// answer is an exit code of a command's own, for programs that have a meaning
// for each. The output is written, so nothing more is printed.
type answer int

func (a answer) Error() string { return fmt.Sprintf("exit code %d", int(a)) }

// failure is an error with advice on what to do next.
type failure struct {
	err  error
	hint string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// withHint adds a line of advice to an error.
func withHint(err error, hint string, args ...any) error {
	return &failure{err, fmt.Sprintf(hint, args...)}
}

// exitCode is the one place that turns an error into an exit code.
func exitCode(err error) int {
	var own answer
	switch {
	case errors.As(err, &own):
		return int(own)
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, errBad):
		return exitBad
	case errors.Is(err, errPartial):
		return exitPartial
	}
	return exitFailed
}

// report prints an error as one line, and its hint as another, and gives the
// exit code. command is the name of the command that failed, "" for none.
func report(w io.Writer, command string, err error) int {
	code := exitCode(err)
	var own answer
	if errors.As(err, &own) {
		return code
	}
	switch code {
	case exitOK, exitBad, exitPartial:
		return code
	case exitInterrupted:
		fmt.Fprintln(w, "topoctl: interrupted")
		return code
	}
	fmt.Fprintln(w, "topoctl: "+oneLine(command, err))
	var f *failure
	if errors.As(err, &f) && f.hint != "" {
		fmt.Fprintln(w, "hint: "+f.hint)
	}
	return code
}

// oneLine is an error's text with the command before it. The package that an
// error of ours begins with says nothing to the user.
func oneLine(command string, err error) string {
	line := withoutPackage(err.Error())
	if command != "" {
		line = command + ": " + line
	}
	lines := strings.Split(line, "\n")
	for i, l := range lines {
		lines[i] = text.Printable(strings.TrimSpace(l))
	}
	return strings.Join(lines, "; ")
}

func withoutPackage(text string) string {
	for _, p := range []string{"discover: ", "topo: ", "draw: ", "units: ", "fixtures: ", "hosttree: ", "pathsel: ", "rival: ", "export: ", "ncclxml: ", "diagram: ", "doctor: ", "diff: ", "bench: ", "agent: ", "engine: ", "registry: ", "route: ", "memory: ", "probe: ", "plan: ", "local: ", "observe: ", "record: ", "watch: ", "tui: ", "predict: ", "serve: ", "sim: ", "workload: "} {
		text = strings.TrimPrefix(text, p)
	}
	return text
}

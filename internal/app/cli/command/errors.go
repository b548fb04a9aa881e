package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/topoctl/topoctl/internal/base/pkgerr"
	"github.com/topoctl/topoctl/internal/base/text"
)

// The exit codes of every command.
const (
	ExitOK          = 0   // it ran and the answer is good
	ExitBad         = 1   // it ran and the answer is bad
	ExitFailed      = 2   // it could not run: usage, permission, input
	ExitPartial     = 3   // it ran, but something that is there could not be read
	ExitInterrupted = 130 // the user stopped it
)

// ErrPartial says that the output is written and incomplete. The warnings have
// told what is missing, so nothing more is printed.
var ErrPartial = errors.New("incomplete")

// ErrBad says that the output is written and the answer is bad: differences, or
// findings. The output has told what, so nothing more is printed.
var ErrBad = errors.New("the answer is bad")

// Status is an exit code of a command's own, for programs that have a meaning
// for each. The output is written, so nothing more is printed.
type Status int

func (a Status) Error() string { return fmt.Sprintf("exit code %d", int(a)) }

// Error is an error with advice on what to do next.
type Error struct {
	err  error
	Hint string
}

func (f *Error) Error() string { return f.err.Error() }
func (f *Error) Unwrap() error { return f.err }

// WithHint adds a line of advice to an error.
func WithHint(err error, hint string, args ...any) error {
	return &Error{err, fmt.Sprintf(hint, args...)}
}

// ExitCode is the one place that turns an error into an exit code.
func ExitCode(err error) int {
	var own Status
	switch {
	case errors.As(err, &own):
		return int(own)
	case err == nil:
		return ExitOK
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.Is(err, ErrBad):
		return ExitBad
	case errors.Is(err, ErrPartial):
		return ExitPartial
	}
	return ExitFailed
}

// report prints an error as one line, and its hint as another, and gives the
// exit code. command is the name of the command that failed, "" for none.
func report(w io.Writer, command string, err error) int {
	code := ExitCode(err)
	var own Status
	if errors.As(err, &own) {
		return code
	}
	switch code {
	case ExitOK, ExitBad, ExitPartial:
		return code
	case ExitInterrupted:
		fmt.Fprintln(w, "topoctl: interrupted")
		return code
	}
	fmt.Fprintln(w, "topoctl: "+OneLine(command, err))
	var f *Error
	if errors.As(err, &f) && f.Hint != "" {
		fmt.Fprintln(w, "hint: "+f.Hint)
	}
	return code
}

// OneLine is an error's text with the command before it. The package that an
// error of ours begins with says nothing to the user.
func OneLine(command string, err error) string {
	line := pkgerr.Message(err)
	if command != "" {
		line = command + ": " + line
	}
	lines := strings.Split(line, "\n")
	for i, l := range lines {
		lines[i] = text.Printable(strings.TrimSpace(l))
	}
	return strings.Join(lines, "; ")
}

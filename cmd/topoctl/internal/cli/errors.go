package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

// The exit codes of every command.
const (
	exitOK          = 0   // it ran and the answer is good
	exitBad         = 1   // it ran and the answer is bad
	exitFailed      = 2   // it could not run: usage, permission, input
	exitPartial     = 3   // it ran, but something that is there could not be read
	exitInterrupted = 130 // the user stopped it
)

// Error is how a command ends other than well: by an exit code, and where something could not be
// done, by what went wrong and what to do next.
type Error struct {
	code int
	hint string
	err  error // nil: the output says all there is to say
}

func (e *Error) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *Error) Unwrap() error { return e.err }

var (
	// errBad says that the output is written and the answer is bad: differences, or findings.
	errBad = Exit(exitBad)
	// errPartial says that the output is written and incomplete, and that the warnings have told
	// what is missing.
	errPartial = Exit(exitPartial)
)

// Exit ends a command whose output is written with an exit code, and says nothing more.
func Exit(code int) error { return &Error{code: code} }

// withHint is an error with a line of advice.
func withHint(err error, hint string, args ...any) error {
	return &Error{exitFailed, fmt.Sprintf(hint, args...), err}
}

// advice is what to do next about an error.
type advice struct {
	about error
	next  string
}

// advise gives an error the advice of the first that it is, unless it has some.
func advise(err error, list ...advice) error {
	if Hint(err) != "" {
		return err
	}
	for _, a := range list {
		if errors.Is(err, a.about) {
			return withHint(err, "%s", a.next)
		}
	}
	return err
}

// peerAdvice is about errors of credentials and registries, which all commands that open peers have.
var peerAdvice = []advice{
	{engine.ErrToken, "use the same --token-file on both hosts"},
	{engine.ErrCertificate, "\"topoctl cert show FILE --ca-file CA\" says on each host what is wrong with its certificate"},
	{registry.ErrDenied, "for etcd, ETCDCTL_USER (or user-file=FILE in the URL) says who you are; the user's role must have the keys: docs/registry.md"},
	{registry.ErrUnavailable, "check the address in --registry, and whether its server answers (for etcd: etcdctl endpoint health)"},
	{engine.ErrOtherEngine, "\"topoctl peers\" lists what is registered"},
}

// badAnswer is the error of a command whose output is written and whose answer is bad, with a line of advice,
// "" for none. errBad is for where the output says all of it.
func badAnswer(err error, hint string) error { return &Error{exitBad, hint, err} }

// exitCode is the one place that turns an error into an exit code.
func exitCode(err error) int {
	var own *Error
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &own):
		return own.code
	}
	return exitFailed
}

// tellError prints an error as one line, and its hint as another, and gives the
// exit code. command is the name of the command that failed, "" for none.
func tellError(w io.Writer, command string, err error) int {
	code := exitCode(err)
	switch {
	case code == exitInterrupted:
		fmt.Fprintln(w, "topoctl: interrupted")
	case err != nil && !Silent(err):
		fmt.Fprintln(w, "topoctl: "+oneLine(command, err))
		if hint := Hint(err); hint != "" {
			fmt.Fprintln(w, "hint: "+hint)
		}
	}
	return code
}

// Silent says whether an error is an exit code alone.
func Silent(err error) bool {
	var own *Error
	return errors.As(err, &own) && own.err == nil
}

// Hint is what to do next about an error, "" where it does not say.
func Hint(err error) string {
	var own *Error
	if errors.As(err, &own) {
		return own.hint
	}
	return ""
}

// oneLine is an error's text with the command before it. The package that an
// error of ours begins with says nothing to the user.
func oneLine(command string, err error) string {
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

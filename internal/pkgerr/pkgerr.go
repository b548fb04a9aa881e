// Package pkgerr makes errors that begin with the name of their package, as Go programs expect
// them ("discover: no sys directory"), and gives their text without it, as people read them.
package pkgerr

import (
	"errors"
	"fmt"
	"strings"
)

// packageError is an error with the package that made it.
type packageError struct {
	name string
	err  error
}

func (e *packageError) Error() string { return e.name + ": " + e.err.Error() }
func (e *packageError) Unwrap() error { return e.err }

// New makes an error of the package of that name.
func New(name, message string) error { return &packageError{name, errors.New(message)} }

// Errorf makes an error of the package of that name, as fmt.Errorf does.
func Errorf(name, format string, args ...any) error {
	return &packageError{name, fmt.Errorf(format, args...)}
}

// Message is the text of an error, without the names of packages that it begins with. Of several
// that are joined each is on a line.
func Message(err error) string {
	switch e := err.(type) { //nolint:errorlint // what is wrapped in other text is part of that text
	case *packageError:
		return Message(e.err)
	case interface{ Unwrap() error }:
		if text, ok := beginning(err, e.Unwrap()); ok {
			return text
		}
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		if errors.Join(all...).Error() == err.Error() {
			lines := make([]string, len(all))
			for i := range all {
				lines[i] = Message(all[i])
			}
			return strings.Join(lines, "\n")
		}
		for _, in := range all {
			if text, ok := beginning(err, in); ok {
				return text
			}
		}
	}
	return err.Error()
}

// beginning is the Message of an error whose text begins with that of the one that it wraps.
func beginning(err, in error) (string, bool) {
	if in == nil {
		return "", false
	}
	rest, ok := strings.CutPrefix(err.Error(), in.Error())
	return Message(in) + rest, ok
}

// Plain is an error whose text is the Message of err, to go into a longer one.
func Plain(err error) error { return plain{err} }

type plain struct{ err error }

func (p plain) Error() string { return Message(p.err) }
func (p plain) Unwrap() error { return p.err }

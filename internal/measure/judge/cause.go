package judge

import (
	"errors"

	"github.com/topoctl/topoctl/probe"
)

// causedError is an error with its cause.
type causedError struct {
	error
	cause probe.Cause
}

func (e *causedError) Unwrap() error { return e.error }

// Because says what an error is about; nil stays nil.
func Because(c probe.Cause, err error) error {
	if err == nil {
		return nil
	}
	return &causedError{err, c}
}

// Of is what an error is about, "" where nothing says it.
func Of(err error) probe.Cause {
	var e *causedError
	if errors.As(err, &e) {
		return e.cause
	}
	return ""
}

package plan

import "fmt"

// SelectionError is a malformed pattern, or one that selects no pair.
type SelectionError struct{ Pattern, Problem string }

func (e *SelectionError) Error() string {
	return fmt.Sprintf("plan: selection %.80q: %s", e.Pattern, e.Problem)
}

// DuplicateHostError is the name of two hosts.
type DuplicateHostError struct{ Name string }

func (e *DuplicateHostError) Error() string {
	return fmt.Sprintf("plan: two hosts are called %q: give each a name of its own", e.Name)
}

// RailsError is a choice of rails where no port, such as Example, has one.
type RailsError struct {
	Rails   Rails
	Example string
}

func (e *RailsError) Error() string {
	return fmt.Sprintf("plan: rails %s: the rail of no port is known, for example of %s: use a fabric file with rails, or all rails", e.Rails, e.Example)
}

// FabricFileError is what is wrong with the description of the fabric.
type FabricFileError struct{ Err error }

func (e *FabricFileError) Error() string { return e.Err.Error() }
func (e *FabricFileError) Unwrap() error { return e.Err }

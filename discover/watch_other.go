//go:build !linux

package discover

// openEvents has nobody to listen to.
func openEvents() ([]eventSource, []error) { return nil, []error{errNoNetlink} }

func isOverrun(error) bool { return false }

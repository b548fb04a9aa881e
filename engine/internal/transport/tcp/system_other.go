//go:build !linux

package tcp

// yield does nothing: the other systems promise no such thing.
func yield() {}

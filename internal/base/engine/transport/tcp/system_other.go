//go:build !linux

package tcp

// congestionControl is not known: only Linux tells it by name.
func congestionControl(uintptr) string { return "" }

// yield does nothing: the other systems promise no such thing.
func yield() {}

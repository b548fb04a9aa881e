//go:build !linux

package engine

// machineAndBoot are not known: shared memory needs Linux anyway.
func machineAndBoot() (machine, boot string) { return "", "" }

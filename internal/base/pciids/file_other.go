//go:build !linux

package pciids

// File makes a file with the given content that can be opened by its path,
// because pcidb and ghw read paths only; remove deletes it.
func File(data []byte) (path string, remove func(), err error) { return tempFile(data) }

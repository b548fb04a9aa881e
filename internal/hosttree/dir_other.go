//go:build !linux

package hosttree

func newBackend(dir string) (backend, error) { return newRootBackend(dir) }

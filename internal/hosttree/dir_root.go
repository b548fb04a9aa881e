package hosttree

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// rootBackend reads by os.Root: on every system, but slower than openat2.
type rootBackend struct {
	root *os.Root
}

func newRootBackend(dir string) (backend, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return rootBackend{root}, nil
}

func (b rootBackend) close() error { return b.root.Close() }

// crossed: os.Root refuses absolute links and those that leave its directory,
// and follows fewer links than Linux; it has no error value for either.
func (b rootBackend) crossed(err error) bool {
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)
}

func (b rootBackend) open(name string) (*os.File, error) {
	return b.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func (b rootBackend) readFile(name string) ([]byte, error) {
	f, err := regular(b, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err == nil && len(data) > MaxFileSize {
		return nil, ErrTooLarge
	}
	return data, err
}

func (b rootBackend) readLink(name string) (string, error) {
	target, err := b.root.Readlink(filepath.FromSlash(name))
	return filepath.ToSlash(target), err
}

func (b rootBackend) stat(name string, follow bool) (fs.FileInfo, error) {
	if follow {
		return b.root.Stat(filepath.FromSlash(name))
	}
	return b.root.Lstat(filepath.FromSlash(name))
}

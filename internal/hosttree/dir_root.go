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

// open does not wait for the other end of a FIFO.
func (b rootBackend) open(name string) (*os.File, error) {
	f, _, err := b.openFile(name)
	return f, err
}

func (b rootBackend) openFile(name string) (*os.File, int64, error) {
	f, err := b.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkFile(info.Mode().Type())
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func (b rootBackend) readFile(name string) ([]byte, error) {
	f, size, err := b.openFile(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > MaxFileSize {
		return nil, ErrTooLarge
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err == nil && len(data) > MaxFileSize {
		err = ErrTooLarge
	}
	return data, err
}

// checkFile refuses all but regular files.
func checkFile(kind fs.FileMode) error {
	switch {
	case kind.IsDir():
		return syscall.EISDIR
	case kind != 0:
		return ErrNotRegular
	}
	return nil
}

func (b rootBackend) readDir(name string) ([]dirEntry, error) {
	f, err := b.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	list := make([]dirEntry, len(entries))
	for i, e := range entries {
		list[i] = dirEntry{name: e.Name(), kind: e.Type()}
	}
	return list, nil
}

func (b rootBackend) readLink(name string) (string, error) {
	target, err := b.root.Readlink(filepath.FromSlash(name))
	return filepath.ToSlash(target), err
}

func (b rootBackend) linkAt(name string) (string, error) { return b.readLink(name) }

func (b rootBackend) stat(name string, follow bool) (fs.FileInfo, error) {
	if follow {
		return b.root.Stat(filepath.FromSlash(name))
	}
	return b.root.Lstat(filepath.FromSlash(name))
}

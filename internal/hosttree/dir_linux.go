package hosttree

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// openat2Backend opens with openat2(2), which resolves a whole path below a directory in one call and
// refuses to leave it: discovery reads thousands of small files, deep in the tree.
type openat2Backend struct {
	fd atomic.Int32 // the directory; -1 after close
}

// newBackend falls back on os.Root where the kernel (before 5.6) or a seccomp
// filter has no openat2.
func newBackend(dir string) (backend, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	b := &openat2Backend{}
	b.fd.Store(int32(fd))
	probe, err := b.openAt(".", unix.O_PATH)
	if err != nil {
		unix.Close(fd)
		return newRootBackend(dir)
	}
	unix.Close(probe)
	return b, nil
}

func (b *openat2Backend) close() error {
	fd := b.fd.Swap(-1)
	if fd < 0 {
		return fs.ErrClosed
	}
	return unix.Close(int(fd))
}

// crossed: the path left the directory, or went through an absolute link
// (EXDEV), a loop, or a link of /proc that is no path (ELOOP).
func (b *openat2Backend) crossed(err error) bool {
	return errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP)
}

// openAt opens a name below the directory.
func (b *openat2Backend) openAt(name string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	// EAGAIN: something was renamed or mounted while ".." was resolved.
	const tries = 64
	var fd int
	var err error
	for range tries {
		fd, err = unix.Openat2(int(b.fd.Load()), name, &how)
		if err != unix.EINTR && err != unix.EAGAIN {
			break
		}
	}
	return fd, err
}

// reading makes the open of a FIFO return at once, and never makes a terminal the process's own.
const reading = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY

func (b *openat2Backend) open(name string) (*os.File, error) {
	fd, err := b.openAt(name, reading)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, false); err != nil { // else the runtime polls it
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path.Base(name)), nil
}

// readFile has the kernel alone between itself and the file: most of discovery is reading small files. An
// attribute below sys that is shorter than a page is complete after one read.
func (b *openat2Backend) readFile(name string) (data []byte, err error) {
	fd, err := b.openAt(name, reading)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return nil, unix.EISDIR
	default:
		return nil, ErrNotRegular
	}
	var page [4096]byte
	for {
		n, err := unix.Read(fd, page[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch data = append(data, page[:n]...); {
		case len(data) > MaxFileSize:
			return nil, ErrTooLarge
		case n == 0, n < len(page) && strings.HasPrefix(name, "sys/"):
			return data, nil
		}
	}
}

func (b *openat2Backend) readLink(name string) (string, error) {
	fd, err := b.openAt(name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var buf [maxName]byte
	n, err := unix.Readlinkat(fd, "", buf[:])
	if errors.Is(err, unix.ENOENT) { // which the kernel says of what is no link
		err = unix.EINVAL
	}
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func (b *openat2Backend) stat(name string, follow bool) (fs.FileInfo, error) {
	flags := uint64(unix.O_PATH)
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := b.openAt(name, flags)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path.Base(name))
	defer f.Close()
	return f.Stat()
}

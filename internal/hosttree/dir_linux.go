package hosttree

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// openat2Backend reads with openat2(2), which resolves a whole path below a directory
// in one call and refuses to leave it. Discovery reads thousands of small
// files, so each costs an open, a read and a close and no more.
type openat2Backend struct {
	fd atomic.Int32 // the directory; -1 after close

	// The directory of the last link that was read is kept open: a device has
	// several links, and the lists of a class are links.
	mu    sync.Mutex
	dir   string
	dirFD int // -1: none
}

// newBackend falls back on os.Root where the kernel (before 5.6) or a seccomp
// filter has no openat2.
func newBackend(dir string) (backend, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	b := &openat2Backend{dirFD: -1}
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
	b.mu.Lock()
	b.forgetDir()
	b.mu.Unlock()
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

// smallFile is the size of the buffers that reads share. A sysfs attribute is
// at most one page.
const smallFile = 8 << 10

var pageSize = os.Getpagesize()

var buffers = sync.Pool{New: func() any { return new([smallFile]byte) }}

// nonblock makes the open of a FIFO return at once, and never makes a
// terminal the process's own.
const nonblock = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY

// regular says whether an open file is a regular one, and its size.
func regular(fd int) (size int64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return st.Size, checkFile(fileType(st.Mode))
}

func (b *openat2Backend) open(name string) (*os.File, error) {
	fd, err := b.openAt(name, nonblock)
	if err != nil {
		return nil, err
	}
	if _, err = regular(fd); err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// readFile reads an attribute, a file below sys, in one read: it is at most a
// page, and less than a page is all of it. Its type need not be checked first, since no read
// blocks here; it is checked if the read returns nothing, or a page or more.
func (b *openat2Backend) readFile(name string) ([]byte, error) {
	fd, err := b.openAt(name, nonblock)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := buffers.Get().(*[smallFile]byte)
	defer buffers.Put(buf)
	n := 0
	var readErr error
	if strings.HasPrefix(name, "sys/") {
		n, readErr = readSome(fd, buf[:])
		if 0 < n && n < pageSize {
			return append(make([]byte, 0, n), buf[:n]...), nil
		}
	}
	size, err := regular(fd)
	switch {
	case err != nil:
		return nil, err
	case readErr != nil:
		return nil, readErr
	case size > MaxFileSize:
		return nil, ErrTooLarge
	}
	for n < len(buf) {
		k, err := readSome(fd, buf[n:])
		if err != nil {
			return nil, err
		}
		n += k
		// A file whose size is at most a page is complete after one read.
		if k == 0 || 0 < size && size <= int64(pageSize) {
			return append(make([]byte, 0, n), buf[:n]...), nil
		}
	}
	return readRest(fd, buf[:])
}

// readRest reads a file that is larger than its beginning.
func readRest(fd int, begin []byte) ([]byte, error) {
	data := append(make([]byte, 0, 4*len(begin)), begin...)
	for {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		k, err := readSome(fd, data[len(data):cap(data)])
		if err != nil {
			return nil, err
		}
		data = data[:len(data)+k]
		if len(data) > MaxFileSize {
			return nil, ErrTooLarge
		}
		if k == 0 {
			return data, nil
		}
	}
}

func readSome(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buf)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// readDir parses the records of getdents64(2): inode 8 bytes, offset 8,
// record length 2, type 1, name to a zero byte.
func (b *openat2Backend) readDir(name string) ([]dirEntry, error) {
	fd, err := b.openAt(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := buffers.Get().(*[smallFile]byte)
	defer buffers.Put(buf)
	var list []dirEntry
	for {
		n, err := unix.Getdents(fd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return list, err
		}
		list = slices.Grow(list, n/32) // a record of a short name takes 24 or 32 bytes
		for rest := string(buf[:n]); len(rest) >= 19; {
			size := int(binary.NativeEndian.Uint16([]byte(rest[16:18])))
			if size < 19 || size > len(rest) {
				return list, unix.EIO
			}
			if name, _, _ := strings.Cut(rest[19:size], "\x00"); name != "." && name != ".." {
				kind, err := b.entryType(fd, name, rest[18])
				if err != nil {
					return list, err
				}
				list = append(list, dirEntry{name: name, kind: kind})
			}
			rest = rest[size:]
		}
	}
}

// entryType is the type of an entry; some file systems do not list it.
func (b *openat2Backend) entryType(fd int, name string, listed byte) (fs.FileMode, error) {
	if listed != unix.DT_UNKNOWN {
		return fileType(uint32(listed) << 12), nil // DT_* are the S_IF* bits
	}
	var st unix.Stat_t
	err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return 0, nil // gone since it was listed
	}
	return fileType(st.Mode), err
}

func (b *openat2Backend) readLink(name string) (string, error) {
	dir, base := path.Split(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dirFD < 0 || b.dir != dir {
		b.forgetDir()
		fd, err := b.openAt(path.Clean(dir), unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return "", err
		}
		b.dir, b.dirFD = dir, fd
	}
	return readLinkAt(b.dirFD, base)
}

// forgetDir is called with mu held.
func (b *openat2Backend) forgetDir() {
	if b.dirFD >= 0 {
		unix.Close(b.dirFD)
		b.dirFD = -1
	}
}

func (b *openat2Backend) linkAt(name string) (string, error) {
	return readLinkAt(int(b.fd.Load()), name)
}

func readLinkAt(fd int, name string) (string, error) {
	var buf [maxName]byte
	n, err := unix.Readlinkat(fd, name, buf[:])
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
	defer unix.Close(fd)
	info := fileInfo{name: path.Base(name)}
	if err := unix.Fstat(fd, &info.st); err != nil {
		return nil, err
	}
	return &info, nil
}

// fileInfo is the result of fstat(2).
type fileInfo struct {
	name string
	st   unix.Stat_t
}

func (i *fileInfo) Name() string       { return i.name }
func (i *fileInfo) Size() int64        { return i.st.Size }
func (i *fileInfo) IsDir() bool        { return i.Mode().IsDir() }
func (i *fileInfo) ModTime() time.Time { return time.Unix(i.st.Mtim.Unix()) }
func (i *fileInfo) Sys() any           { return nil }
func (i *fileInfo) Mode() fs.FileMode {
	return fileType(i.st.Mode) | fs.FileMode(i.st.Mode&0o777)
}

// fileType turns the type bits of st_mode into those of fs.FileMode.
func fileType(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFBLK:
		return fs.ModeDevice
	case unix.S_IFCHR:
		return fs.ModeDevice | fs.ModeCharDevice
	}
	return fs.ModeIrregular
}

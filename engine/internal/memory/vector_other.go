//go:build unix && !linux

package memory

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

type iovec = unix.Iovec

// Readv reads from a non-blocking descriptor, here one piece per call. 0 bytes
// without error is the end of the stream.
func (v *Vector) Readv(fd uintptr) (int, syscall.Errno) { return v.call(unix.Read, fd) }

// Writev writes to a non-blocking descriptor, here one piece per call.
func (v *Vector) Writev(fd uintptr) (int, syscall.Errno) { return v.call(unix.Write, fd) }

func (v *Vector) call(f func(int, []byte) (int, error), fd uintptr) (int, syscall.Errno) {
	pieces := v.pieces[v.first:]
	if len(pieces) == 0 {
		return 0, 0
	}
	n, err := f(int(fd), pieces[0])
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return 0, errno
	}
	if err != nil {
		return 0, syscall.EIO
	}
	return n, 0
}

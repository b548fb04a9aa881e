package memory

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

type iovec = unix.Iovec

// smallCall is up to how many bytes a call on a non-blocking descriptor is made
// without telling Go's scheduler: that saves time, and keeps the processor from
// other goroutines only as long as the copy lasts.
const smallCall = 64 << 10

// Readv reads from a non-blocking descriptor. 0 bytes without error is the end
// of the stream.
func (v *Vector) Readv(fd uintptr) (int, syscall.Errno) { return v.call(unix.SYS_READV, fd) }

// Writev writes to a non-blocking descriptor.
func (v *Vector) Writev(fd uintptr) (int, syscall.Errno) { return v.call(unix.SYS_WRITEV, fd) }

func (v *Vector) call(trap, fd uintptr) (int, syscall.Errno) {
	iov := v.iov[v.first:]
	if len(iov) == 0 {
		return 0, 0
	}
	var n uintptr
	var errno syscall.Errno
	if v.bytes <= smallCall {
		n, _, errno = syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(&iov[0])), uintptr(len(iov)))
	} else {
		n, _, errno = syscall.Syscall(trap, fd, uintptr(unsafe.Pointer(&iov[0])), uintptr(len(iov)))
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

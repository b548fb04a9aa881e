package bind

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// newEvent makes two descriptors of one event.
func newEvent() (own, callers int32, err error) {
	a, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return 0, 0, err
	}
	b, err := unix.FcntlInt(uintptr(a), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(a)
		return 0, 0, err
	}
	return int32(a), int32(b), nil
}

// setEvent makes an event readable; one whose count is at its end is.
func setEvent(fd int32) {
	_, _ = unix.Write(int(fd), binary.NativeEndian.AppendUint64(nil, 1))
}

func closeEvent(fd int32) { _ = unix.Close(int(fd)) }

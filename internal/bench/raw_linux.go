package bench

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// scatter reads from a connection into several pieces of memory at once.
type scatter struct{ raw syscall.RawConn }

func newScatter(c *net.TCPConn) (*scatter, error) {
	raw, err := c.SyscallConn()
	return &scatter{raw}, err
}

func (s *scatter) read(pieces [][]byte) (n int, err error) {
	closed := s.raw.Read(func(fd uintptr) bool {
		for {
			if n, err = unix.Readv(int(fd), pieces); !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	switch {
	case closed != nil:
		return 0, closed
	case err == nil && n == 0:
		return 0, io.EOF
	}
	return max(n, 0), err
}

// congestion chooses the congestion control of a socket before it connects or
// listens, as the engine's sockets do: the first of these that is permitted, or
// what the system has. What a socket got is asked for afterwards.
func congestion(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		for _, name := range []string{"cubic", "reno"} {
			if unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name) == nil {
				return
			}
		}
	})
}

// congestionOf is the congestion control of a socket, "" not known.
func congestionOf(c syscall.Conn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	name := ""
	if raw.Control(func(fd uintptr) {
		name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	}) != nil || err != nil {
		return ""
	}
	return name
}

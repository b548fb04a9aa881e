package bench

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// scatter reads from a connection into several pieces of memory at once.
type scatter struct {
	raw    syscall.RawConn
	pieces [][]byte
	n      int
	err    error
	once   func(fd uintptr) bool // made once: no closure for each read
}

func newScatter(c *net.TCPConn) (*scatter, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &scatter{raw: raw}
	s.once = func(fd uintptr) bool {
		s.n, s.err = unix.Readv(int(fd), s.pieces)
		return !errors.Is(s.err, unix.EAGAIN)
	}
	return s, nil
}

func (s *scatter) read(pieces [][]byte) (int, error) {
	for {
		s.pieces = pieces
		if err := s.raw.Read(s.once); err != nil {
			return 0, err
		}
		switch {
		case errors.Is(s.err, unix.EINTR):
			continue
		case s.err != nil:
			return 0, s.err
		case s.n == 0:
			return 0, io.EOF
		}
		return s.n, nil
	}
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

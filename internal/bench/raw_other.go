//go:build !linux

package bench

import (
	"net"
	"syscall"
)

// scatter reads into one piece after the other here.
type scatter struct{ c *net.TCPConn }

func newScatter(c *net.TCPConn) (*scatter, error) { return &scatter{c}, nil }

func (s *scatter) read(pieces [][]byte) (int, error) { return s.c.Read(pieces[0]) }

// congestion: only Linux lets sockets choose.
func congestion(_, _ string, _ syscall.RawConn) error { return nil }

func congestionOf(syscall.Conn) string { return "" }

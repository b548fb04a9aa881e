//go:build unix

package tcp

import "golang.org/x/sys/unix"

func shutdown(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }

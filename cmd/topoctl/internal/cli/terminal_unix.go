//go:build unix

package cli

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminal says whether a file is a terminal, and how many columns and lines it has.
// /dev/null is a character device too, so the mode alone does not tell.
func terminal(f *os.File) (columns, lines int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}

// hasShell says whether somebody would wake this process after it was stopped: a shell
// with job control, which is its parent in another process group of the same session.
func hasShell() bool {
	parent := os.Getppid()
	session, err := unix.Getsid(0)
	parents, parentErr := unix.Getsid(parent)
	group, groupErr := unix.Getpgid(parent)
	return err == nil && parentErr == nil && groupErr == nil && parents == session && group != unix.Getpgrp()
}

// readerGone says whether what is written to a pipe has no reader any more.
func readerGone(w io.Writer) bool {
	if a, ok := w.(*ascii); ok {
		w = a.Writer
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd())}} // POLLERR is told without being asked for
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
}

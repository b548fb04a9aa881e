//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminal says whether a file is a terminal, and how many columns it has.
// /dev/null is a character device too, so the mode alone does not tell.
func terminal(f *os.File) (columns int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}

package sysfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// maxOpenFiles is more than the files of a hundred ports.
const maxOpenFiles = 4096

// openFilesLimit is how many files may stay open: a quarter of what the process may open.
func openFilesLimit() int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int64(min(limit.Cur/4, maxOpenFiles))
}

// readStart reads the beginning of a file with one call, and gives the number of bytes; none
// where it cannot be read.
func readStart(f *os.File, buf []byte) int {
	for {
		n, err := unix.Pread(int(f.Fd()), buf, 0)
		if err != unix.EINTR {
			return max(n, 0)
		}
	}
}

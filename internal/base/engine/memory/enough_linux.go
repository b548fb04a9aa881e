package memory

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// askFrom is from how many bytes on the system is asked whether it has them.
const askFrom = 64 << 20

// enough refuses to fault in what the system does not have: it does not say no to
// that but kills a process, of its choice. Where it does not tell what it has,
// all is well.
func enough(size int64) error {
	if size < askFrom {
		return nil
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil //nolint:nilerr // not told
	}
	if have, ok := available(text); ok && size > have {
		return fmt.Errorf("%w: %d bytes are available (MemAvailable in /proc/meminfo)", unix.ENOMEM, have)
	}
	return nil
}

// available finds MemAvailable in /proc/meminfo, in bytes.
// Source: Documentation/filesystems/proc.rst.
func available(meminfo []byte) (int64, bool) {
	for line := range bytes.Lines(meminfo) {
		f := bytes.Fields(line)
		if len(f) != 3 || string(f[0]) != "MemAvailable:" || string(f[2]) != "kB" {
			continue
		}
		kib, err := strconv.ParseInt(string(f[1]), 10, 53)
		return kib << 10, err == nil
	}
	return 0, false
}

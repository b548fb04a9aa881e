//go:build unix

package self

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is the processor time that this process has taken, of all its threads.
func CPU(context.Context) (time.Duration, bool) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}

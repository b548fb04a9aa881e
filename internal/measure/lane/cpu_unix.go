//go:build unix

package lane

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// OwnCPU is the processor time that this process has taken, of all its threads: for
// Lane.CPU where both ends are in it.
func OwnCPU(context.Context) (time.Duration, bool) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}

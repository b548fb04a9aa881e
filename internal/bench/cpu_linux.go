package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// processCPU is the processor time that a process of this host has taken, of all
// its threads. Source: clock_getcpuclockid(3) of glibc: the clock of a process is
// its ID, inverted, with the kind of clock (2: what the scheduler counts) below.
func processCPU(pid int) (time.Duration, bool) {
	const (
		scheduled = 2
		pidsMost  = 1 << 22 // of a 64-bit kernel; more would not fit into the clock's name
	)
	var ts unix.Timespec
	if pid <= 0 || pid > pidsMost || unix.ClockGettime(int32(^pid<<3|scheduled), &ts) != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

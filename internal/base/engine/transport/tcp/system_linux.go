package tcp

import "golang.org/x/sys/unix"

// congestionControl is the name of the algorithm in force, "" not known.
func congestionControl(fd uintptr) string {
	name, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	if err != nil {
		return ""
	}
	return name
}

// yield lets other threads run that wait for this processor. Goroutines are not
// concerned: while one polls, the others have the rest of GOMAXPROCS.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

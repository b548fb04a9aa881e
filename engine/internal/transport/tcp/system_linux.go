package tcp

import "golang.org/x/sys/unix"

// yield lets other threads run that wait for this processor. Goroutines are not
// concerned: while one polls, the others have the rest of GOMAXPROCS.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

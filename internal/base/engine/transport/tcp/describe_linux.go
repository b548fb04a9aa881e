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

package session

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// unacknowledged is how long the peer's kernel may take nothing of what we have sent until
// ours ends the connection: as long as a peer may be unreachable by default. Without it that is
// 15 minutes.
const unacknowledged = 10 * time.Second

// Tune prepares a socket before it connects or listens. Connections that stay on
// the host (local) get a congestion control that does not pace them: pacing, which
// BBR does, halves what the loopback interface carries, and cannot be undone for a
// connection that began with it. cubic may need rights that we lack, reno never
// does. Where neither is there, the system's stays.
func Tune(fd uintptr, local bool) {
	limitSilence(fd)
	if !local {
		return
	}
	for _, name := range []string{"cubic", "reno"} {
		if unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name) == nil {
			return
		}
	}
}

// limitSilence sets unacknowledged for a socket. Not every kernel has connections inherit it.
func limitSilence(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
}

// bindInterface keeps a socket's packets on one interface, where we may ask for
// that: the source address alone steers it otherwise.
func bindInterface(fd uintptr, name string) error {
	err := unix.BindToDevice(int(fd), name)
	if err == unix.EPERM {
		return nil
	}
	return err
}

// deferPort lets the kernel choose the port when it knows the destination too, so
// that the ports of a source address do not run out.
func deferPort(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
}

func congestionControl(fd uintptr) string {
	s, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	if err != nil {
		return ""
	}
	return s
}

// delivered asks the kernel how many bytes the peer's has taken, and whether
// that is all that we wrote.
func delivered(c net.Conn) (bytes uint64, all, ok bool) {
	_ = control(c, func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			bytes, all, ok = info.Bytes_acked, info.Unacked == 0 && info.Notsent_bytes == 0, true
		}
	})
	return bytes, all, ok
}

package rdma

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// routeFrom asks the kernel whether packets from a GID's interface find a way to an
// address: a UDP socket that is bound to the interface is connected, which sends
// nothing.
func routeFrom(from gid, to netip.Addr) (ok, known bool) {
	ifi, err := net.InterfaceByIndex(from.iface)
	if from.iface == 0 || err != nil {
		return false, false
	}
	family, addr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: 4791, Addr: to.As16()})
	if to.Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: 4791, Addr: to.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, false
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.BindToDevice(fd, ifi.Name); err != nil {
		return false, false
	}
	switch err := unix.Connect(fd, addr); err {
	case nil:
		return true, true
	case unix.ENETUNREACH, unix.EHOSTUNREACH:
		return false, true
	default:
		return false, false
	}
}

package discover

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// kernelEvents is the group of the kernel's own uevents; udev uses the next one.
const kernelEvents = 1

// openEvents opens the sockets on which the kernel reports changes. That needs no privileges,
// but a sandbox may refuse it.
func openEvents() (sources []eventSource, refused []error) {
	const routing = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE
	for _, s := range []struct {
		name     string
		protocol int
		groups   uint32
		read     func([]byte) []string
	}{
		{"changes of links, addresses and routes (rtnetlink)", unix.NETLINK_ROUTE, routing, routeEvents},
		{"changes of devices (uevents)", unix.NETLINK_KOBJECT_UEVENT, kernelEvents, deviceEvents},
	} {
		file, err := subscribe(s.protocol, s.groups)
		if err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		sources = append(sources, eventSource{name: s.name, file: file, read: s.read})
	}
	return sources, refused
}

// subscribe opens a socket that receives the messages of some groups. The netlink library takes
// uevents, which are text, for broken messages, so it is not used here.
func subscribe(protocol int, groups uint32) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// isOverrun reports whether messages were lost because they were not read in time.
func isOverrun(err error) bool { return errors.Is(err, unix.ENOBUFS) }

// routeEvents translates the messages of a datagram. Each begins with its length and type, four
// and two bytes, and ends at a multiple of four.
func routeEvents(datagram []byte) []string {
	var told []string
	for len(datagram) >= unix.SizeofNlMsghdr {
		size := binary.NativeEndian.Uint32(datagram)
		switch binary.NativeEndian.Uint16(datagram[4:]) {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			told = append(told, "link")
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			told = append(told, "address")
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			told = append(told, "route")
		}
		if size < unix.SizeofNlMsghdr || uint64(size) > uint64(len(datagram)) {
			break
		}
		datagram = datagram[min(int(size+3)&^3, len(datagram)):]
	}
	return told
}

// deviceEvents translates a uevent: "add@/devices/...", then KEY=VALUE fields, each followed by
// a zero byte. Devices that are not part of a topology are ignored.
// Source: lib/kobject_uevent.c.
func deviceEvents(message []byte) []string {
	for field := range bytes.SplitSeq(message, []byte{0}) {
		if subsystem, ok := bytes.CutPrefix(field, []byte("SUBSYSTEM=")); ok {
			switch s := string(subsystem); s {
			case "pci", "infiniband", "net", "drm", "nvme":
				return []string{s}
			}
			return nil
		}
	}
	return nil
}

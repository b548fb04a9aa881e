package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
)

// Listen listens for peers at host:port, with the settings that connections
// inherit from their listener: see Tune. Of a range of ports, host:first-last, it takes the first
// that is free.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	host, ports, err := net.SplitHostPort(address)
	first, last, ranged := strings.Cut(ports, "-")
	if err != nil || !ranged {
		return listen(ctx, address)
	}
	from, err := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	if err != nil || err2 != nil || from == 0 || from > to {
		return nil, fmt.Errorf("listen %q: want a range of ports, first-last, from 1 to 65535", address)
	}
	for port := from; port <= to; port++ {
		l, err := listen(ctx, net.JoinHostPort(host, strconv.FormatUint(port, 10)))
		if !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
	}
	return nil, fmt.Errorf("listen %s: %w: all of these ports", address, syscall.EADDRINUSE)
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	lc := net.ListenConfig{
		Control: func(_, address string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) { Tune(fd, loopback(address)) })
		},
	}
	return lc.Listen(ctx, "tcp", address)
}

// CongestionControl is the algorithm that is in force for a connection, "" where
// that cannot be asked.
func CongestionControl(c net.Conn) (name string) {
	_ = control(c, func(fd uintptr) { name = congestionControl(fd) })
	return name
}

var errNoSocket = errors.New("the connection has no socket")

// control calls f with a connection's socket.
func control(c net.Conn, f func(fd uintptr)) error {
	sc, ok := socketOf(c).(syscall.Conn)
	if !ok {
		return errNoSocket
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(f)
}

// closed says whether our own side has closed a connection.
func closed(c net.Conn) bool {
	err := control(c, func(uintptr) {})
	return err != nil && !errors.Is(err, errNoSocket)
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// sameHost says whether packets to an address never leave this host.
func sameHost(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if ip.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().Unmap().WithZone("") == ip {
			return true
		}
	}
	return false
}

// dialRoute connects over one route. control is called for the socket as well.
func dialRoute(ctx context.Context, r Route, control func(fd uintptr) error) (*net.TCPConn, error) {
	local := sameHost(r.Remote.Addr())
	d := net.Dialer{
		Control: func(_, _ string, raw syscall.RawConn) error {
			var inner error
			err := raw.Control(func(fd uintptr) {
				Tune(fd, local)
				// A socket that is bound to an interface does not hear its own host.
				if r.Interface != "" && !local {
					inner = bindInterface(fd, r.Interface)
				}
				if inner == nil && r.Local.IsValid() {
					deferPort(fd)
				}
				if inner == nil && control != nil {
					inner = control(fd)
				}
			})
			return errors.Join(err, inner)
		},
	}
	if r.Local.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(r.Local, 0))
	}
	c, err := d.DialContext(ctx, "tcp", r.Remote.String())
	if err != nil {
		return nil, err
	}
	tc, ok := c.(*net.TCPConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("%T is not a TCP connection", c)
	}
	return tc, nil
}

func addrOf(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}

// noFilesLeft says whether accepting failed because there are no descriptors left.
func noFilesLeft(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

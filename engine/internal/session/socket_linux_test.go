package session

import (
	"context"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// A connection that the network swallows is ended by the kernel, at whichever end. One that
// stays on the host is not paced.
func TestSocketSettings(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := dialRoute(context.Background(), Route{Remote: l.Addr().(*net.TCPAddr).AddrPort()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	_ = control(accepted, limitSilence) // as the server does
	for name, c := range map[string]net.Conn{"dialled": dialled, "accepted": accepted} {
		if cc := CongestionControl(c); cc != "cubic" && cc != "reno" {
			t.Errorf("%s has %q", name, cc)
		}
		err := control(c, func(fd uintptr) {
			got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			if want := int(unacknowledged.Milliseconds()); err != nil || got != want {
				t.Errorf("%s: %d ms, want %d: %v", name, got, want, err)
			}
			if i, err := unix.GetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE); err != nil || i != "" {
				t.Errorf("%s is bound to %q: %v", name, i, err)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}

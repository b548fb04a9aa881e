package self

import (
	"net"
	"net/netip"
	"testing"
)

func TestAddress(t *testing.T) {
	want := map[string]bool{"127.0.0.9": true, "::1": true, "::ffff:127.0.0.1": true, "192.0.2.1": false, "2001:db8::1": false}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		want[netip.MustParsePrefix(a.String()).Addr().String()] = true
	}
	for address, own := range want {
		if got := Address(netip.MustParseAddr(address)); got != own {
			t.Errorf("%s: %v", address, got)
		}
	}
}

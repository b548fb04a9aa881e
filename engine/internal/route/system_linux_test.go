package route

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// The kernel's own answers, in a network namespace with a bridge of containers
// and a network port.
func TestSystem(t *testing.T) {
	runtime.LockOSThread() // the thread goes with the namespace, it is not unlocked
	ns, err := netns.New()
	if err != nil {
		t.Skipf("a network namespace is not permitted here: %v", err)
	}
	defer ns.Close()
	up := func(name, address string) {
		t.Helper()
		link, err := netlink.LinkByName(name)
		if err != nil {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = name
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
				t.Skipf("no bridge on this kernel: %v", err)
			}
			if link, err = netlink.LinkByName(name); err != nil {
				t.Fatal(err)
			}
		}
		if address != "" {
			a, err := netlink.ParseAddr(address)
			if err != nil {
				t.Fatal(err)
			}
			if err := netlink.AddrAdd(link, a); err != nil {
				t.Fatal(err)
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
	}
	up("lo", "")
	up("docker0", "172.17.0.1/16")
	up("eth2", "10.0.0.2/24")
	h, err := System()
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]string{"127.0.0.1": "lo", "172.17.0.1": "docker0", "10.0.0.2": "eth2"} {
		if got := h.interfaceOf(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is of %q, want %q", addr, got, want)
		}
	}
	for peer, want := range map[string]string{"10.0.0.7": "10.0.0.2", "172.17.0.9": "172.17.0.1", "127.0.0.1": "127.0.0.1", "10.0.0.2": "10.0.0.2"} {
		if got, err := h.Source(netip.MustParseAddr(peer)); err != nil || got.Unmap() != netip.MustParseAddr(want) {
			t.Errorf("for %s: %v, %v: want %s", peer, got, err, want)
		}
	}
	if got, err := h.Source(netip.MustParseAddr("8.8.8.8")); err == nil {
		t.Errorf("no default route: %v", got)
	}
}

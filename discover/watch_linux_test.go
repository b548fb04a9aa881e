package discover

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

// envNamespace makes the test binary a child in a network namespace of its own.
const envNamespace = "TOPOCTL_TEST_NAMESPACE"

// inNamespace runs the calling test again in a network namespace where it is root, or skips
// it. It is true in the child.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envNamespace) != "" {
		return true
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("unshare is not installed: no network namespace")
	}
	if out, err := exec.Command(unshare, "-rn", "true").CombinedOutput(); err != nil {
		t.Skipf("no network namespace here: %v: %s", err, out)
	}
	cmd := exec.Command(unshare, "-rn", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), envNamespace+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("in the namespace: %v", err)
	}
	return false
}

// The kernel tells of links, addresses and routes as they change.
func TestWatchKernel(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	told, notes, _ := watching(t, WatchOptions{Settle: 20 * time.Millisecond}, openEvents)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	// The watch may not listen yet, or begin after a switch has told of its link: switch until it
	// tells of one.
	for up, why := true, ""; !strings.Contains(why, "link"); up = !up {
		if up {
			err = netlink.LinkSetUp(lo)
		} else {
			err = netlink.LinkSetDown(lo)
		}
		if err != nil {
			t.Fatal(err)
		}
		select {
		case why = <-told:
		case <-time.After(30 * time.Millisecond):
		}
	}
	until := func(want string) {
		t.Helper()
		for !slices.Contains(strings.Split(next(t, told), ", "), want) {
		}
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 9, 8, 7), Mask: net.CIDRMask(24, 32)}}); err != nil {
		t.Fatal(err)
	}
	until("address")
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4(10, 77, 0, 0), Mask: net.CIDRMask(16, 32)}}); err != nil {
		t.Fatal(err)
	}
	until("route")
	select {
	case note := <-notes:
		t.Logf("note: %s", note) // a sandbox may refuse uevents
	default:
	}
}

// Bytes that go over the loopback interface are seen on it.
func TestSampleLive(t *testing.T) {
	tp := &topo.Topology{Netdevs: []topo.Netdev{{Node: topo.Node{ID: "net:lo", Kind: topo.KindNetdev}, Name: "lo"}}}
	s, err := NewSampler(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	before := take(t, s, tp, 0)
	if len(before.Ports) != 1 || before.Ports[0].SentBytes == nil {
		t.Skipf("this sandbox does not count the bytes of lo: %+v", before)
	}
	const bytes = 1 << 20
	talk(t, bytes)
	after := take(t, s, tp, time.Second)
	rate := counters.Between(before, after).Ports["net:lo"]
	if rate.SentBytesPerSec == nil || *rate.SentBytesPerSec < bytes || *rate.ReceivedBytesPerSec < bytes || *rate.SentPacketsPerSec < 1 {
		t.Errorf("after %d bytes: %+v from %+v and %+v", bytes, rate, before.Ports[0], after.Ports[0])
	}
	if p := after.Ports[0]; p.State == "" || p.BytesPerSec != nil {
		t.Errorf("%+v: lo has a state and no rate", p)
	}
}

// talk sends bytes to itself.
func talk(t *testing.T, bytes int) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Skipf("no loopback interface here: %v", err)
	}
	defer func() { _ = l.Close() }()
	got := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			buf := make([]byte, bytes)
			for n := 0; n < bytes && err == nil; {
				var k int
				k, err = c.Read(buf)
				n += k
			}
			_ = c.Close()
		}
		got <- err
	}()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// message is a netlink message as the kernel writes it.
func message(kind uint16, payload int) []byte {
	b := make([]byte, unix.SizeofNlMsghdr+payload, unix.SizeofNlMsghdr+payload+3)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	return b[:(len(b)+3)&^3]
}

func TestRouteEvents(t *testing.T) {
	many := slices.Concat(message(unix.RTM_NEWLINK, 17), message(unix.RTM_DELADDR, 0), message(unix.NLMSG_NOOP, 4), message(unix.RTM_NEWROUTE, 9))
	short := message(unix.RTM_NEWLINK, 4)
	binary.NativeEndian.PutUint32(short, 3)
	long := message(unix.RTM_NEWLINK, 4)
	binary.NativeEndian.PutUint32(long, 1<<31)
	for _, tt := range []struct {
		name     string
		datagram []byte
		want     []string
	}{
		{"several", many, []string{"link", "address", "route"}},
		{"cut", many[:53], []string{"link", "address"}},
		{"a length that is too small", append(short, many...), []string{"link"}},
		{"a length that is too large", append(long, many...), []string{"link"}},
		{"nothing", nil, nil},
		{"less than a header", many[:10], nil},
	} {
		if diff := cmp.Diff(tt.want, routeEvents(tt.datagram)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
	}
}

func TestDeviceEvents(t *testing.T) {
	for in, want := range map[string]string{
		"add@/devices/x\x00ACTION=add\x00DEVPATH=/devices/x\x00SUBSYSTEM=infiniband\x00SEQNUM=1\x00": "[infiniband]",
		"remove@/devices/y\x00ACTION=remove\x00SUBSYSTEM=net\x00INTERFACE=eth0\x00":                  "[net]",
		"bind@/devices/z\x00SUBSYSTEM=pci\x00":                                                       "[pci]",
		"add@/module/x\x00SUBSYSTEM=module\x00":                                                      "[]",
		"add@/devices/x\x00":                                                                         "[]",
		"SUBSYSTEM=\x1b[31m":                                                                         "[]",
		"libudev\x00\xfe\xed\xca\xfe":                                                                "[]",
		"":                                                                                           "[]",
	} {
		if got := fmt.Sprint(deviceEvents([]byte(in))); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// Whatever arrives, the words are those that Watch may tell.
func FuzzEvents(f *testing.F) {
	f.Add(slices.Concat(message(unix.RTM_NEWLINK, 17), message(unix.RTM_DELADDR, 0)))
	f.Add([]byte("add@/devices/x\x00SUBSYSTEM=pci\x00"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		words := []string{"link", "address", "route", "pci", "infiniband", "net", "drm", "nvme"}
		for _, got := range slices.Concat(routeEvents(b), deviceEvents(b)) {
			if !slices.Contains(words, got) {
				t.Errorf("%q tells %q", b, got)
			}
		}
	})
}

// A context that has ended ends the watch at once.
func TestWatchEnds(t *testing.T) {
	noLeaks(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Watch(ctx, WatchOptions{}, func(string) { t.Error("told a change") }); err != nil {
		t.Errorf("error %v", err)
	}
}

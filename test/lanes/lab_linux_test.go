package lanes

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// lab is two namespaces, this process's and the far one's, with lanes between
// them: lane i is the interface near<i> here and far<i> there, in a subnet of its
// own.
type lab struct {
	t     *testing.T
	lanes int
	near  *netlink.Handle
	there *netlink.Handle
	far   *farProcess
}

const burstBytes = 256 << 10

// newLab builds lanes of these rates, in Mbit/s, that the kernel shapes.
func newLab(t *testing.T, mbits ...int) *lab {
	t.Helper()
	l := newNamespaces(t, len(mbits))
	for i, mbit := range mbits {
		l.addLane(i)
		l.setRate(i, mbit)
	}
	return l
}

// newWires builds lanes of these rates, in Mbit/s, that this process carries.
func newWires(t *testing.T, mbits ...int) *lab {
	t.Helper()
	l := newNamespaces(t, len(mbits))
	for i, mbit := range mbits {
		l.addWire(i, mbit)
	}
	return l
}

// newNamespaces is a lab without lanes.
func newNamespaces(t *testing.T, lanes int) *lab {
	t.Helper()
	if notPermitted != "" {
		t.Skip(notPermitted)
	}
	l := &lab{t: t, lanes: lanes, far: startFar(t)}
	var err error
	if l.near, err = netlink.NewHandle(); err != nil {
		t.Skipf("no netlink: %v", err)
	}
	t.Cleanup(l.near.Close)
	ns, err := netns.GetFromPid(l.far.pid())
	if err != nil {
		t.Fatalf("the far namespace: %v", err)
	}
	l.there, err = netlink.NewHandleAt(ns)
	ns.Close()
	if err != nil {
		t.Fatalf("netlink in the far namespace: %v", err)
	}
	t.Cleanup(l.there.Close)
	for _, h := range []*netlink.Handle{l.near, l.there} {
		lo, err := h.LinkByName("lo")
		l.must("lo", err)
		l.must("lo up", h.LinkSetUp(lo))
	}
	return l
}

func (l *lab) must(what string, err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatalf("lab: %s: %v", what, err)
	}
}

func nearName(i int) string { return fmt.Sprintf("near%d", i) }
func farName(i int) string  { return fmt.Sprintf("far%d", i) }

// nearAddr and farAddr are the ends of a lane.
func nearAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, byte(i), 1}) }
func farAddr(i int) netip.Addr  { return netip.AddrFrom4([4]byte{10, 77, byte(i), 2}) }

func (l *lab) addLane(i int) {
	l.t.Helper()
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: nearName(i)}, PeerName: farName(i),
		PeerNamespace: netlink.NsPid(l.far.pid()),
	}
	if err := l.near.LinkAdd(veth); err != nil {
		l.t.Skipf("no veth pair can be made here: %v", err)
	}
	l.t.Cleanup(func() { _ = l.near.LinkDel(veth) }) // with its other end
	l.address(i)
}

// address gives both ends of a lane their addresses, and takes them up.
func (l *lab) address(i int) {
	l.t.Helper()
	for _, end := range []struct {
		h    *netlink.Handle
		name string
		addr netip.Addr
	}{{l.near, nearName(i), nearAddr(i)}, {l.there, farName(i), farAddr(i)}} {
		link := l.link(end.h, end.name)
		address := &netlink.Addr{IPNet: &net.IPNet{IP: end.addr.AsSlice(), Mask: net.CIDRMask(24, 32)}}
		l.must("address", end.h.AddrAdd(link, address))
		l.must("up", end.h.LinkSetUp(link))
	}
}

func (l *lab) link(h *netlink.Handle, name string) netlink.Link {
	l.t.Helper()
	link, err := h.LinkByName(name)
	l.must(name, err)
	return link
}

// ends calls f for both ends of a lane.
func (l *lab) ends(i int, f func(h *netlink.Handle, link netlink.Link)) {
	l.t.Helper()
	f(l.near, l.link(l.near, nearName(i)))
	f(l.there, l.link(l.there, farName(i)))
}

// setRate shapes a lane in both directions, as it was made or anew.
func (l *lab) setRate(i, mbit int) {
	l.t.Helper()
	l.ends(i, func(h *netlink.Handle, link netlink.Link) {
		rate := uint64(mbit) * 1e6 / 8
		err := h.QdiscReplace(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       rate, Limit: 4 << 20, Buffer: netlink.Xmittime(rate, burstBytes),
		})
		if err != nil {
			l.t.Skipf("the kernel cannot shape a link (tc tbf): %v", err)
		}
	})
}

// down takes a lane's link down, and up brings it back: both ends see it.
func (l *lab) down(i int) {
	l.t.Helper()
	l.must("down", l.near.LinkSetDown(l.link(l.near, nearName(i))))
}

func (l *lab) up(i int) {
	l.t.Helper()
	l.must("up", l.near.LinkSetUp(l.link(l.near, nearName(i))))
}

// silence loses every packet of a lane, and neither end's link shows it: they are
// sent to a hardware address that nobody has.
func (l *lab) silence(i int) {
	l.t.Helper()
	nobody, err := net.ParseMAC("02:00:00:00:00:99")
	l.must("address", err)
	l.neighbour(i, nobody, nobody)
}

// heal ends silence.
func (l *lab) heal(i int) {
	l.t.Helper()
	near, there := l.link(l.near, nearName(i)), l.link(l.there, farName(i))
	l.neighbour(i, there.Attrs().HardwareAddr, near.Attrs().HardwareAddr)
}

// neighbour says what hardware address each end sends to.
func (l *lab) neighbour(i int, ofFar, ofNear net.HardwareAddr) {
	l.t.Helper()
	l.ends(i, func(h *netlink.Handle, link netlink.Link) {
		addr, mac := farAddr(i), ofFar
		if h == l.there {
			addr, mac = nearAddr(i), ofNear
		}
		l.must("neighbour", h.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT,
			IP: addr.AsSlice(), HardwareAddr: mac,
		}))
	})
}

// counters are the bytes that each lane has carried to the far end and from it.
func (l *lab) counters() (sent, received []uint64) {
	l.t.Helper()
	for i := range l.lanes {
		s := l.link(l.near, nearName(i)).Attrs().Statistics
		sent, received = append(sent, s.TxBytes), append(received, s.RxBytes)
	}
	return sent, received
}

// wireEfficiency is payload per byte that tbf counts, with 1500-byte packets:
// Ethernet, IP, TCP with timestamps.
const wireEfficiency = 1448.0 / 1514

// payload is what lanes of these rates carry, in bytes per second.
func payload(mbits ...int) float64 {
	sum := 0
	for _, m := range mbits {
		sum += m
	}
	return float64(sum) * 1e6 / 8 * wireEfficiency
}

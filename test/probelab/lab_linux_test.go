package probelab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// lab is hosts with ports, and the switches between them: rail r joins the ports eth<r> of
// all hosts by a bridge, in a subnet of its own. A cable is a veth pair, shaped at the
// host's end for what the host sends, at the switch's for what it receives.
type lab struct {
	t      *testing.T
	number int             // of labs that share the switches' namespace
	here   *netlink.Handle // the switches'
	mbit   int             // that each port promises and carries; 0 nothing is known of it
	rails  int
	hosts  []*host
	token  string // its file
}

var labs atomic.Int32

// mtu is large, so that headers are half a percent of what a cable carries.
const mtu = 9000

// burst and queueBytes are of a shaper. A machine whose processors are taken away for a
// moment (steal, in /proc/stat) shapes nothing meanwhile: a wire of that long catches up, as
// hardware would have gone on. Packets do not
// wait long in the second.
const (
	burst      = 50 * time.Millisecond
	queueBytes = 96 << 10
)

// newLab cables hosts whose ports promise a rate, and carry it, and starts their agents.
func newLab(t *testing.T, hosts, rails, mbit int) *lab {
	t.Helper()
	if notPermitted != "" {
		t.Skip(notPermitted)
	}
	l := &lab{t: t, number: int(labs.Add(1)), mbit: mbit, rails: rails, token: filepath.Join(t.TempDir(), "token")}
	l.must("token", os.WriteFile(l.token, []byte("the-token-of-the-probe-lab\n"), 0o600))
	var err error
	if l.here, err = netlink.NewHandle(); err != nil {
		t.Skipf("no netlink: %v", err)
	}
	t.Cleanup(l.here.Close)
	l.loopback(l.here)
	for r := range rails {
		l.addSwitch(r)
	}
	for i := range hosts {
		h := l.startHost(i)
		l.hosts = append(l.hosts, h)
		for r := range rails {
			l.addCable(h, r)
			l.shape(cable{i, r, bothWays}, mbit)
		}
	}
	for _, h := range l.hosts {
		h.startAgent()
	}
	return l
}

func (l *lab) must(what string, err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatalf("lab: %s: %v", what, err)
	}
}

func (l *lab) loopback(h *netlink.Handle) {
	l.t.Helper()
	lo, err := h.LinkByName("lo")
	l.must("lo", err)
	l.must("lo up", h.LinkSetUp(lo))
}

func portName(rail int) string { return fmt.Sprintf("eth%d", rail) }

// addressOf is that of a host's port; host -1 is the switch.
func (l *lab) addressOf(host, rail int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(l.number), byte(rail), byte(host + 2)})
}

func (l *lab) switchName(rail int) string { return fmt.Sprintf("rail%d-%d", l.number, rail) }

func (l *lab) switchPort(host, rail int) string {
	return fmt.Sprintf("n%d-%d-%d", host+1, l.number, rail)
}

func (l *lab) addSwitch(rail int) {
	l.t.Helper()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: l.switchName(rail), MTU: mtu}}
	if err := l.here.LinkAdd(bridge); err != nil {
		l.t.Skipf("no bridge can be made here: %v", err)
	}
	l.t.Cleanup(func() { _ = l.here.LinkDel(bridge) })
	l.address(l.here, bridge, l.addressOf(-1, rail))
	l.must("up", l.here.LinkSetUp(bridge))
}

func (l *lab) address(h *netlink.Handle, link netlink.Link, a netip.Addr) {
	l.t.Helper()
	l.must("address", h.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(24, 32)}}))
}

func (l *lab) addCable(h *host, rail int) {
	l.t.Helper()
	if h.there == nil {
		ns, err := netns.GetFromPid(h.cmd.Process.Pid)
		l.must("namespace", err)
		h.there, err = netlink.NewHandleAt(ns)
		ns.Close()
		l.must("netlink", err)
		l.t.Cleanup(h.there.Close)
		l.loopback(h.there)
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: l.switchPort(h.number, rail), MTU: mtu}, PeerName: portName(rail), PeerNamespace: netlink.NsPid(h.cmd.Process.Pid), PeerMTU: mtu}
	if err := l.here.LinkAdd(veth); err != nil {
		l.t.Skipf("no veth pair can be made here: %v", err)
	}
	l.t.Cleanup(func() { _ = l.here.LinkDel(veth) }) // with its other end
	bridge, err := l.here.LinkByName(l.switchName(rail))
	l.must("bridge", err)
	l.must("plug in", l.here.LinkSetMaster(veth, bridge))
	l.must("up", l.here.LinkSetUp(veth))
	port, err := h.there.LinkByName(portName(rail))
	l.must("port", err)
	l.address(h.there, port, l.addressOf(h.number, rail))
	l.must("up", h.there.LinkSetUp(port))
}

// way is a direction of a cable, as its host sees it.
type way int

const (
	bothWays way = iota
	sending
	receiving
)

func (w way) String() string { return [...]string{"both ways", "sending", "receiving"}[w] }

// cable is one host's port, in a direction.
type cable struct {
	host, rail int
	way        way
}

func (c cable) String() string {
	return fmt.Sprintf("cable of %s on n%d, %v", portName(c.rail), c.host+1, c.way)
}

// shape sets the rate of a cable; 0 is as fast as it goes.
func (l *lab) shape(c cable, mbit int) {
	l.t.Helper()
	if mbit == 0 {
		return
	}
	if c.way != receiving {
		l.limit(l.hosts[c.host].there, portName(c.rail), mbit)
	}
	if c.way != sending {
		l.limit(l.here, l.switchPort(c.host, c.rail), mbit)
	}
}

func (l *lab) limit(h *netlink.Handle, name string, mbit int) {
	l.t.Helper()
	link, err := h.LinkByName(name)
	l.must(name, err)
	rate := uint64(mbit) * 1e6 / 8
	err = h.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate, Limit: queueBytes, Buffer: netlink.Xmittime(rate, uint32(max(32<<10, float64(rate)*burst.Seconds()))),
	})
	if err != nil {
		l.t.Skipf("the kernel cannot shape a link (tc tbf): %v", err)
	}
}

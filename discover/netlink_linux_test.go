package discover

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
)

// The running kernel answers an unprivileged process, in an order that stays.
func TestDumpNetlink(t *testing.T) {
	noLeaks(t)
	r, err := dumpNetlink(context.Background())
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EAFNOSUPPORT) {
		t.Skipf("this sandbox has no netlink: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Warnings) > 0 || r.Schema != replies.SchemaNetlink {
		t.Errorf("schema %q, warnings %v", r.Schema, r.Warnings)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		at := slices.IndexFunc(r.Links, func(l replies.Link) bool { return l.Index == i.Index })
		if at < 0 || r.Links[at].Name != i.Name || r.Links[at].MTU != i.MTU || r.Links[at].MAC != i.HardwareAddr.String() && i.Flags&net.FlagLoopback == 0 {
			t.Errorf("%+v is not among the links as such", i)
		}
	}
	if !slices.IsSortedFunc(r.Links, func(a, b replies.Link) int { return a.Index - b.Index }) {
		t.Error("links are not in order")
	}
	if err := checkNetlink(r); err != nil {
		t.Errorf("a capture of this host could not be replayed: %v", err)
	}
}

func TestDumpRetries(t *testing.T) {
	interrupted := func(times int) func() ([]int, error) {
		return func() ([]int, error) {
			if times--; times >= 0 {
				return []int{1}, netlink.ErrDumpInterrupted
			}
			return []int{1, 2}, nil
		}
	}
	if got, err := dump(context.Background(), interrupted(2)); err != nil || len(got) != 2 {
		t.Errorf("%v, %v; want all after two interruptions", got, err)
	}
	got, err := dump(context.Background(), interrupted(9))
	if !errors.Is(err, netlink.ErrDumpInterrupted) || len(got) != 1 {
		t.Errorf("%v, %v; want what there is and the reason", got, err)
	}
	r := &replies.NetlinkReport{}
	note(r, "routes", err)
	note(r, "addresses", unix.EPERM)
	note(r, "nothing", nil)
	if len(r.Warnings) != 2 || r.Warnings[0].Code != topo.CodeVanished || r.Warnings[1].Code != topo.CodeSourceFailed {
		t.Errorf("warnings %v", r.Warnings)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := dump(cancelled, interrupted(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestLinkAnswer(t *testing.T) {
	names := map[int]string{3: "eth0", 4: "bond0"}
	mac, err := net.ParseMAC("02:00:00:00:00:01")
	if err != nil {
		t.Fatal(err)
	}
	attrs := func(a netlink.LinkAttrs) netlink.LinkAttrs {
		a.NetNsID = max(a.NetNsID, -1)
		if a.NetNsID == 0 {
			a.NetNsID = -1
		}
		return a
	}
	bond := netlink.NewLinkBond(attrs(netlink.LinkAttrs{Index: 4, Name: "bond0", OperState: netlink.OperLowerLayerDown}))
	bond.Mode, bond.XmitHashPolicy, bond.ActiveSlave = netlink.BOND_MODE_802_3AD, netlink.BOND_XMIT_HASH_POLICY_LAYER3_4, 3
	bare := netlink.NewLinkBond(attrs(netlink.LinkAttrs{Index: 5}))
	bare.Mode = netlink.BOND_MODE_UNKNOWN
	elsewhere := attrs(netlink.LinkAttrs{Index: 8, ParentIndex: 3})
	elsewhere.NetNsID = 2
	for _, tt := range []struct {
		link netlink.Link
		want replies.Link
	}{
		{bond, replies.Link{Index: 4, Name: "bond0", Kind: "bond", OperState: "lowerlayerdown",
			Bond: &topo.Bond{Mode: "802.3ad", HashPolicy: "layer3+4", ActiveLeg: "eth0"}}},
		{bare, replies.Link{Index: 5, Kind: "bond", OperState: "unknown", Bond: &topo.Bond{}}},
		{&netlink.Vlan{LinkAttrs: attrs(netlink.LinkAttrs{Index: 6, ParentIndex: 4}), VlanId: 100},
			replies.Link{Index: 6, Kind: "vlan", Parent: 4, VLANID: new(100), OperState: "unknown"}},
		{&netlink.Veth{LinkAttrs: attrs(netlink.LinkAttrs{Index: 7, ParentIndex: 4, HardwareAddr: mac, OperState: netlink.OperUp})},
			replies.Link{Index: 7, Kind: "veth", MAC: mac.String(), OperState: "up"}},
		{&netlink.Macvlan{LinkAttrs: elsewhere}, replies.Link{Index: 8, Kind: "macvlan", OperState: "unknown"}},
		{&netlink.Device{LinkAttrs: attrs(netlink.LinkAttrs{Index: 3, EncapType: "ether", MTU: 9000, MasterIndex: 4,
			ParentDev: "0000:03:00.0", ParentDevBus: "pci", Vfs: []netlink.VfInfo{{ID: 1, Mac: mac}}})},
			replies.Link{Index: 3, Kind: "device", Encap: "ether", MTU: 9000, Master: 4, OperState: "unknown",
				ParentDev: "0000:03:00.0", ParentBus: "pci", VFs: []replies.VF{{ID: 1, MAC: mac.String()}}}},
	} {
		if diff := cmp.Diff(tt.want, linkAnswer(tt.link, names)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.link.Type(), diff)
		}
	}
}

func TestRouteAnswers(t *testing.T) {
	network := func(s string) *net.IPNet {
		_, n, err := net.ParseCIDR(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, tt := range []struct {
		route netlink.Route
		want  []replies.Route
	}{
		{netlink.Route{LinkIndex: 2, Gw: net.IPv4(10, 0, 0, 1), Priority: 100}, []replies.Route{{Link: 2, Dst: "default", Gateway: "10.0.0.1", Metric: 100}}},
		{netlink.Route{LinkIndex: 2, Dst: network("0.0.0.0/0")}, []replies.Route{{Link: 2, Dst: "default"}}},
		{netlink.Route{LinkIndex: 2, Dst: network("::/0")}, []replies.Route{{Link: 2, Dst: "default"}}},
		{netlink.Route{LinkIndex: 2, Dst: network("0.0.0.0/1")}, []replies.Route{{Link: 2, Dst: "0.0.0.0/1"}}},
		{
			netlink.Route{Dst: network("10.1.0.0/16"), MultiPath: []*netlink.NexthopInfo{{LinkIndex: 3, Gw: net.IPv4(10, 0, 0, 3)}, {LinkIndex: 4}}},
			[]replies.Route{{Link: 3, Dst: "10.1.0.0/16", Gateway: "10.0.0.3"}, {Link: 4, Dst: "10.1.0.0/16"}},
		},
	} {
		if diff := cmp.Diff(tt.want, routeAnswers(tt.route)); diff != "" {
			t.Errorf("%v (-want +got)\n%s", tt.route, diff)
		}
	}
}

// The library writes a GUID's lowest byte first.
func TestSysfsGUID(t *testing.T) {
	for in, want := range map[string]string{
		"12:8e:5d:00:03:9b:03:98": "9803:9b03:005d:8e12",
		"02:00:00:00:00:01":       "02:00:00:00:00:01",
		"":                        "",
	} {
		if got := sysfsGUID(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

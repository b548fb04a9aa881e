package discover

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// netHost has the named interfaces, numbered from 1, and one PCI function.
func netHost(t testing.TB, names ...string) *topo.Topology {
	b := bdf(t, "0000:03:00.0")
	tp := &topo.Topology{PCIDevices: []topo.PCIDevice{{Node: topo.Node{ID: topo.PCIID(b)}, BDF: b, NUMA: new(1)}}}
	for i, name := range names {
		tp.Netdevs = append(tp.Netdevs, topo.Netdev{Node: topo.Node{ID: topo.NetdevID(name)}, Name: name, Index: new(i + 1)})
	}
	return tp
}

func TestNetlinkFills(t *testing.T) {
	tp := netHost(t, "eth0", "eth10", "eth9", "bond0", "bond0.7")
	tp.Netdevs[0].MTU, tp.Netdevs[0].State = new(9000), "up"
	applyNetlink(tp, &replies.NetlinkReport{
		Links: []replies.Link{
			{Index: 1, Name: "eth0", Kind: "device", Encap: "ether", MTU: 1500, MAC: "02:00:00:00:00:0A", OperState: "down",
				ParentBus: "pci", ParentDev: "0000:03:00.0", VFs: []replies.VF{{ID: 0}, {ID: 1}}},
			{Index: 2, Name: "eth10", Kind: "device", Master: 4, ParentBus: "virtio", ParentDev: "virtio2"},
			{Index: 3, Name: "eth9", Kind: "device", Master: 4, ParentBus: "pci", ParentDev: "../../x"},
			{Index: 4, Name: "bond0", Kind: "bond", Bond: &topo.Bond{Mode: "802.3ad", HashPolicy: "layer3+4"}},
			{Index: 5, Name: "bond0.7", Kind: "vlan", Parent: 4, VLANID: new(7)},
		},
		Addresses: []replies.Address{{Link: 1, CIDR: "10.0.0.1/24"}, {Link: 99, CIDR: "10.9.9.9/24"}},
		Routes:    []replies.Route{{Link: 1, Dst: "default", Gateway: "10.0.0.254", Metric: 100}},
	})
	eth0, bond, vlan := tp.Netdevs[0], tp.Netdevs[3], tp.Netdevs[4]
	if *eth0.MTU != 9000 || eth0.State != "up" || eth0.MAC != "02:00:00:00:00:0a" || eth0.Type != "ether" || eth0.LinkKind != "" {
		t.Errorf("eth0: %+v", eth0)
	}
	if eth0.PCI != "pci:0000:03:00.0" || eth0.NUMA == nil || *eth0.NUMA != 1 || eth0.VFs == nil || *eth0.VFs != 2 {
		t.Errorf("eth0: %+v", eth0)
	}
	if diff := cmp.Diff([]topo.Route{{Dst: "default", Gateway: "10.0.0.254", Metric: 100}}, eth0.Routes); diff != "" {
		t.Errorf("routes of eth0 (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"10.0.0.1/24"}, eth0.Addresses); diff != "" {
		t.Errorf("addresses of eth0 (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"eth9", "eth10"}, bond.Lower); diff != "" || bond.Bond == nil || bond.Bond.Mode != "802.3ad" || bond.LinkKind != "bond" {
		t.Errorf("bond0: %+v (-want +got)\n%s", bond, diff)
	}
	if diff := cmp.Diff([]string{"bond0"}, vlan.Lower); diff != "" || vlan.VLANID == nil || *vlan.VLANID != 7 {
		t.Errorf("bond0.7: %+v (-want +got)\n%s", vlan, diff)
	}
	if tp.Netdevs[1].Master != "bond0" || tp.Netdevs[1].PCI != "" || tp.Netdevs[2].PCI != "" {
		t.Errorf("eth10, eth9: %+v", tp.Netdevs[1:3])
	}
	want := []string{
		"conflict: net:eth0: mtu_bytes: sysfs says 9000, netlink says 1500; kept sysfs's",
		"conflict: net:eth0: state: sysfs says up, netlink says down; kept sysfs's",
	}
	if diff := cmp.Diff(want, warningLines(tp)); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
}

// In a container with the host's /sys, netlink speaks of the container's
// interfaces: even one with a name of the host's is another.
func TestNetlinkOfOtherNamespace(t *testing.T) {
	tp := netHost(t, "lo", "eth0")
	applyNetlink(tp, &replies.NetlinkReport{
		Links: []replies.Link{
			{Index: 1, Name: "lo", MTU: 65536}, {Index: 40, Name: "eth0", MTU: 1450}, {Index: 41, Name: "net1\n", MTU: 1450},
		},
		Addresses: []replies.Address{{Link: 40, CIDR: "10.244.0.7/24"}},
	})
	if n := tp.Netdevs[1]; n.MTU != nil || n.Addresses != nil || len(tp.Netdevs) != 2 {
		t.Errorf("the host's eth0 got the container's facts: %+v", n)
	}
	want := []string{`partial-view: netlink sees 2 interfaces that /sys does not show, so it is in another network namespace: "eth0", "net1\n"`}
	if diff := cmp.Diff(want, warningLines(tp)); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
}

func TestNetlinkRDMA(t *testing.T) {
	tp := &topo.Topology{RDMADevices: []topo.RDMADevice{
		{Node: topo.Node{ID: "rdma:mlx5_0"}, Name: "mlx5_0", Firmware: "28.39", NodeGUID: "a:b"},
		{Node: topo.Node{ID: "rdma:mlx5_1"}, Name: "mlx5_1"},
	}}
	applyNetlink(tp, &replies.NetlinkReport{RDMA: []replies.RDMA{
		{Name: "mlx5_0", Firmware: "28.40", NodeGUID: "c:d"}, {Name: "mlx5_1", Firmware: "28.40", NodeGUID: "c:d"}, {Name: "gone"},
	}})
	if a, b := tp.RDMADevices[0], tp.RDMADevices[1]; a.Firmware != "28.39" || a.NodeGUID != "a:b" || b.Firmware != "28.40" || b.NodeGUID != "c:d" {
		t.Errorf("%+v", tp.RDMADevices)
	}
	if lines := warningLines(tp); len(lines) != 1 || !strings.Contains(lines[0], "firmware: sysfs says 28.39, netlink says 28.40; kept sysfs's") {
		t.Errorf("warnings %q", lines)
	}
}

func TestApplyRDMAMap(t *testing.T) {
	tp := netHost(t)
	pci := tp.PCIDevices[0]
	tp.RDMADevices = []topo.RDMADevice{
		{Node: topo.Node{ID: "rdma:a"}, Name: "a"},
		{Node: topo.Node{ID: "rdma:b"}, Name: "b", PCI: "pci:0000:04:00.0", Netdevs: []string{"eth1", "eth0"}, CharDevs: []string{"/dev/infiniband/uverbs1"}},
		{Node: topo.Node{ID: "rdma:c"}, Name: "c", CharDevs: []string{"/dev/infiniband/uverbs2"}},
		{Node: topo.Node{ID: "rdma:d"}, Name: "d"},
	}
	tp.Warnings = []topo.Warning{{Code: topo.CodeNoPCIParent, Subject: "rdma:a"}}
	applyRDMAMap(tp, map[string]rdmaAnswer{
		"a": {bdf: &pci.BDF, netdevs: []string{"eth0"}, charDevs: []string{"/dev/infiniband/uverbs0", "/dev/infiniband/umad0"}, asked: true},
		"b": {bdf: &pci.BDF, netdevs: []string{"eth0", "eth1"}, charDevs: []string{"/dev/infiniband/uverbs9"}, asked: true},
		"c": {}, "x": {},
	})
	a := tp.RDMADevices[0]
	if a.PCI != pci.ID || a.BDF == nil || a.NUMA == nil || *a.NUMA != 1 || len(a.CharDevs) != 2 || len(a.Netdevs) != 1 {
		t.Errorf("a: %+v", a)
	}
	want := []string{
		"conflict: rdma:b: pci: sysfs says pci:0000:04:00.0, rdmamap says pci:0000:03:00.0; kept sysfs's",
		"conflict: rdma:b: char_devs: sysfs says /dev/infiniband/uverbs1, rdmamap says /dev/infiniband/uverbs9; kept sysfs's",
		"conflict: rdma:d: device: sysfs says it exists, rdmamap says it does not; kept sysfs's",
		"conflict: rdma:x: device: sysfs says it does not exist, rdmamap says it does; kept sysfs's",
	}
	if diff := cmp.Diff(want, warningLines(tp)); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
}

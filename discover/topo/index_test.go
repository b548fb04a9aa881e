package topo_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
)

func TestIndex(t *testing.T) {
	topology := build(t, `numa 0
hb 0000:10 numa0
port 10:01.0 < 0000:10
port 11:00.0 < 10:01.0 gen5x16
port 12:00.0 < 11:00.0
port 12:01.0 < 11:00.0
gpu 13:00.0 < 12:00.0 numa0 gen5x16
nic 14:00.0 < 12:01.0 mlx5_0 numa0 gen5x16 rate=50000000000
nic 14:00.1 < 12:01.0 mlx5_1 numa0 gen5x16 rate=50000000000
nic 14:00.2 < 12:01.0 mlx5_2 numa0 vf=14:00.1
`)
	x := topo.NewIndex(topology)
	pci := func(s string) topo.ID { return topo.PCIID(bdf(s)) }
	if g := x.GPU("gpu:0"); g == nil || g != x.GPUAt(bdf("13:00.0")) || !slices.Equal(x.On(pci("13:00.0")).GPUs, []*topo.GPU{g}) {
		t.Errorf("gpu:0 is %v", g)
	}
	if r := x.RDMADevice("rdma:mlx5_1"); r == nil || len(x.Ports(r.ID)) != 1 || x.Ports(r.ID)[0] != x.Port("port:mlx5_1/1") || !slices.Equal(x.On(r.PCI).RDMADevices, []*topo.RDMADevice{r}) {
		t.Errorf("mlx5_1 is %v", r)
	}
	if n := x.NICOf(pci("14:00.1")); n == nil || n != x.NICOf(pci("14:00.0")) || x.Node("nic:0000:14:00") != any(n) || x.NICOf(pci("14:00.2")) == n {
		t.Errorf("14:00.1 is on %v", n)
	}
	if vfs := x.VFs(pci("14:00.1")); len(vfs) != 1 || vfs[0].ID != pci("14:00.2") {
		t.Errorf("virtual functions: %v", vfs)
	}
	if s := x.SwitchOf(pci("12:01.0")); s == nil || s != x.SwitchOf(pci("11:00.0")) || x.SwitchOf(pci("10:01.0")) != nil {
		t.Errorf("12:01.0 is a port of %v", s)
	}
	if n := x.NUMANodeAt(0); n == nil || n != x.NUMANode("numa:0") || x.NUMANodeAt(1) != nil {
		t.Errorf("NUMA node 0 is %v", n)
	}
	if l := x.LinkAbove(pci("14:00.1")); l == nil || l.ID != "pcie:0000:14:00.0" || l != x.Link(l.ID) || x.LinkAbove(pci("12:01.0")) != nil {
		t.Errorf("the link above 14:00.1 is %v", l)
	}
	if r, ok := x.Relation("gpu:0", "rdma:mlx5_0"); !ok || r.Class.Kind != topo.ClassPIX {
		t.Errorf("GPU and NIC: %v, %v", r, ok)
	}
	if _, ok := x.Relation("gpu:0", "net:none"); ok {
		t.Error("a relation to nothing")
	}
	if got := ids(x.Climb(pci("13:00.0"))); !slices.Equal(got, []topo.ID{pci("13:00.0"), pci("12:00.0"), pci("11:00.0"), pci("10:01.0")}) {
		t.Errorf("above the GPU: %v", got)
	}
	if got := ids(x.Below(pci("12:01.0"))); !slices.Equal(got, []topo.ID{pci("14:00.0"), pci("14:00.1"), pci("14:00.2")}) {
		t.Errorf("below 12:01.0: %v", got)
	}
	if x.GPU("rdma:mlx5_0") != nil || x.Node("gpu:7") != nil || len(x.On("pci:none").GPUs) != 0 {
		t.Error("found what is not there")
	}
}

func ids(visit func(func(*topo.PCIDevice) bool)) []topo.ID {
	var out []topo.ID
	for d := range visit {
		out = append(out, d.ID)
	}
	return out
}

// Every node is found by its ID, and parents and children agree.
func TestIndexFindsEveryNode(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		topology := build(t, drawMachine(rt))
		x := topo.NewIndex(topology)
		found(rt, topology.NUMANodes, x.NUMANode, func(n *topo.NUMANode) topo.ID { return n.ID })
		found(rt, topology.HostBridges, func(id topo.ID) *topo.HostBridge { n, _ := x.Node(id).(*topo.HostBridge); return n }, func(n *topo.HostBridge) topo.ID { return n.ID })
		found(rt, topology.PCIDevices, x.PCIDevice, func(n *topo.PCIDevice) topo.ID { return n.ID })
		found(rt, topology.Switches, x.Switch, func(n *topo.Switch) topo.ID { return n.ID })
		found(rt, topology.GPUs, x.GPU, func(n *topo.GPU) topo.ID { return n.ID })
		found(rt, topology.NICs, func(id topo.ID) *topo.NIC { n, _ := x.Node(id).(*topo.NIC); return n }, func(n *topo.NIC) topo.ID { return n.ID })
		found(rt, topology.RDMADevices, x.RDMADevice, func(n *topo.RDMADevice) topo.ID { return n.ID })
		found(rt, topology.Ports, x.Port, func(n *topo.Port) topo.ID { return n.ID })
		found(rt, topology.Links, x.Link, func(l *topo.Link) topo.LinkID { return l.ID })
		below := 0
		for i := range topology.HostBridges {
			below += len(ids(x.Below(topology.HostBridges[i].ID)))
		}
		if below != len(topology.PCIDevices) {
			rt.Errorf("%d of %d functions are below the host bridges", below, len(topology.PCIDevices))
		}
		for i := range topology.PCIDevices {
			d := &topology.PCIDevices[i]
			if !slices.Contains(x.Children(d.Parent), d) {
				rt.Errorf("%s is no child of %s", d.ID, d.Parent)
			}
			for up := range x.Climb(d.ID) {
				if up != d && !slices.Contains(ids(x.Below(up.ID)), d.ID) {
					rt.Errorf("%s is above %s, which is not below it", up.ID, d.ID)
				}
			}
		}
	})
}

func found[T any, K comparable](t *rapid.T, list []T, find func(K) *T, id func(*T) K) {
	for i := range list {
		if n := &list[i]; find(id(n)) != n {
			t.Errorf("%v is not found by its ID", id(n))
		}
	}
}

// No walk is without end, whatever the parents and IDs are; of two nodes of one ID the
// first is found.
func TestIndexOfNonsense(t *testing.T) {
	function := func(id, parent topo.ID) topo.PCIDevice {
		return topo.PCIDevice{Node: topo.Node{ID: id}, Parent: parent, PF: id}
	}
	topology := &topo.Topology{
		PCIDevices: []topo.PCIDevice{function("a", "b"), function("b", "a"), function("c", "c"), function("d", "hb"), function("d", "d"), function("", "")},
		GPUs:       []topo.GPU{{Node: topo.Node{ID: "gpu"}, Index: 0}, {Node: topo.Node{ID: "gpu"}, Index: 1}},
		NICs:       []topo.NIC{{Node: topo.Node{ID: "a"}, Functions: []topo.ID{"a", "a", "none"}}},
		Switches:   []topo.Switch{{Upstream: "a", Downstream: []topo.ID{"a"}}},
		Links:      []topo.Link{{Kind: topo.LinkPCIe, A: "x", B: "x"}},
	}
	x := topo.NewIndex(topology)
	if g := x.GPU("gpu"); g == nil || g.Index != 0 || len(x.On("").GPUs) != 2 {
		t.Errorf("gpu is %v", g)
	}
	if x.PCIDevice("a") == nil || x.Node("a") != any(x.PCIDevice("a")) {
		t.Error("the function has another node's ID")
	}
	for _, id := range []topo.ID{"a", "b", "c", "d", "hb", "", "none"} {
		if n := len(ids(x.Below(id))); n > len(topology.PCIDevices) {
			t.Errorf("%d functions below %q", n, id)
		}
		for range x.Climb(id) {
		}
		_, _ = x.LinkAbove(id), x.VFs(id)
	}
	if got := ids(x.Below("hb")); !slices.Equal(got, []topo.ID{"d"}) {
		t.Errorf("below hb: %v", got)
	}
}

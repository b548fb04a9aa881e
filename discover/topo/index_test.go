package topo_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
)

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

package pathsel_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// manyGPUs is a host of n GPUs on two sockets, each below a switch with a NIC of
// its own. NIC k of GPU k is called mlx5_N for any numbering, so that names and
// places tell different stories. NUMA nodes may be listed in reverse.
func manyGPUs(name string, n int, number func(k int) int, reverse bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "machine: %s\ndescription: %d GPUs\nhost: {arch: x86_64, kernel: 5.15.0, vendor: Test, product: Box, iommu: identity}\n", name, n)
	b.WriteString("cpu: {vendor: GenuineIntel, family: 6, model: 143, name: Intel Xeon, threads: 1}\n")
	nodes := []string{"- {node: 0, package: 0, cpus: 0-31, mem: 512GiB, distance: [10, 21]}\n", "- {node: 1, package: 1, cpus: 32-63, mem: 512GiB, distance: [21, 10]}\n"}
	if reverse {
		slices.Reverse(nodes)
	}
	b.WriteString("numa:\n" + nodes[0] + nodes[1] + "pci:\n")
	for k := range n {
		bus := 0x10 + 8*k
		fmt.Fprintf(&b, "- root: 0000:%02x\n  numa: %d\n  below:\n  - port: %02x:01.0\n    below:\n    - switch: %02x:00.0\n      part: broadcom-c030\n      below:\n"+
			"      - {down: %02x:00.0, below: [{gpu: %02x:00.0, part: h100-sxm}]}\n"+
			"      - {down: %02x:01.0, below: [{nic: %02x:00.0, part: connectx7, layer: ib, rdma: mlx5_%d, net: ib%d, lid: %d}]}\n",
			bus, 2*k/n, bus, bus+1, bus+2, bus+3, bus+2, bus+4, number(k), number(k), 100+k)
	}
	return b.String()
}

// A peer is never sent to the wrong NIC: what a lane names is the peer's own
// port, one of those that the peer itself prefers for that memory. Mooncake's
// engine numbers the peer's NICs by the order in which it happens to read them,
// and goes to the wrong ones with 12 and 16 GPUs, with NUMA nodes listed in
// reverse, and after a NIC went down (research/mooncake.md G1).
func TestPeerIsSentToTheRightNIC(t *testing.T) {
	straight := func(k int) int { return k }
	down := func(t testing.TB, top *topo.Topology) { rdmaPort(t, top, "mlx5_0").State = "DOWN" }
	for _, tt := range []struct {
		name string
		peer side
		home string
	}{
		{"12 GPUs", side{name: manyGPUs("twelve", 12, straight, false)}, "hgx-h100-8nic"},
		{"16 GPUs", side{name: manyGPUs("sixteen", 16, straight, false)}, "hgx-h100-8nic"},
		{"16 GPUs, NICs numbered backwards", side{name: manyGPUs("backwards", 16, func(k int) int { return 15 - k }, false)}, "hgx-h100-8nic"},
		{"8 GPUs, NICs numbered as GPU k has NIC 3k", side{name: manyGPUs("mixed", 8, func(k int) int { return 3 * k % 8 }, false)}, "hgx-h100-8nic"},
		{"NUMA nodes in reverse", side{name: manyGPUs("reversed", 8, straight, true)}, "hgx-h100-8nic"},
		{"a NIC down", side{name: manyGPUs("broken", 3, straight, false), change: down}, "hgx-h100-8nic"},
		{"a NIC down, two on each socket", side{name: manyGPUs("broken4", 4, straight, false), change: down}, "hgx-h100-8nic"},
		{"DGX H100 with a port down", side{name: "dgx-h100-port-down"}, "hgx-h100-8nic"},
		{"H20 without mlx5_0", side{name: "hgx-h20-8nic"}, "hgx-h20-8nic"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			local, peer := side{name: tt.home}.host(t), tt.peer.other().host(t)
			pair, err := pathsel.Connect(local, peer, pathsel.PairOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, src := range []pathsel.Location{"gpu:0", "gpu:5", "cpu:0", "cpu:1"} {
				for _, dst := range peer.Locations() {
					checkPeer(t, pair, src, dst)
				}
			}
		})
	}
}

// checkPeer: every lane of the nearest tier ends at ports that each side itself
// prefers, or is as near as; every remote port is one that the peer can use; and
// the address to reach it is that port's own.
func checkPeer(t *testing.T, pair *pathsel.Pair, src, dst pathsel.Location) {
	t.Helper()
	set, err := pair.Lanes(src, dst)
	if err != nil {
		t.Fatalf("%s to %s: %v", src, dst, err)
	}
	here, err1 := pair.Local().Affinity(src, nil)
	there, err2 := pair.Remote().Affinity(dst, nil)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for i, l := range set.Lanes {
		port, ok := pair.Remote().Port(l.Remote)
		if !ok || !port.Usable || port.Name != l.RemoteName {
			t.Fatalf("%s to %s: lane %d goes to %s, which the peer cannot use", src, dst, i, l.Remote)
		}
		if l.Tier == 0 && (!slices.Contains(here.Preferred(), l.Local) || !slices.Contains(there.Preferred(), l.Remote)) {
			t.Errorf("%s to %s: near lane %s to %s: the hosts prefer %v and %v", src, dst, l.Local, l.Remote, here.Preferred(), there.Preferred())
		}
		if l.Contact.RemoteLID == nil && l.Contact.RemoteGID == "" {
			continue
		}
		node := portNode(pair.Remote().Topology(), l.Remote)
		if l.Contact.RemoteLID != nil && *l.Contact.RemoteLID != *node.LID {
			t.Errorf("lane to %s with LID %d, the port has %d", l.Remote, *l.Contact.RemoteLID, *node.LID)
		}
		if at := l.Contact.RemoteGIDIndex; at != nil && !slices.ContainsFunc(node.GIDs, func(g topo.GID) bool { return g.Index == *at && g.GID == l.Contact.RemoteGID }) {
			t.Errorf("lane to %s with GID %d %s, which is not in its table", l.Remote, *at, l.Contact.RemoteGID)
		}
	}
}

func portNode(top *topo.Topology, id topo.ID) *topo.Port {
	return &top.Ports[slices.IndexFunc(top.Ports, func(p topo.Port) bool { return p.ID == id })]
}

// laneSet asks for lanes; nil where there are none.
func laneSet(t interface{ Fatal(...any) }, local, remote *pathsel.Host, src, dst pathsel.Location, o pathsel.PairOptions) *pathsel.LaneSet {
	pair, err := pathsel.Connect(local, remote, o)
	if err != nil {
		t.Fatal(err)
	}
	set, err := pair.Lanes(src, dst)
	if errors.Is(err, pathsel.ErrNoLane) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return set
}

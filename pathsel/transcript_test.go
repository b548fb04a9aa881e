package pathsel_test

import (
	"fmt"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// Transcripts: a machine, a question, and the whole answer, for people to read
// and to disagree with. Several are known failures of other engines.
func TestTranscripts(t *testing.T) {
	for _, tt := range []struct {
		file, why, machine string
		location           pathsel.Location
		options            pathsel.Options
	}{
		{"dgx-h100-gpu0", "The NIC below the GPU's own switch; storage NICs, which look alike, stay out.",
			"dgx-h100", "gpu:0", pathsel.Options{}},
		{"port-down", "The cable of the nearest NIC is out: the next ones of the same socket follow.",
			"dgx-h100-port-down", "gpu:4", pathsel.Options{}},
		{"b200-decoys", "Two ConnectX-7 that only manage NVLink say ACTIVE and 400 Gb/s.",
			"b200", "gpu:0", pathsel.Options{}},
		{"h20-index", "mlx5_0 is missing, so GPU n is beside mlx5_n+1: pairing by index would misroute every GPU.",
			"hgx-h20-8nic", "gpu:0", pathsel.Options{}},
		{"gb200-domains", "Every device has a PCI domain of its own: NUMA nodes decide, distances between paths say nothing.",
			"gb200-tray", "gpu:2", pathsel.Options{}},
		{"mixed-fabrics", "Four InfiniBand NICs for eight GPUs, and a RoCE NIC of another network.",
			"h20-4ib-1roce", "gpu:1", pathsel.Options{}},
		{"virtual-functions", "A PF and its VFs are visible side by side: VFs add no bandwidth.",
			"sriov-pf-vf", "gpu:0", pathsel.Options{}},
		{"bonds", "Each RDMA device is a bond of two legs and one NIC.",
			"bonds", "gpu:0", pathsel.Options{}},
		{"no-pci-parent", "One RDMA device has lost its place in the PCI tree: unknown ranks last, not far.",
			"dgx-h100-rdma-no-pci", "gpu:5", pathsel.Options{}},
		{"numa-unknown", "The kernel says NUMA node -1: NICs of other sockets are unknown, not SYS.",
			"dgx-h100-numa-unknown", "gpu:0", pathsel.Options{}},
		{"software-rdma", "A laboratory without RDMA hardware: software devices are all there is.",
			"lab-softrdma", "cpu:0", pathsel.Options{}},
		{"tcp", "The same DGX for TCP: interfaces with addresses instead of RDMA devices.",
			"dgx-h100", "cpu:0", pathsel.Options{Transport: pathsel.TCP}},
		{"override", "The user knows better: a storage NIC is for data here, and mlx5_0 is not.",
			"dgx-h100", "gpu:0", pathsel.Options{Roles: map[topo.ID]pathsel.Role{"rdma:mlx5_1": pathsel.RoleData, "rdma:mlx5_0": pathsel.RoleStorage}}},
		{"measured", "A measurement of the nearest NIC's slot replaces what its link promises.",
			"dgx-a100", "gpu:0", pathsel.Options{Overlay: topo.Overlay{"pcie:0000:0c:00.0": 11 * topo.GBPerSec}}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			a, err := prepare(t, fixturetest.Topology(t, tt.machine), tt.options).Affinity(tt.location, nil)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/transcripts/"+tt.file+".txt", fmt.Sprintf("# %s\n# machine %s, memory in %s\n\n%s", tt.why, tt.machine, tt.location, a.Text()))
		})
	}
}

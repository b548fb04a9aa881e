package counters_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

// box is a host with an RDMA device, an interface and a GPU; nil and "" are not known.
func box(pci, guid string, index *int, gpu *topo.BDF) *topo.Topology {
	rdma := topo.Node{ID: topo.RDMAID("mlx5_0")}
	return &topo.Topology{
		RDMADevices: []topo.RDMADevice{{Node: rdma, PCI: topo.ID(pci), NodeGUID: guid}},
		Ports:       []topo.Port{{Node: topo.Node{ID: "port:mlx5_0/1"}, RDMA: rdma.ID}},
		Netdevs:     []topo.Netdev{{Node: topo.Node{ID: topo.NetdevID("eth0")}, Index: index}},
		GPUs:        []topo.GPU{{Node: topo.Node{ID: topo.GPUID(0)}, BDF: gpu}},
	}
}

func TestReplaced(t *testing.T) {
	one, two := &topo.BDF{Bus: 1}, &topo.BDF{Bus: 2}
	was := box("pci:a", "g1", new(2), one)
	tests := []struct {
		name     string
		was, now *topo.Topology
		want     map[topo.ID]bool
	}{
		{"the same", was, box("pci:a", "g1", new(2), one), map[topo.ID]bool{}},
		{"all others", was, box("pci:b", "g2", new(3), two), map[topo.ID]bool{"rdma:mlx5_0": true, "port:mlx5_0/1": true, "net:eth0": true, "gpu:0": true}},
		{"not known now", was, box("", "", nil, nil), map[topo.ID]bool{}},
		{"software RDMA by its GUID", box("", "g1", nil, nil), box("", "g2", nil, nil), map[topo.ID]bool{"rdma:mlx5_0": true, "port:mlx5_0/1": true}},
		{"gone", was, &topo.Topology{}, map[topo.ID]bool{}},
		{"no topology before", nil, was, map[topo.ID]bool{}},
		{"none now", was, nil, map[topo.ID]bool{}},
	}
	for _, tt := range tests {
		got := counters.Replaced(tt.was, tt.now)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestRenamed(t *testing.T) {
	gpus := func(buses ...uint8) *topo.Topology {
		x := &topo.Topology{}
		for i, bus := range buses {
			g := topo.GPU{Node: topo.Node{ID: topo.GPUID(i)}}
			if bus != 0 {
				g.BDF = &topo.BDF{Bus: bus}
			}
			x.GPUs = append(x.GPUs, g)
		}
		return x
	}
	tests := []struct {
		name     string
		was, now *topo.Topology
		want     map[topo.ID]topo.ID
	}{
		{"the same", gpus(1, 2), gpus(1, 2), map[topo.ID]topo.ID{}},
		{"one is lost", gpus(1, 2, 3, 4), gpus(1, 3, 4), map[topo.ID]topo.ID{"gpu:2": "gpu:1", "gpu:3": "gpu:2"}},
		{"one is back", gpus(1, 3), gpus(1, 2, 3), map[topo.ID]topo.ID{"gpu:1": "gpu:2"}},
		{"not known", gpus(1, 0), gpus(0, 1), map[topo.ID]topo.ID{"gpu:0": "gpu:1"}},
		{"alike", gpus(1, 2, 2), gpus(2, 1), map[topo.ID]topo.ID{"gpu:0": "gpu:1"}},
		{"nothing before", nil, gpus(1), map[topo.ID]topo.ID{}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, counters.Renamed(tt.was, tt.now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	was, now := box("pci:a", "", new(2), nil), box("pci:a", "", new(2), nil)
	now.RDMADevices[0].ID, now.Ports[0].RDMA, now.Ports[0].ID, now.Netdevs[0].ID = "rdma:x", "rdma:x", "port:x/1", "net:x"
	want := map[topo.ID]topo.ID{"rdma:mlx5_0": "rdma:x", "port:mlx5_0/1": "port:x/1", "net:eth0": "net:x"}
	if diff := cmp.Diff(want, counters.Renamed(was, now)); diff != "" {
		t.Errorf("renamed (-want +got):\n%s", diff)
	}
}

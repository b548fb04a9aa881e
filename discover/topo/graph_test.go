package topo_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
)

// travel writes a path as link and direction: "pcie:0000:13:00.0 up".
func travel(path []topo.Step) []string {
	words := map[topo.Direction]string{topo.Down: "down", topo.Up: "up", topo.Both: "both"}
	out := make([]string, len(path))
	for i, s := range path {
		out[i] = string(s.Link) + " " + words[s.Dir]
	}
	return out
}

// backwards is a path as the way back takes it.
func backwards(path []string) []string {
	out := make([]string, len(path))
	for i, step := range path {
		link, dir, _ := strings.Cut(step, " ")
		out[len(path)-1-i] = link + " " + map[string]string{"up": "down", "down": "up", "both": "both"}[dir]
	}
	return out
}

// TestPathDirections: each link is crossed in the direction of travel, and the
// way back crosses the same links the other way.
func TestPathDirections(t *testing.T) {
	const fabric = "fabric 0 18\nfabric 1 18\n"
	tests := []struct {
		name, more string
		from, to   topo.ID
		want       []string
	}{
		{"below one switch", "", "gpu:0", "rdma:mlx5_0",
			[]string{"pcie:0000:13:00.0 up", "pcie:0000:14:00.0 down", "port:mlx5_0/1 down"}},
		{"up and down one switch more", "", "gpu:0", "gpu:1",
			[]string{"pcie:0000:13:00.0 up", "pcie:0000:15:00.0 down", "pcie:0000:17:00.0 down"}},
		{"below one host bridge", "", "gpu:0", "rdma:mlx5_1",
			[]string{"pcie:0000:13:00.0 up", "pcie:0000:11:00.0 up", "rc:0000:10 both", "pcie:0000:18:00.0 down", "port:mlx5_1/1 down"}},
		{"functions of one slot", "", "rdma:mlx5_1", "rdma:mlx5_2",
			[]string{"pcie:0000:18:00.0 up", "pcie:0000:18:00.0 down"}},
		{"across roots of one node", "", "gpu:0", "rdma:mlx5_3",
			[]string{"pcie:0000:13:00.0 up", "pcie:0000:11:00.0 up", "rc:0000:10 up", "rc:0000:20 down", "pcie:0000:21:00.0 down", "port:mlx5_3/1 down"}},
		{"across sockets", "", "gpu:0", "rdma:mlx5_10",
			[]string{"pcie:0000:13:00.0 up", "pcie:0000:11:00.0 up", "rc:0000:10 up", "smp:0/1 down", "rc:0000:30 down", "pcie:0000:31:00.0 down", "port:mlx5_10/1 down"}},
		{"memory to GPU", "", "numa:0", "gpu:0",
			[]string{"rc:0000:10 down", "pcie:0000:11:00.0 down", "pcie:0000:13:00.0 down"}},
		{"far memory to GPU", "", "numa:1", "gpu:0",
			[]string{"smp:0/1 up", "rc:0000:10 down", "pcie:0000:11:00.0 down", "pcie:0000:13:00.0 down"}},
		{"wire to memory", "", "rdma:mlx5_10", "numa:1",
			[]string{"port:mlx5_10/1 up", "pcie:0000:31:00.0 up", "rc:0000:30 up"}},
		{"node to node", "", "numa:0", "numa:1", []string{"smp:0/1 down"}},
		{"NVLink", "nvlink 0 1 4\n", "gpu:0", "gpu:1", []string{"nvlink:gpu:0/gpu:1 down"}},
		{"NVSwitch", fabric, "gpu:0", "gpu:1", []string{"nvlink:gpu:0/nvfabric down", "nvlink:gpu:1/nvfabric up"}},
		{"C2C", "c2c 0 0\n", "gpu:0", "numa:0", []string{"c2c:gpu:0 down"}},
		{"itself", "", "gpu:0", "gpu:0", []string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := topo.NewGraph(build(t, twoSockets+tt.more), nil)
			there, ok1 := g.Path(tt.from, tt.to)
			back, ok2 := g.Path(tt.to, tt.from)
			if !ok1 || !ok2 {
				t.Fatalf("no path: there %v, back %v", ok1, ok2)
			}
			if diff := cmp.Diff(tt.want, travel(there)); diff != "" {
				t.Errorf("there (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(backwards(tt.want), travel(back)); diff != "" {
				t.Errorf("back (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPathBackIsReverse holds for every pair of every machine.
func TestPathBackIsReverse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		topology := build(t, drawMachine(rt))
		g := topo.NewGraph(topology, nil)
		for _, a := range topology.Derived.Axis {
			for _, b := range topology.Derived.Axis {
				there, ok1 := g.Path(a, b)
				back, ok2 := g.Path(b, a)
				if ok1 != ok2 {
					rt.Fatalf("%s to %s: %v, back %v", a, b, ok1, ok2)
				}
				if diff := cmp.Diff(backwards(travel(there)), travel(back)); diff != "" {
					rt.Fatalf("%s to %s:\n%s", a, b, diff)
				}
			}
		}
	})
}

package rival_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/rival"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/export"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// wrong is the part of a peer's picks that end on a NIC which is not preferred,
// over all locations.
func wrong(t *testing.T, m *rival.Matrix) (share float64, text string) {
	t.Helper()
	routes, err := m.Misroutes()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range routes {
		share += r.Wrong / float64(len(routes))
		fmt.Fprintf(&b, "%s:", r.Location)
		for _, l := range r.Lands {
			fmt.Fprintf(&b, " %s %.0f %%", l.Device, 100*l.Share)
		}
		b.WriteString("\n")
	}
	return share, b.String()
}

func near(a, b float64) bool { return math.Abs(a-b) < 0.005 }

// Mooncake's peers number NICs for themselves (research/mooncake.md, G1). The
// figures are those that its own code gave when it was run.
func TestPeersAreSentToTheWrongNIC(t *testing.T) {
	for gpus, want := range map[int]float64{8: 0, 10: 0, 12: 0.98, 16: 0.39} {
		m, err := rival.Discover(prepare(t, fixturetest.Spec(t, gpuHost(gpus))), []int{0, 1})
		if err != nil {
			t.Fatal(err)
		}
		if got, text := wrong(t, m); !near(got, want) {
			t.Errorf("%d GPUs: %.3f of the picks are wrong, want %.2f\n%s", gpus, got, want, text)
		}
	}
	t.Run("a NIC down", func(t *testing.T) {
		m := parse(t, `{"cpu:0":[["mlx5_0","mlx5_1","mlx5_2"],[]]}`)
		m.Disable("mlx5_0")
		if got, text := wrong(t, m); !near(got, 0.5) || text != "cpu:0: mlx5_0 50 % mlx5_1 50 %\n" {
			t.Errorf("%.2f\n%s", got, text)
		}
	})
	t.Run("a NIC down on one of two sockets", func(t *testing.T) {
		m := parse(t, `{"cpu:0":[["mlx5_0","mlx5_1"],["mlx5_2","mlx5_3"]],"cpu:1":[["mlx5_2","mlx5_3"],["mlx5_0","mlx5_1"]]}`)
		m.Disable("mlx5_0")
		if _, text := wrong(t, m); !strings.HasPrefix(text, "cpu:0: mlx5_0 100 %\n") {
			t.Errorf("the picks for cpu:0 do not all go to the dead NIC:\n%s", text)
		}
	})
	t.Run("NUMA nodes listed backwards", func(t *testing.T) {
		h := prepare(t, fixturetest.Topology(t, "bonds"))
		cpuOnly := fixturetest.Spec(t, "machine: m\ndescription: no GPU\ncpu: {vendor: GenuineIntel, family: 6, model: 143, threads: 1}\n"+
			"numa:\n- {node: 0, package: 0, cpus: 0-7, mem: 64GiB}\n- {node: 1, package: 1, cpus: 8-15, mem: 64GiB}\npci:\n"+
			"- root: 0000:10\n  numa: 0\n  below:\n  - port: 10:01.0\n    below: [{nic: 11:00.0, part: connectx7, layer: ib, rdma: mlx5_0, lid: 1}]\n"+
			"- root: 0000:20\n  numa: 1\n  below:\n  - port: 20:01.0\n    below: [{nic: 21:00.0, part: connectx7, layer: ib, rdma: mlx5_1, lid: 2}]\n")
		for _, tt := range []struct {
			nodes []int
			want  float64
		}{{[]int{0, 1}, 0}, {[]int{1, 0}, 1}} {
			m, err := rival.Discover(prepare(t, cpuOnly), tt.nodes)
			if err != nil {
				t.Fatal(err)
			}
			if got, text := wrong(t, m); got != tt.want {
				t.Errorf("nodes %v: %.2f, want %.2f\n%s", tt.nodes, got, tt.want, text)
			}
		}
		if m, err := rival.Discover(h, []int{0, 1}); err != nil || len(m.Entries()) != 10 {
			t.Errorf("%v %v", m, err)
		}
	})
}

// The choice itself says that peers will be sent elsewhere.
func TestChoiceWarnsOfTheShift(t *testing.T) {
	for gpus, want := range map[int]bool{8: false, 12: true} {
		c := choose(t, prepare(t, fixturetest.Spec(t, gpuHost(gpus))), rival.Mooncake, "gpu:3")
		got := slices.ContainsFunc(c.Notes, func(r pathsel.Reason) bool {
			return r.Code == rival.CodeIndexShift && strings.Contains(r.Text, "100 %")
		})
		if got != want {
			t.Errorf("%d GPUs: %v", gpus, c.Notes)
		}
	}
}

// pathsel names ports and never numbers them: what a peer is told to use is the
// port that the owner means, on hosts with many GPUs, with NUMA nodes in any
// order, and after a NIC has failed.
func TestPathselNamesPorts(t *testing.T) {
	for _, gpus := range []int{12, 16} {
		text := gpuHost(gpus)
		for _, failed := range []string{"", "mlx5_0"} {
			owner := fixturetest.Spec(t, text)
			for i := range owner.Ports {
				if owner.Ports[i].RDMA == topo.RDMAID(failed) {
					owner.Ports[i].State = "DOWN"
				}
			}
			slices.Reverse(owner.NUMANodes)
			published, err := owner.Encode()
			if err != nil {
				t.Fatal(err)
			}
			read, err := topo.Decode(published) // what the peer has
			if err != nil {
				t.Fatal(err)
			}
			theirs := prepare(t, owner)
			pair, err := pathsel.Connect(prepare(t, fixturetest.Spec(t, text)), prepare(t, read), pathsel.PairOptions{RemoteName: "owner"})
			if err != nil {
				t.Fatal(err)
			}
			for g := range gpus {
				location := pathsel.Location(fmt.Sprintf("gpu:%d", g))
				set, err := pair.Lanes("gpu:0", location)
				if err != nil {
					t.Fatal(err)
				}
				a, err := theirs.Affinity(location, nil)
				if err != nil {
					t.Fatal(err)
				}
				meant, ok := theirs.Port(set.Lanes[0].Remote)
				if !ok || meant.Device == failed || meant.Name != set.Lanes[0].RemoteName || a.Ranked[0].Port != meant.ID {
					t.Errorf("%d GPUs, %q failed: for %s the peer goes to %s (%s), the owner means %s", gpus, failed, location,
						set.Lanes[0].Remote, meant.Name, a.Ranked[0].Port)
				}
			}
		}
	}
}

// The matrix that topoctl exports for Mooncake does not shift: it is written in
// the order in which peers read it.
func TestExportedMatrixDoesNotShift(t *testing.T) {
	for _, gpus := range []int{8, 12, 16} {
		h := prepare(t, fixturetest.Spec(t, gpuHost(gpus)))
		var out bytes.Buffer
		if _, err := export.Mooncake(&out, h, export.AllGPUs(h.Topology())); err != nil {
			t.Fatal(err)
		}
		if got, text := wrong(t, parse(t, out.String())); got != 0 {
			t.Errorf("%d GPUs: %.2f\n%s", gpus, got, text)
		}
	}
}

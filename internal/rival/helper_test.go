package rival_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/rival"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// An ordinary run tries the properties on fewer cases.
func TestMain(m *testing.M) { longtest.Main(m) }

func prepare(t testing.TB, top *topo.Topology) *pathsel.Host {
	t.Helper()
	h, err := pathsel.New(top, pathsel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func choose(t testing.TB, h *pathsel.Host, e rival.Engine, l pathsel.Location) *rival.Choice {
	t.Helper()
	c, err := rival.Choose(h, e, l)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// names are the chosen ports' names.
func names(c *rival.Choice) string {
	var out []string
	for i := range c.Chosen {
		out = append(out, c.Chosen[i].Name)
	}
	return strings.Join(out, " ")
}

// pairHost is a host of 8 GPUs and 8 NICs, two of each below one switch.
func pairHost() string {
	var b strings.Builder
	b.WriteString("machine: m\ndescription: two GPUs and two NICs below each switch\ncpu: {vendor: GenuineIntel, family: 6, model: 143, threads: 1}\n")
	b.WriteString("numa:\n- {node: 0, package: 0, cpus: 0-7, mem: 64GiB}\n- {node: 1, package: 1, cpus: 8-15, mem: 64GiB}\nnvidia: {driver: 550.54.15, cuda: 12.4}\npci:\n")
	for i := range 4 {
		bus := 0x10 + 16*i
		fmt.Fprintf(&b, "- root: 0000:%02x\n  numa: %d\n  below:\n  - port: %02x:01.0\n    below:\n    - switch: %02x:00.0\n      part: broadcom-c030\n      below:\n", bus, i/2, bus, bus+1)
		for j, part := range []string{"{gpu: %02x:00.0, part: h100-sxm}", "{gpu: %02x:00.0, part: h100-sxm}", "{nic: %02x:00.0, part: connectx7, layer: ib, rdma: mlx5_%d, lid: %d}", "{nic: %02x:00.0, part: connectx7, layer: ib, rdma: mlx5_%d, lid: %d}"} {
			args := []any{bus + 3 + j}
			if j > 1 {
				args = append(args, 2*i+j-2, 2*i+j-1)
			}
			fmt.Fprintf(&b, "      - down: %02x:%02x.0\n        below: ["+part+"]\n", append([]any{bus + 2, j}, args...)...)
		}
	}
	return b.String()
}

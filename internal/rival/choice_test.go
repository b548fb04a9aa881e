package rival_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/rival"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

func rate(r *topo.Rate) string {
	if r == nil {
		return "?"
	}
	return r.String()
}

// line is a choice in one line, and its notes.
func line(c *rival.Choice) string {
	chosen := []string{}
	for i := range c.Chosen {
		p := &c.Chosen[i]
		s := p.Name
		if p.Share < 0.995 {
			s += fmt.Sprintf(" %.0f%%", 100*p.Share)
		}
		if p.Rejects != nil {
			s += "(" + string(p.Rejects.Code) + ")"
		}
		if p.Reason.Code == rival.CodeNoneNear {
			s += "(" + string(p.Reason.Code) + ")"
		}
		chosen = append(chosen, s)
	}
	believes := ""
	if c.BelievedBytesPerSec != nil {
		believes = ", believes " + rate(c.BelievedBytesPerSec)
	}
	text := fmt.Sprintf("  %-8s %s [%s %s%s] %s: %s\n", c.Engine, strings.Join(chosen, " "), rate(c.BytesPerSec), c.Basis, believes, c.Cost.Verdict, c.Cost.Text)
	for _, n := range c.Notes {
		text += fmt.Sprintf("    %s: %s\n", n.Code, n.Text)
	}
	return text
}

// What each engine would choose on every machine that ships with topoctl.
func TestFixtures(t *testing.T) {
	for _, name := range fixtures.Names() {
		t.Run(name, func(t *testing.T) {
			h := prepare(t, fixturetest.Topology(t, name))
			locations := h.Locations()
			if len(locations) > 20 {
				locations = locations[:20]
			}
			var b strings.Builder
			for _, l := range locations {
				fmt.Fprintln(&b, l)
				for _, e := range rival.Engines() {
					b.WriteString(line(choose(t, h, e, l)))
				}
			}
			golden.Check(t, "testdata/"+name+".txt", b.String())
		})
	}
}

func TestEngineIsKnown(t *testing.T) {
	h := prepare(t, fixturetest.Topology(t, "cpu-2eth"))
	if _, err := rival.Choose(h, "gloo", "cpu:0"); err == nil || !strings.Contains(err.Error(), "mooncake, nccl or ucx") {
		t.Error(err)
	}
	if _, err := rival.Choose(h, rival.NCCL, "gpu:7"); err == nil {
		t.Error("a location that the host has not")
	}
}

// Mirrored indices: four GPUs that share four NICs start at 0, 2, 1, 3.
func TestNCCLMirrorsIndices(t *testing.T) {
	var b strings.Builder
	b.WriteString("machine: m\ndescription: 4 GPUs and 4 NICs on one socket\ncpu: {vendor: GenuineIntel, family: 6, model: 143, threads: 1}\n" +
		"numa:\n- {node: 0, package: 0, cpus: 0-7, mem: 64GiB}\nnvidia: {driver: 550.54.15, cuda: 12.4}\npci:\n- root: 0000:10\n  numa: 0\n  below:\n  - port: 10:01.0\n    below:\n    - switch: 11:00.0\n      part: broadcom-c030\n      below:\n")
	for i := range 4 {
		fmt.Fprintf(&b, "      - down: 12:%02x.0\n        below: [{gpu: %02x:00.0, part: h100-sxm}]\n", i, 0x20+i)
	}
	for i := range 4 {
		fmt.Fprintf(&b, "      - down: 12:%02x.0\n        below: [{nic: %02x:00.0, part: connectx7, layer: ib, rdma: mlx5_%d, lid: %d}]\n", 8+i, 0x30+i, i, i+1)
	}
	h := prepare(t, fixturetest.Spec(t, b.String()))
	var got []string
	for _, l := range h.GPUs() {
		got = append(got, names(choose(t, h, rival.NCCL, l)))
	}
	if want := "mlx5_0 mlx5_2 mlx5_1 mlx5_3"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// UCX's tie rule needs processes that see all GPUs: where each sees its own
// only, all have index 0, and of two NICs below a switch both GPUs take the
// first. Four of eight NICs carry everything (openucx/ucx issue 11680).
func TestUCXUsesFourOfEightNICs(t *testing.T) {
	top := fixturetest.Spec(t, pairHost())
	used := map[string]int{}
	for i := range top.GPUs {
		seen := *top
		seen.GPUs = slices.Clone(top.GPUs)
		for j := range seen.GPUs {
			visible := i == j
			seen.GPUs[j].Visible = &visible
		}
		c := choose(t, prepare(t, &seen), rival.UCX, pathsel.Location(top.GPUs[i].ID))
		used[turn(t, c)]++
	}
	if len(used) != 4 || used["mlx5_0"] != 2 {
		t.Errorf("each sees its own GPU: %v", used)
	}
	used = map[string]int{}
	for i := range top.GPUs {
		used[turn(t, choose(t, prepare(t, top), rival.UCX, pathsel.Location(top.GPUs[i].ID)))]++
	}
	if len(used) != 8 {
		t.Errorf("all see all GPUs: %v", used)
	}
	plan, err := prepare(t, top).Plan(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plan.Ports {
		if len(p.Consumers) != 1 {
			t.Errorf("pathsel's plan gives %s to %v", p.Name, p.Consumers)
		}
	}
}

// turn is the port that the tie rule gave first.
func turn(t *testing.T, c *rival.Choice) string {
	t.Helper()
	for i := range c.Chosen {
		if c.Chosen[i].Reason.Code == rival.CodeTurn {
			return c.Chosen[i].Name
		}
	}
	t.Fatalf("no tie: %s", line(c))
	return ""
}

// UCX rates another host bridge of the NUMA node better than the same one.
func TestUCXPrefersTheFartherHostBridge(t *testing.T) {
	h := prepare(t, fixturetest.Spec(t, "machine: m\ndescription: one NIC on the GPU's host bridge, one on another\n"+
		"cpu: {vendor: GenuineIntel, family: 6, model: 143, threads: 1}\nnuma:\n- {node: 0, package: 0, cpus: 0-7, mem: 64GiB}\nnvidia: {driver: 550.54.15, cuda: 12.4}\npci:\n"+
		"- root: 0000:10\n  numa: 0\n  below:\n  - {port: 10:01.0, below: [{gpu: 11:00.0, part: h100-sxm}]}\n  - {port: 10:03.0, below: [{nic: 12:00.0, part: connectx7, layer: ib, rdma: mlx5_0, lid: 1}]}\n"+
		"- root: 0000:20\n  numa: 0\n  below:\n  - {port: 20:01.0, below: [{nic: 21:00.0, part: connectx7, layer: ib, rdma: mlx5_1, lid: 2}]}\n"))
	c := choose(t, h, rival.UCX, "gpu:0")
	if names(c) != "mlx5_1" || rate(c.BelievedBytesPerSec) != "17.8 GB/s" {
		t.Errorf("%s", line(c))
	}
	if i := slices.IndexFunc(c.Rejected, func(p rival.Pick) bool { return p.Name == "mlx5_0" }); i < 0 ||
		c.Rejected[i].Reason.Code != rival.CodeTooSlow || *c.Rejected[i].Rank != 1 {
		t.Errorf("%+v", c.Rejected)
	}
}

// Mooncake's distance is one of characters and depth: a NIC that sits deep below
// the GPU's own switch is as near as one on another host bridge.
func TestMooncakeMeasuresDepth(t *testing.T) {
	h := prepare(t, fixturetest.Spec(t, "machine: m\ndescription: a deep NIC beside the GPU, a shallow one elsewhere\n"+
		"cpu: {vendor: GenuineIntel, family: 6, model: 143, threads: 1}\nnuma:\n- {node: 0, package: 0, cpus: 0-7, mem: 64GiB}\nnvidia: {driver: 550.54.15, cuda: 12.4}\npci:\n"+
		`- root: 0000:10
  numa: 0
  below:
  - port: 10:01.0
    below:
    - switch: 11:00.0
      part: broadcom-c030
      below:
      - down: 12:00.0
        below:
        - switch: 13:00.0
          part: plx-9797
          below:
          - down: 14:00.0
            below:
            - switch: 15:00.0
              part: plx-9797
              below:
              - {down: 16:00.0, below: [{nic: 17:00.0, part: connectx7, layer: ib, rdma: mlx5_0, lid: 1}]}
      - {down: 12:01.0, below: [{gpu: 18:00.0, part: h100-sxm}]}
- root: 0000:40
  numa: 0
  below:
  - {port: 40:01.0, below: [{nic: 41:00.0, part: connectx7, layer: ib, rdma: mlx5_1, lid: 2}]}
`))
	c := choose(t, h, rival.Mooncake, "gpu:0")
	if names(c) != "mlx5_0 mlx5_1" || c.Chosen[1].Rejects == nil {
		t.Errorf("%s", line(c))
	}
}

// What a rule's answer must be, whatever the host.
func checkChoice(t rapid.TB, h *pathsel.Host, c *rival.Choice) {
	sum := 0.0
	seen := map[topo.ID]int{}
	for i := range c.Chosen {
		sum += c.Chosen[i].Share
		seen[c.Chosen[i].Port]++
	}
	if len(c.Chosen) > 0 && math.Abs(sum-1) > 1e-9 {
		t.Errorf("shares of %v for %s", sum, c.Location)
	}
	for i := range c.Rejected {
		seen[c.Rejected[i].Port]++
	}
	for _, p := range h.Ports() {
		want := 1
		if !p.RDMA() || c.Engine == rival.NCCL && strings.HasPrefix(string(c.Location), "cpu:") {
			want = 0
		}
		if seen[p.ID] != want {
			t.Errorf("%s, %s: %s is listed %d times", c.Engine, c.Location, p.ID, seen[p.ID])
		}
	}
	if c.Cost.BytesPerSec != nil && c.Cost.Bound == rival.NoBound || c.Cost.Verdict == "" || c.Cost.Text == "" {
		t.Errorf("%s, %s: cost %+v", c.Engine, c.Location, c.Cost)
	}
}

func TestEveryPortIsAccountedFor(t *testing.T) {
	for _, name := range fixtures.Names() {
		h := prepare(t, fixturetest.Topology(t, name))
		for _, l := range h.Locations()[:min(10, len(h.Locations()))] {
			for _, e := range rival.Engines() {
				checkChoice(t, h, choose(t, h, e, l))
			}
		}
	}
}

// The order in which devices are listed changes nothing.
func TestOrderOfInput(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-a100")
	want := map[string]string{}
	h := prepare(t, top)
	for _, l := range h.Locations() {
		for _, e := range rival.Engines() {
			want[string(l)+string(e)] = line(choose(t, h, e, l))
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		mixed := *top
		mixed.RDMADevices = rapid.Permutation(top.RDMADevices).Draw(r, "devices")
		mixed.Ports = rapid.Permutation(top.Ports).Draw(r, "ports")
		mixed.PCIDevices = rapid.Permutation(top.PCIDevices).Draw(r, "functions")
		h, err := pathsel.New(&mixed, pathsel.Options{})
		if err != nil {
			r.Fatal(err)
		}
		for _, l := range h.Locations() {
			for _, e := range rival.Engines() {
				c, err := rival.Choose(h, e, l)
				if err != nil {
					r.Fatal(err)
				}
				if got := line(c); got != want[string(l)+string(e)] {
					r.Errorf("%s: %s became %s", l, want[string(l)+string(e)], got)
				}
			}
		}
	})
}

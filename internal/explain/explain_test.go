package explain_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

func prepare(t *testing.T, name string) *pathsel.Host {
	t.Helper()
	h, err := pathsel.New(fixturetest.Topology(t, name), pathsel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// What makes the class of a pair is named, whatever the class.
func TestWhy(t *testing.T) {
	for _, c := range []struct {
		machine  string
		from, to topo.ID
		class    string
		want     string
	}{
		{"dgx-h100", "gpu:0", "rdma:mlx5_0", "PXB", "they meet at switch 16:00.0, below any host bridge"},
		{"dgx-h100", "gpu:0", "rdma:mlx5_3", "NODE", "by host bridges 0000:15 and 0000:3d of one NUMA node"},
		{"dgx-h100", "gpu:0", "rdma:mlx5_6", "SYS", "by the link between NUMA 0 and 1"},
		{"dgx-h100", "numa:0", "rdma:mlx5_0", "PHB", "by host bridge 0000:15"},
		{"dgx-h100", "gpu:0", "gpu:5", "NV18", "by the 18 NVLinks of gpu:0 to NVSwitch"},
		{"dgx-h100", "gpu:0", "gpu:0", "X", "the device itself"},
		{"dgx-h100", "rdma:mlx5_1", "rdma:mlx5_2", "PIX", "they meet at switch 27:00.0, below any host bridge"},
		{"gb200-tray", "gpu:0", "numa:0", "C2C", "by the C2C link of gpu:0"},
		{"dgx-h100-rdma-no-pci", "gpu:0", "rdma:mlx5_9", "", "the way between them is not known"},
	} {
		h := prepare(t, c.machine)
		r := explain.RouteBetween(h, c.from, c.to)
		if got := explain.Why(h, r); r.Class.String() != c.class || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s, %s to %s: %q, %s; want %s, %s", c.machine, c.from, c.to, r.Class, got, c.class, c.want)
		}
	}
}

// Each answer has what the question asked for: a port with its route, or a pair.
func TestAnswers(t *testing.T) {
	for _, name := range []string{"cpu-2eth", "dgx-h100-missing-files", "dgx-h100-port-down", "dgx-h100-rdma-no-pci", "gb200-tray", "lab-softrdma", "sriov-pf-vf", "vm-flat"} {
		h := prepare(t, name)
		for _, l := range h.Locations() {
			a, err := explain.Memory(h, l)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, l, err)
			}
			if (a.Chosen == nil) != (a.Why != "") || (a.Chosen == nil) != (a.Route == nil) {
				t.Errorf("%s, %s: chosen %v, route %v, why %q", name, l, a.Chosen, a.Route, a.Why)
			}
			for _, p := range h.Ports() {
				b, err := explain.Between(h, l.Node(), p.ID)
				if err != nil {
					t.Fatalf("%s, %s to %s: %v", name, l, p.Name, err)
				}
				if b.Why == "" && (b.Chosen == nil && a.Chosen != nil || len(b.Ranked) != len(a.Ranked)) {
					t.Errorf("%s, %s to %s: %d candidates of %d", name, l, p.Name, len(b.Ranked), len(a.Ranked))
				}
				if b.Route.Known && b.Route.BytesPerSec != nil && b.Route.Limit == "" {
					t.Errorf("%s, %s to %s: a rate without a limit", name, l, p.Name)
				}
			}
		}
	}
}

// An RDMA device and the interface on it are one function: nothing lies between.
func TestWhyOneFunction(t *testing.T) {
	h := prepare(t, "dgx-h100")
	if got := explain.Why(h, explain.RouteBetween(h, "rdma:mlx5_0", "net:ibp24s0")); got != "on one card" {
		t.Error(got)
	}
}

// Of a GPU that shares its switch with a data direct function the rate to NICs is not all there is.
func TestDataDirectIsNamed(t *testing.T) {
	top := fixturetest.Topology(t, "hgx-h100-8nic")
	index := topo.NewIndex(top)
	beside := *index.PCIDevice("pci:0000:19:00.0") // a NIC below the switch of gpu:0
	beside.BDF.Device, beside.Class, beside.Device = 1, "0x080100", "0x2100"
	beside.ID = topo.PCIID(beside.BDF)
	top.PCIDevices = append(top.PCIDevices, beside)
	top.Derive()
	h, err := pathsel.New(top, pathsel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for gpu, want := range map[pathsel.Location]bool{"gpu:0": true, "gpu:1": false, "cpu:0": false} {
		a, err := explain.Memory(h, gpu)
		if err != nil {
			t.Fatal(err)
		}
		between, err := explain.Between(h, gpu.Node(), "rdma:mlx5_0")
		if err != nil {
			t.Fatal(err)
		}
		for _, hints := range [][]pathsel.Reason{a.Hints, between.Hints} {
			if got := slices.ContainsFunc(hints, func(r pathsel.Reason) bool { return r.Code == explain.HintDirect }); got != want {
				t.Errorf("%s: %v, want %v: %v", gpu, got, want, hints)
			}
		}
	}
	if b, err := explain.Between(h, "gpu:0", "gpu:1"); err != nil || slices.ContainsFunc(b.Hints, func(r pathsel.Reason) bool { return r.Code == explain.HintDirect }) {
		t.Errorf("GPU to GPU: %v, %v", b.Hints, err)
	}
}

// No port is said to be farther than itself, and none that carries nothing to be faster.
func TestNothingIsNotFaster(t *testing.T) {
	h := prepare(t, "dgx-h100")
	x := h.Topology()
	overlay := topo.Overlay{topo.PCIeLinkID(*x.GPUs[0].BDF): 0}
	h, err := pathsel.New(x, pathsel.Options{Overlay: overlay})
	if err != nil {
		t.Fatal(err)
	}
	a, err := explain.Memory(h, "gpu:0")
	if err != nil {
		t.Fatal(err)
	}
	if a.Chosen == nil || a.Chosen.BytesPerSec == nil || *a.Chosen.BytesPerSec != 0 {
		t.Fatalf("chosen %+v: want a port to which nothing goes", a.Chosen)
	}
	for _, r := range a.Hints {
		if r.Code == explain.HintFaster {
			t.Errorf("hint %q", r.Text)
		}
	}
}

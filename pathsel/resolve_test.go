package pathsel_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

func TestResolve(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	h := prepare(t, top, pathsel.Options{})
	uuid := top.GPUs[3].UUID
	for ref, want := range map[string]topo.ID{
		"gpu:0": "gpu:0", "GPU0": "gpu:0", "gpu7": "gpu:7", "GPU:7": "gpu:7", "nvml:3": "gpu:3",
		uuid: "gpu:3", uuid[:12]: "gpu:3", strings.ToUpper(uuid[:12]): "gpu:3",
		"cpu:1": "numa:1", "numa:0": "numa:0",
		"mlx5_0": "rdma:mlx5_0", "nic:mlx5_0": "rdma:mlx5_0", "rdma:mlx5_0": "rdma:mlx5_0", "nic:0000:18:00": "rdma:mlx5_0",
		"mlx5_0/1": "port:mlx5_0/1", "port:mlx5_0/1": "port:mlx5_0/1", "mlx5_0:1": "port:mlx5_0/1",
		"eno1": "net:eno1", "net:eno1": "net:eno1", "nic:eno1": "net:eno1", "ibp24s0": "net:ibp24s0",
		"0000:1b:00.0": "gpu:0", "1b:00.0": "gpu:0", "00000000:1B:00.0": "gpu:0", "pci:0000:1b:00.0": "gpu:0",
		"18:00.0": "rdma:mlx5_0", "01:00.0": "net:eno1", "1c:00.0": "nvme:nvme2", "nvme2": "nvme:nvme2", "nvme:nvme2": "nvme:nvme2",
	} {
		if got, err := h.Resolve(ref); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", ref, got, err, want)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	h := fixture(t, "dgx-h100")
	for ref, want := range map[string]string{
		"":                       "this host has gpu:0 to gpu:7 and cpu:0 to cpu:1",
		"gpu:8":                  "this host has gpu:0 to gpu:7 and cpu:0 to cpu:1",
		"gpu:x":                  "want a number",
		"gpu:-1":                 "want a number",
		"gpu:99999999999999999":  "no such name",
		"gpu999999999999999999":  "no such name",
		"cpu:2":                  "cpu:2: no such name: this host has gpu:0 to gpu:7",
		"mlx5_99":                "similar ones: ",
		"mlx_0":                  "similar ones: mlx5_0",
		"mlx5_0/2":               "similar ones: ",
		"nic:mlx5_77":            "no such name",
		"printer":                "this host has gpu:0 to gpu:7",
		"nvml:8":                 "no such name",
		"cuda:0":                 "CUDA_VISIBLE_DEVICES",
		"GPU-ffffffff":           "no GPU of this host has a UUID with that beginning",
		"GPU-":                   "can mean gpu:0, gpu:1",
		"nic:0000:29:00":         "can mean rdma:mlx5_1 and rdma:mlx5_2",
		"16:00.0":                "16:00.0 is no GPU, NIC or drive",
		"0000:16:00.0":           "is no GPU, NIC or drive (switch_upstream",
		"ff:1f.7":                "nothing is at this PCI address",
		"pci:gpu0":               "want a PCI address",
		strings.Repeat("x", 200): "200 characters long",
	} {
		got, err := h.Resolve(ref)
		if err == nil || !errors.Is(err, pathsel.ErrNoNode) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s %v, want an error with %q", ref, got, err, want)
		}
	}
}

// GPU numbers of nvidia-smi that are not those of PCI order are refused where
// the name could mean either.
func TestResolveGPUNumbers(t *testing.T) {
	h := prepare(t, fixturetest.Spec(t, "machine: m\ndescription: NVML counts the other way\nbase: a10-2nic\n"), pathsel.Options{})
	if got, err := h.Resolve("cuda:0"); len(h.GPUs()) == 1 && (err != nil || got != "gpu:0") {
		t.Errorf("the only GPU: %s %v", got, err)
	}
	top := fixturetest.Topology(t, "dgx-h100")
	swapped := *top
	swapped.GPUs = slices.Clone(top.GPUs)
	zero, one := 0, 1
	swapped.GPUs[0].NVMLIndex, swapped.GPUs[1].NVMLIndex = &one, &zero
	h = prepare(t, &swapped, pathsel.Options{})
	for ref, want := range map[string]topo.ID{"gpu:0": "gpu:0", "nvml:0": "gpu:1", "GPU2": "gpu:2"} {
		if got, err := h.Resolve(ref); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", ref, got, err, want)
		}
	}
	if _, err := h.Resolve("GPU0"); err == nil || !strings.Contains(err.Error(), "say gpu:0 or nvml:0") {
		t.Errorf("GPU0 can be either: %v", err)
	}
	for i := range swapped.GPUs {
		swapped.GPUs[i].NVMLIndex = nil
	}
	if _, err := prepare(t, &swapped, pathsel.Options{}).Resolve("nvml:0"); err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("NVML was not asked: %v", err)
	}
}

func TestResolveMIGAndOneGPU(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	top.GPUs[2].MIG = &topo.MIG{Enabled: true, Instances: []topo.MIGInstance{{UUID: "MIG-9f3b1c02-0000-5555-aaaa-0123456789ab"}}}
	h := prepare(t, top, pathsel.Options{})
	for ref, want := range map[string]topo.ID{
		"MIG-9f3b1c02-0000-5555-aaaa-0123456789ab": "gpu:2", "mig-9f3b": "gpu:2", "MIG-" + top.GPUs[5].UUID + "/1/0": "gpu:5",
	} {
		if got, err := h.Resolve(ref); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", ref, got, err, want)
		}
	}
	top.RDMADevices[1].PCI = top.RDMADevices[0].PCI
	if _, err := prepare(t, top, pathsel.Options{}).Resolve("18:00.0"); err == nil || !strings.Contains(err.Error(), "can mean rdma:mlx5_0 and rdma:mlx5_1") {
		t.Errorf("two devices on one function: %v", err)
	}
	hidden := false
	for i := range top.GPUs[1:] {
		top.GPUs[1+i].Visible = &hidden
	}
	h = prepare(t, top, pathsel.Options{})
	if got, err := h.Resolve("cuda:0"); err != nil || got != "gpu:0" {
		t.Errorf("the only GPU that the process sees: %s %v", got, err)
	}
	if _, err := h.Resolve("cuda:1"); err == nil {
		t.Error("there is no second one")
	}
}

// Every device of a domain of its own: a short address means the only one that
// fits, or none.
func TestResolveShortAddress(t *testing.T) {
	top := fixturetest.Topology(t, "gb200-tray")
	h := prepare(t, top, pathsel.Options{})
	for i := range top.GPUs {
		long := top.GPUs[i].BDF.String()
		if got, err := h.Resolve(long); err != nil || got != top.GPUs[i].ID {
			t.Errorf("%s: %s %v", long, got, err)
		}
	}
	if got, err := h.Resolve("01:00.0"); err == nil && got != "rdma:mlx5_0" {
		t.Errorf("domain 0 comes first: %s", got)
	}
}

func FuzzResolve(f *testing.F) {
	for _, s := range []string{"gpu:0", "GPU0", "1b:00.0", "mlx5_0/1", "GPU-3", "cuda:0", "nic:", ":", "gpu:", "a:b:c", "\x00"} {
		f.Add(s)
	}
	h := prepare(f, fixturetest.Topology(f, "dgx-h100"), pathsel.Options{})
	g := topo.NewGraph(h.Topology(), nil)
	f.Fuzz(func(t *testing.T, ref string) {
		id, err := h.Resolve(ref)
		switch {
		case err != nil && (id != "" || !errors.Is(err, pathsel.ErrNoNode)):
			t.Errorf("%q: %q, %v", ref, id, err)
		case err == nil && !strings.HasPrefix(string(id), "port:") && !strings.HasPrefix(string(id), "nvme:"):
			if _, ok := g.Path(id, id); !ok {
				t.Errorf("%q is %s, which no path can end at", ref, id)
			}
		}
	})
}

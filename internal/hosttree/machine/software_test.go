package machine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/internal/hosttree"
)

// names lists a directory.
func names(t *testing.T, m *hosttree.Mem, dir string) []string {
	t.Helper()
	entries, err := m.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestModules(t *testing.T) {
	rdma := []string{"ib_core", "ib_umad", "ib_uverbs"}
	cm := []string{"rdma_cm", "rdma_ucm"}
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"GPU and InfiniBand", "modules: [nvidia_peermem]\npci:\n- root: 0000:10\n  numa: 0\n  below:\n  - {gpu: 10:00.0, part: h100-sxm}\n  - {nic: 10:01.0, part: connectx7, layer: ib, rdma: mlx5_0, net: ib0}\n",
			[]string{"ib_core", "ib_ipoib", "ib_umad", "ib_uverbs", "mlx5_core", "mlx5_ib", "nvidia", "nvidia_peermem", "nvidia_uvm", "rdma_cm", "rdma_ucm"}},
		{"RoCE", "pci:\n- root: 0000:10\n  numa: 0\n  below:\n  - {nic: 10:01.0, part: connectx7, layer: eth, rdma: mlx5_0, net: eth0}\n", append(append(append([]string{}, rdma...), "mlx5_core", "mlx5_ib"), cm...)},
		{"EFA", "pci:\n- root: 0000:10\n  numa: 0\n  below:\n  - {nic: 10:02.0, part: efa, rdma: efa_0}\n", append(append([]string{"efa"}, rdma...), cm...)},
		{"interface alone", "pci:\n- root: 0000:10\n  numa: 0\n  below:\n  - {nic: 10:01.0, part: connectx7, layer: eth, net: eth0}\n", []string{"mlx5_core"}},
		{"GPU without a driver", "pci:\n- root: 0000:10\n  numa: 0\n  below:\n  - {gpu: 10:00.0, part: h100-sxm, driver: none}\n  - {nic: 10:01.0, part: i350, net: eth0}\n", []string{"igb"}},
		{"software device", "interfaces:\n- {name: d, kind: dummy}\nsoftrdma:\n- {name: r, on: d}\n", append(append(append([]string{}, rdma...), "rdma_cm", "rdma_rxe"), "rdma_ucm")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, names(t, tree(t, parse(t, head+tt.text)), "sys/module")); diff != "" {
				t.Errorf("modules (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMemlock reads the limit as a process does, through /proc/self.
func TestMemlock(t *testing.T) {
	const gpu = "pci:\n- root: 0000:10\n  numa: 0\n  below:\n  - {gpu: 10:00.0, part: h100-sxm}\n"
	for text, want := range map[string]string{
		"":  "8388608 8388608 bytes",
		gpu: "unlimited unlimited bytes",
		strings.Replace(gpu, "h100-sxm", "h100-sxm, driver: none", 1): "8388608 8388608 bytes",
		"host: {memlock: 65536}\n" + gpu:                              "65536 65536 bytes",
		"host: {memlock: unlimited}\n":                                "unlimited unlimited bytes",
	} {
		_, line, _ := strings.Cut(read(t, tree(t, parse(t, head+text)), "proc/self/limits"), "Max locked memory")
		line, _, _ = strings.Cut(line, "\n")
		if got := strings.Join(strings.Fields(line), " "); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	m := tree(t, parse(t, head+"patches:\n- {set: proc/self/limits, to: Max locked memory 1 2 bytes}\n"))
	if got := read(t, m, "proc/self/limits"); got != "Max locked memory 1 2 bytes" {
		t.Errorf("after a patch: %q", got)
	}
}

func TestNVIDIAModule(t *testing.T) {
	for _, tt := range []struct{ text, gpu, want string }{
		{"nvidia: {driver: 535.129.03}\n", "h100-sxm", "NVIDIA UNIX x86_64 Kernel Module  535.129.03"},
		{"nvidia: {driver: 559.1}\n", "h100-sxm", "NVIDIA UNIX x86_64 Kernel Module  559.1"},
		{"nvidia: {driver: 560.35.03}\n", "h100-sxm", "NVIDIA UNIX Open Kernel Module for x86_64  560.35.03"},
		{"", "h100-sxm", "NVIDIA UNIX Open Kernel Module for x86_64  570.133.20"},
		{"nvidia: {module: proprietary}\n", "h100-sxm", "NVIDIA UNIX x86_64 Kernel Module  570.133.20"},
		{"nvidia: {driver: 535.129.03, module: open}\n", "h100-sxm", "NVIDIA UNIX Open Kernel Module for x86_64  535.129.03"},
		{"", "v100-sxm2", "NVIDIA UNIX x86_64 Kernel Module  570.133.20"}, // the open one wants Turing
		{"nvidia: {driver: 550.90.07}\n", "b200", "NVIDIA UNIX Open Kernel Module for x86_64  550.90.07"},
		{"host: {arch: aarch64}\nnvidia: {driver: 550.90.07}\n", "gh200", "NVIDIA UNIX Open Kernel Module for aarch64  550.90.07"},
	} {
		m := tree(t, parse(t, head+tt.text+"pci: [{root: 0000:10, below: [{gpu: 10:00.0, part: "+tt.gpu+"}]}]\n"))
		if got := read(t, m, "proc/driver/nvidia/version"); !strings.HasPrefix(got, "NVRM version: "+tt.want) {
			t.Errorf("%s with %q: %s, want %s", tt.gpu, tt.text, got, tt.want)
		}
	}
}

package sysfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
)

// specs is what the fixtures' specs say of the machines.
var specs = map[string]struct {
	virtual          string
	gpus, rdma, numa int
}{
	"a10-2nic":               {"none", 2, 2, 2},
	"aws-p5-44nic-synthetic": {"nitro", 8, 44, 2},
	"b200":                   {"none", 8, 10, 2},
	"b300-16nic":             {"none", 8, 16, 2},
	"bonds":                  {"kvm", 8, 8, 2},
	"cpu-2eth":               {"none", 0, 0, 2},
	"dgx-a100":               {"none", 8, 10, 8},
	"dgx-h100":               {"none", 8, 12, 2},
	"dgx-h100-gpu2-x8":       {"none", 8, 12, 2},
	"dgx-h100-missing-files": {"none", 8, 12, 2},
	"dgx-h100-nic-gen1":      {"none", 8, 12, 2},
	"dgx-h100-numa-unknown":  {"none", 8, 12, 2},
	"dgx-h100-odd-speed":     {"none", 8, 12, 2},
	"dgx-h100-port-down":     {"none", 8, 12, 2},
	"dgx-h100-rdma-no-pci":   {"none", 8, 12, 2},
	"epyc-nps4":              {"none", 4, 2, 8},
	"gb200-tray":             {"none", 4, 8, 2},
	"gh200-4gpu":             {"none", 4, 0, 8},
	"h100-nvl-8gpu-2nic":     {"none", 8, 2, 2},
	"h20-3e-8gpu-2nic":       {"none", 8, 2, 2},
	"h20-4ib-1roce":          {"none", 8, 5, 2},
	"hgx-h100-8nic":          {"none", 8, 8, 2},
	"hgx-h20-8nic":           {"none", 8, 8, 2},
	"l40-4gpu-2nic":          {"none", 4, 2, 2},
	"lab-softrdma":           {"kvm", 0, 3, 2},
	"mi300x-8nic":            {"none", 8, 8, 2},
	"nd96asr-v4":             {"hyperv", 8, 8, 4},
	"nvl72-synthetic":        {"none", 72, 72, 36},
	"pcie-4gpu-5nic-bf3":     {"none", 4, 5, 2},
	"pcie-8gpu-2nic-epyc":    {"none", 8, 2, 2},
	"sriov-pf-vf":            {"none", 2, 10, 2},
	"v100-8gpu":              {"none", 8, 9, 2},
	"vm-flat":                {"kvm", 4, 8, 1},
}

func readFixture(t *testing.T, name string) *topo.Topology {
	t.Helper()
	tree, err := fixtures.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return Read(tree, false)
}

func TestFixtures(t *testing.T) {
	for _, name := range fixtures.Names() {
		t.Run(name, func(t *testing.T) {
			want, ok := specs[name]
			if !ok {
				t.Fatal("not in the table of specs: add what its spec says")
			}
			top := readFixture(t, name)
			if top.Host.Virtual != want.virtual {
				t.Errorf("virtual %q, want %q", top.Host.Virtual, want.virtual)
			}
			arm := strings.HasPrefix(name, "gb200") || strings.HasPrefix(name, "gh200") || strings.HasPrefix(name, "nvl72")
			if top.Host.Arch == "aarch64" != arm || top.Host.Arch == "x86_64" == arm {
				t.Errorf("architecture %q", top.Host.Arch)
			}
			if len(top.GPUs) != want.gpus || len(top.RDMADevices) != want.rdma || len(top.NUMANodes) != want.numa {
				t.Errorf("%d GPUs, %d RDMA devices, %d NUMA nodes, want %d, %d, %d", len(top.GPUs), len(top.RDMADevices),
					len(top.NUMANodes), want.gpus, want.rdma, want.numa)
			}
		})
	}
}

// TestFixtureMI300X: xGMI between all eight GPUs.
func TestFixtureMI300X(t *testing.T) {
	top := readFixture(t, "mi300x-8nic")
	if len(top.Warnings) > 0 {
		t.Errorf("%q", texts(top.Warnings))
	}
	top.Derive()
	for i := range top.GPUs {
		a := &top.GPUs[i]
		if a.ComputeCap != "gfx942" || *a.MemoryBytes != 192<<30 || !strings.HasPrefix(a.UUID, "GPU-") || a.KnownFrom != "proc" {
			t.Errorf("%+v", a)
		}
		for j := range top.GPUs {
			b := &top.GPUs[j]
			if got := top.Relate(a.ID, b.ID).Class; i != j && got != (topo.Class{Kind: topo.ClassXGMI}) {
				t.Errorf("%s to %s: %s", a.ID, b.ID, got)
			}
		}
	}
	n := 0
	for i := range top.Links {
		if top.Links[i].Kind == topo.LinkXGMI {
			n++
		}
	}
	if n != 8*7/2 {
		t.Errorf("%d xGMI links, want 28", n)
	}
}

// TestFixtureMissingFiles: each patch that takes something away has
// its warning. The others cost nothing that every machine has: product_name is
// of the DMI tables, and a GPU's configuration space is not asked.
func TestFixtureMissingFiles(t *testing.T) {
	const name = "dgx-h100-missing-files"
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "fixtures", "machines", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	top := readFixture(t, name)
	silent := 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(strings.Trim(line, "-{} \n"))
		if len(words) < 2 || words[0] != "remove:" && words[0] != "unreadable:" {
			continue
		}
		path := "/" + strings.TrimSuffix(words[1], ",")
		if strings.HasSuffix(path, "/product_name") || strings.HasSuffix(path, "/0000:9d:00.0/config") {
			silent++
			continue
		}
		if strings.HasPrefix(path, "/sys/devices/pci") {
			path = "/" + pciDevices + path[strings.LastIndexByte(path, '/'):]
		}
		named := false
		for _, w := range top.Warnings {
			named = named || w.Evidence == path && (w.Partial() || w.Code == topo.CodeNUMAGuessed)
		}
		if !named {
			t.Errorf("no warning names %s", path)
		}
	}
	if len(top.Warnings) != 11 || silent != 2 {
		t.Errorf("%d warnings: %q", len(top.Warnings), texts(top.Warnings))
	}
}

package sysfs

import (
	"archive/tar"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/internal/hosttree"
)

const captureDir = "../../../../shared/data/captures/sysfs"

// openCapture expands a capture in memory. The tree begins at the directory
// that holds sys.
func openCapture(t testing.TB, name string) *hosttree.Mem {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(captureDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("shared data is not here: no %s", filepath.Join(captureDir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
	mem := hosttree.NewMem()
	if strings.HasSuffix(name, ".ttar") {
		readTTAR(t, mem, string(data))
		return mem
	}
	in := bzip2.NewReader(bytes.NewReader(data))
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return mem
		}
		if err != nil {
			t.Fatal(err)
		}
		entry := hostName(h.Name)
		switch {
		case entry == "":
		case h.Typeflag == tar.TypeSymlink:
			err = mem.AddSymlink(entry, h.Linkname)
		case h.Typeflag == tar.TypeDir:
			err = mem.AddDir(entry)
		case h.Typeflag == tar.TypeReg:
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = mem.AddFile(entry, content)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// hostName takes what stands before sys, proc or run off a name.
func hostName(name string) string {
	parts := strings.Split(path.Clean(name), "/")
	for len(parts) > 0 && !slices.Contains([]string{"sys", "proc", "run", "dev", "etc"}, parts[0]) {
		parts = parts[1:]
	}
	return strings.Join(parts, "/")
}

// readTTAR reads the text form of prometheus/procfs: "Path:", then "Lines: N"
// and the lines, or "SymlinkTo:".
func readTTAR(t testing.TB, mem *hosttree.Mem, text string) {
	lines := strings.Split(text, "\n")
	name := ""
	for i := 0; i < len(lines); i++ {
		key, v, _ := strings.Cut(lines[i], ": ")
		var err error
		switch key {
		case "Path":
			name = hostName(v)
		case "Directory":
			err = mem.AddDir(hostName(v))
		case "SymlinkTo":
			err = mem.AddSymlink(name, v)
		case "Lines":
			n, convErr := parseUint(v, len(lines))
			if convErr != nil {
				t.Fatal(convErr)
			}
			content := strings.ReplaceAll(strings.Join(lines[i+1:i+1+n], "\n")+"\n", "EOF\n", "")
			err = mem.AddFile(name, []byte(content))
			i += n
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// capture is what the README of the captures, and the files, say of one.
type capture struct {
	file               string
	nodes, cpus        int
	pci, gpus, netdevs int
	rdma               []string
	numa               map[string]int // by function; -1 is not known
	parents            map[string]topo.ID
	warnings           int
	incomplete         bool
	more               func(*testing.T, *topo.Topology)
}

func TestCaptures(t *testing.T) {
	for _, c := range captures {
		t.Run(c.file, func(t *testing.T) {
			tree := openCapture(t, c.file)
			top := Read(tree, false)
			cpus, err := cpuset.Parse(top.Host.CPUs)
			if err != nil {
				t.Error(err)
			}
			got := [5]int{len(top.NUMANodes), cpus.Len(), len(top.PCIDevices), len(top.GPUs), len(top.Netdevs)}
			if want := [5]int{c.nodes, c.cpus, c.pci, c.gpus, c.netdevs}; got != want {
				t.Errorf("nodes, CPUs, functions, GPUs, interfaces: %v, want %v", got, want)
			}
			entries, _ := tree.ReadDir(pciDevices)
			for _, e := range entries {
				pciOf(t, top, e.Name())
			}
			var rdma []string
			for _, d := range top.RDMADevices {
				rdma = append(rdma, d.Name)
			}
			if !slices.Equal(rdma, c.rdma) {
				t.Errorf("RDMA devices %v, want %v", rdma, c.rdma)
			}
			for bdf, want := range c.numa {
				if n := pciOf(t, top, bdf).NUMA; n == nil && want >= 0 || n != nil && *n != want {
					t.Errorf("%s on node %v, want %d", bdf, n, want)
				}
			}
			for bdf, want := range c.parents {
				if got := pciOf(t, top, bdf).Parent; got != want {
					t.Errorf("%s below %s, want %s", bdf, got, want)
				}
			}
			if len(top.Warnings) != c.warnings || top.Complete == c.incomplete {
				t.Errorf("complete %v, %d warnings, want %d:\n%s", top.Complete, len(top.Warnings), c.warnings, strings.Join(texts(top.Warnings), "\n"))
			}
			if c.more != nil {
				c.more(t, top)
			}
		})
	}
}

var captures = []capture{
	{
		file: "hwloc-32intel64-2p8co2t+8ve.tar.bz2", nodes: 2, cpus: 32, pci: 28, gpus: 8, netdevs: 2,
		numa:    map[string]int{"0000:1b:00.0": 0, "0000:60:00.0": 0},
		parents: map[string]topo.ID{"0000:1b:00.0": "pci:0000:19:08.0", "0000:19:08.0": "pci:0000:18:00.0", "0000:17:00.0": "hb:0000:17"},
		// one port is not in the capture
		warnings: 2, incomplete: true,
		more: func(t *testing.T, top *topo.Topology) {
			l := pciOf(t, top, "0000:3f:00.0").Link
			if *l.SpeedMTs != 8000 || *l.Width != 16 || *l.MaxSpeedMTs != 8000 {
				t.Errorf("link %+v", l)
			}
			if s := pciOf(t, top, "0000:60:00.0").SRIOV; s == nil || *s.NumVFs != 0 {
				t.Errorf("sriov %+v", s)
			}
			if pciOf(t, top, "0000:19:10.0").SRIOV != nil {
				t.Error("a switch port with virtual functions")
			}
		},
	},
	{
		file: "hwloc-32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2", nodes: 2, cpus: 16, pci: 137, gpus: 1, netdevs: 7,
		rdma: []string{"mlx4_0", "scif0"}, numa: map[string]int{"0000:82:00.0": 1, "0000:7f:08.0": -1},
		warnings: 7, incomplete: true, // links of virtual devices lead nowhere
		more: func(t *testing.T, top *topo.Topology) {
			p := portOf(t, top, "mlx4_0", 1)
			if p.State != "ACTIVE" || p.PhysState != "LinkUp" || p.LinkLayer != "InfiniBand" || p.RateRaw != "56 Gb/sec (4X FDR)" ||
				*p.BytesPerSec != 7_000_000_000 || *p.LID != 0x3a4 || *p.GIDTable != 128 || len(p.GIDs) != 1 || !slices.Equal(p.Netdevs, []string{"ib0"}) {
				t.Errorf("%+v", p)
			}
			if d := rdmaOf(t, top, "mlx4_0"); d.PCI != "pci:0000:82:00.0" || d.Transport != "ib" || *d.NUMA != 1 || d.Firmware != "2.11.500" {
				t.Errorf("%+v", d)
			}
			if d := rdmaOf(t, top, "scif0"); !d.Software || d.PCI != "" || d.Transport != "software" {
				t.Errorf("%+v", d)
			}
			if !slices.Equal(top.NUMANodes[0].Distances, []int{10, 21}) || !warned(top, topo.CodeNoPCIParent, "scif0") {
				t.Errorf("%v %q", top.NUMANodes[0].Distances, texts(top.Warnings))
			}
		},
	},
	{
		file: "hwloc-40intel64-2g2n4c+pcilocality.tar.bz2", nodes: 4, cpus: 40, pci: 37, netdevs: 6, rdma: []string{"qib0"},
		// the BIOS is silent but for one function
		numa: map[string]int{"0000:43:00.0": 2, "0000:02:00.0": -1, "0000:40:03.0": -1}, warnings: 7, incomplete: true,
		more: func(t *testing.T, top *topo.Topology) {
			for _, w := range top.Warnings {
				if w.Code == topo.CodeNUMAUnknown && !strings.HasPrefix(string(w.Subject), "pci:0000:02") && !strings.HasPrefix(string(w.Subject), "pci:0000:03") {
					t.Errorf("only the Ethernet ports matter: %s", w)
				}
			}
		},
	},
	{
		file: "hwloc-fakepcilocalities.tar.bz2", nodes: 4, cpus: 40, pci: 30, netdevs: 6, rdma: []string{"qib0"},
		numa: map[string]int{"0000:43:00.0": 1, "0000:00:06.0": 0, "0000:80:05.0": 2, "0000:c0:05.0": 3}, warnings: 3, incomplete: true,
		more: func(t *testing.T, top *topo.Topology) {
			for i, want := range []int{0, 1, 2, 3} {
				if hb := top.HostBridges[i]; hb.NUMA == nil || *hb.NUMA != want {
					t.Errorf("%s on node %v, want %d", hb.ID, hb.NUMA, want)
				}
			}
			if c := pciOf(t, top, "0000:43:00.0").LocalCPUs; c != "1,5,9,13,17,21,25,29,33,37" {
				t.Errorf("local CPUs %s, from the mask", c)
			}
		},
	},
	{
		file: "hwloc-2pa-pcidomain32bits.tar.bz2", nodes: 1, cpus: 2, pci: 9, netdevs: 2,
		numa:    map[string]int{"10000:00:04.0": 0},
		parents: map[string]topo.ID{"10000:00:04.0": "hb:10000:00", "0000:00:01.2": "hb:0000:00"}, warnings: 1, incomplete: true,
		more: func(t *testing.T, top *topo.Topology) {
			if n := netdevOf(t, top, "ens3"); n.PCI != "pci:0000:00:03.0" || n.Driver != "virtio_net" || top.Host.Virtual != "kvm" {
				t.Errorf("%+v on %s", n, top.Host.Virtual)
			}
		},
	},
	{
		file: "hwloc-nvidia-dgx-gb10.tar.bz2", nodes: 1, cpus: 20, netdevs: 0,
		more: func(t *testing.T, top *topo.Topology) {
			if h := top.Host; h.Arch != "aarch64" || h.CPUModel != "Cortex-A725 + Cortex-X925" || h.Product != "NVIDIA_DGX_Spark" || len(top.Packages) != 1 {
				t.Errorf("%+v %+v", h, top.Packages)
			}
		},
	},
	{
		file: "ghw-kvm-tesla-p100.tar.gz", nodes: 1, cpus: 8, pci: 29, gpus: 1,
		numa: map[string]int{"0000:06:00.0": 0}, parents: map[string]topo.ID{"0000:06:00.0": "pci:0000:00:01.5"}, warnings: 1,
		more: func(t *testing.T, top *topo.Topology) {
			if f, _ := pciOf(t, top, "0000:06:00.0").Facts.Get("numa_node"); f.Source != topo.SourceDerived || top.GPUs[0].KnownFrom != "pci" {
				t.Errorf("node from %v, GPU from %s", f, top.GPUs[0].KnownFrom)
			}
		},
	},
	{
		file: "sysfs-qemu-2numa.tar.gz", nodes: 2, cpus: 4, pci: 32, gpus: 6, netdevs: 5, rdma: []string{"rxe0", "rxe1", "rxe2", "rxe3"},
		numa: map[string]int{"0000:25:00.0": 0, "0000:45:00.0": 1, "0000:00:00.0": -1}, warnings: 1, more: checkLab,
	},
	{
		file: "sysfs-qemu-2numa-iommu.tar.gz", nodes: 2, cpus: 4, pci: 32, gpus: 6, netdevs: 5, rdma: []string{"rxe0", "rxe1", "rxe2", "rxe3"},
		numa: map[string]int{"0000:25:00.0": 0, "0000:45:00.0": 1}, warnings: 1, more: func(t *testing.T, top *topo.Topology) {
			checkLab(t, top)
			if d := pciOf(t, top, "0000:21:00.0"); *d.IOMMUGroup != 16 || d.IOMMUType != "DMA-FQ" {
				t.Errorf("a bridge is in group %v %s", *d.IOMMUGroup, d.IOMMUType)
			}
			if d := pciOf(t, top, "0000:25:00.0"); d.IOMMUGroup == nil || d.IOMMUType != "DMA-FQ" {
				t.Errorf("a GPU is in group %v %s", d.IOMMUGroup, d.IOMMUType)
			}
		},
	},
	{
		file: "sysfs-qemu-4numa.tar.gz", nodes: 4, cpus: 4, pci: 32, gpus: 6, netdevs: 5, rdma: []string{"rxe0", "rxe1", "rxe2", "rxe3"},
		numa: map[string]int{"0000:25:00.0": 0, "0000:45:00.0": 3}, warnings: 1, more: func(t *testing.T, top *topo.Topology) {
			if !slices.Equal(top.NUMANodes[2].Distances, []int{31, 31, 10, 21}) || len(top.Packages) != 4 {
				t.Errorf("%v, %d packages", top.NUMANodes[2].Distances, len(top.Packages))
			}
		},
	},
	{
		file: "procfs-infiniband-trimmed.ttar", nodes: 1, netdevs: 1, rdma: []string{"hfi1_0", "mlx4_0", "mlx5_0"}, warnings: 4,
		more: func(t *testing.T, top *topo.Topology) {
			if d := rdmaOf(t, top, "hfi1_0"); d.Transport != "opa" || d.Firmware != "1.27.0" || d.Software {
				t.Errorf("%+v", d)
			}
			if p := portOf(t, top, "mlx4_0", 2); p.State != "ACTIVE" || *p.BytesPerSec != 5_000_000_000 {
				t.Errorf("%+v", p)
			}
			if n := netdevOf(t, top, "eth0"); n.BDF == nil || n.BDF.String() != "0000:00:1f.6" || *n.MTU != 1500 {
				t.Errorf("%+v", n)
			}
		},
	},
}

// checkLab checks what the two-node QEMU machines have in common.
func checkLab(t *testing.T, top *topo.Topology) {
	for name, want := range map[string]topo.ID{
		"rxe0": "pci:0000:23:00.0", "rxe1": "pci:0000:24:00.0", "rxe2": "pci:0000:43:00.0", "rxe3": "pci:0000:44:00.0",
	} {
		d := rdmaOf(t, top, name)
		if d.PCI != want || !d.Software || d.Transport != "roce" || len(d.CharDevs) != 3 {
			t.Errorf("%s on %s: %+v", name, d.PCI, d)
		}
		n := netdevOf(t, top, d.Netdevs[0])
		if n.PCI != want || n.NUMA == nil || *n.NUMA != *d.NUMA {
			t.Errorf("%s on %s", n.Name, n.PCI)
		}
	}
	if d := pciOf(t, top, "0000:21:00.0"); d.Role != topo.RoleUpstream || d.ACS != nil || d.Link.MaxSpeedMTs == nil {
		t.Errorf("%+v", d)
	}
	if d := pciOf(t, top, "0000:22:00.0"); d.Role != topo.RoleDownstream || d.Parent != "pci:0000:21:00.0" {
		t.Errorf("%+v", d)
	}
	if d := pciOf(t, top, "0000:20:00.0"); d.Role != topo.RoleRootPort || d.ACS == nil || d.Parent != "hb:0000:20" {
		t.Errorf("%+v", d)
	}
	for _, hb := range top.HostBridges {
		f, _ := hb.Facts.Get("numa_node")
		if want := "pci_bus/{bus}/cpulistaffinity"; hb.Bus != 0 && f.Where != want || hb.Bus == 0 && hb.NUMA != nil {
			t.Errorf("%s on node %v from %v", hb.ID, hb.NUMA, f)
		}
	}
}

// TestThisMachine reads the machine that the test runs on: no function of its
// listing may be lost, and its CPUs and memory must be known.
func TestThisMachine(t *testing.T) {
	if _, err := os.Stat("/proc/meminfo"); err != nil {
		t.Skip("not Linux: no /proc/meminfo")
	}
	tree, err := hosttree.OpenDir("/")
	if err != nil {
		t.Skipf("no live tree here: %v", err)
	}
	defer tree.Close()
	top := Read(tree, true)
	listed, _ := os.ReadDir("/" + pciDevices)
	for _, e := range listed {
		pciOf(t, top, e.Name())
	}
	if h := top.Host; len(top.NUMANodes) == 0 || h.CPUs == "" || h.MemoryBytes == nil || h.Kernel == "" || h.Container == nil {
		t.Errorf("%d nodes, %+v", len(top.NUMANodes), h)
	}
}

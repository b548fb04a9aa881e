package sysfs

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
)

// A function that topologies are not about is known from its uevent file; where
// that makes no sense the other files are read.
func TestUevent(t *testing.T) {
	const dir = "sys/devices/pci0000:17/0000:17:00.1"
	good := "DRIVER=skx_uncore\nPCI_CLASS=88000\nPCI_ID=8086:09A2\nPCI_SUBSYS_ID=15D9:0001\nPCI_SLOT_NAME=0000:17:00.1\nMODALIAS=pci:x\n"
	for _, tt := range []struct {
		what, uevent, want string
		class              string
	}{
		{"whole", good, "uevent 0x8086 0x09a2 0x15d9 0x0001 skx_uncore", "0x088000"},
		{"no driver", strings.TrimPrefix(good, "DRIVER=skx_uncore\n"), "uevent 0x8086 0x09a2 0x15d9 0x0001 ", "0x088000"},
		{"missing", "", "vendor 0x8086 0x09a3 0x15d9 0x0001 other", "0x088000"},
		{"cut off", good[:60], "vendor 0x8086 0x09a3 0x15d9 0x0001 other", "0x088000"},
		{"another's", strings.Replace(good, "17:00.1", "17:00.2", 1), "vendor 0x8086 0x09a3 0x15d9 0x0001 other", "0x088000"},
		{"another class", good, "vendor 0x8086 0x09a3 0x15d9 0x0001 other", "0x088001"},
		{"garbled ID", strings.Replace(good, "8086:09A2", "8086:9A2", 1), "vendor 0x8086 0x09a3 0x15d9 0x0001 other", "0x088000"},
		{"garbled driver", strings.Replace(good, "skx_uncore", "../x", 1), "vendor 0x8086 0x09a3 0x15d9 0x0001 other", "0x088000"},
		{"a NIC", strings.Replace(good, "88000", "20000", 1), "vendor 0x8086 0x09a3 0x15d9 0x0001 other", "0x020000"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			m := newMachine()
			m.pci("0000:17", "0000:17:00.1", tt.class, "0x8086", "0x09a3", "numa_node", "0", "local_cpulist", "9")
			m.driver(dir, "other")
			if tt.uevent != "" {
				m.file(dir+"/uevent", tt.uevent)
			}
			top := m.read(t)
			d := pciOf(t, top, "0000:17:00.1")
			from, _ := d.Facts.Get("vendor")
			got := strings.Join([]string{from.Where, string(d.Vendor), string(d.Device), string(d.SubVendor), string(d.SubDevice), d.Driver}, " ")
			if got != tt.want || len(top.Warnings) > 0 {
				t.Errorf("%q, want %q; warnings %q", got, tt.want, texts(top.Warnings))
			}
			if cpus, _ := d.Facts.Get("local_cpus"); d.LocalCPUs != "0-3" || cpus.Source != topo.SourceDerived {
				t.Errorf("local CPUs %q from %v, want those of node 0", d.LocalCPUs, cpus)
			}
		})
	}
}

// A plain function has a link only below a port; a network function is always
// asked.
func TestLinksAskedFor(t *testing.T) {
	m := newMachine()
	m.pcie("0000:17", "0000:17:00.1", "0x088000", "0x8086", "0x09a2", "0", "0-3")
	m.pcie("0000:17", "0000:17:00.2", "0x020000", "0x8086", "0x1521", "0", "0-3")
	m.pcie("0000:17", "0000:17:02.0/0000:1c:00.1", "0x0c0330", "0x1912", "0x0014", "0", "0-3")
	top := m.read(t)
	got := map[string]bool{}
	for _, bdf := range []string{"0000:17:00.1", "0000:17:00.2", "0000:1c:00.1"} {
		got[bdf] = pciOf(t, top, bdf).Link != nil
	}
	if diff := cmp.Diff(map[string]bool{"0000:17:00.1": false, "0000:17:00.2": true, "0000:1c:00.1": true}, got); diff != "" {
		t.Errorf("links (-want +got)\n%s", diff)
	}
}

// /proc/cpuinfo tells the cores of packages of the first one's size; those of
// others are counted.
func TestCores(t *testing.T) {
	for what, tt := range map[string]struct {
		siblings, cores string
		want            []int
		source          topo.Source
	}{
		"told":              {"4", "3", []int{3, 3}, topo.SourceProc},
		"of another size":   {"6", "3", []int{2, 2}, topo.SourceSysfs},
		"siblings not told": {"", "3", []int{2, 2}, topo.SourceSysfs},
	} {
		m := newMachine()
		info := strings.ReplaceAll(m.files["proc/cpuinfo"], "cpu cores\t: 2", "cpu cores\t: "+tt.cores)
		if tt.siblings != "" {
			info = strings.ReplaceAll(info, "cpu cores", "siblings\t: "+tt.siblings+"\ncpu cores")
		}
		m.file("proc/cpuinfo", info)
		top := m.read(t)
		for i, p := range top.Packages {
			if from, _ := p.Facts.Get("cores"); *p.Cores != tt.want[i] || from.Source != tt.source {
				t.Errorf("%s: package %d has %d cores from %v, want %d from %s", what, i, *p.Cores, from, tt.want[i], tt.source)
			}
		}
	}
}

// A table whose end was not looked at says how far it was.
func TestGIDsRead(t *testing.T) {
	m := newMachine()
	device := "sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:01.0/0000:1b:00.0"
	const used = "fe80:0000:0000:0000:a088:c203:0012:3456"
	m.rdma(device, "mlx5_0", "Ethernet", 256, used, used, string(zeroGID), used)
	m.rdma(device, "mlx5_9", "Ethernet", 16, used)
	top := m.read(t)
	p := portOf(t, top, "mlx5_0", 1)
	from, _ := p.Facts.Get("gids_read")
	if len(p.GIDs) != 3 || *p.GIDTable != 256 || p.GIDsRead == nil || *p.GIDsRead != 4+gidGap || from.Where != "gids" {
		t.Errorf("%+v", p)
	}
	if p := portOf(t, top, "mlx5_9", 1); len(p.GIDs) != 1 || p.GIDsRead != nil {
		t.Errorf("%+v", p)
	}
}

// A table's size is where its last entry stands: a capture keeps that one, and
// of the unread ones before it none.
func TestGIDTableWithoutSpares(t *testing.T) {
	m := newMachine()
	device := "sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:01.0/0000:1b:00.0"
	m.rdma(device, "mlx5_0", "Ethernet", 1024, "fe80:0000:0000:0000:a088:c203:0012:3456")
	whole := m.read(t)
	gids := device + "/infiniband/mlx5_0/ports/1/gids/"
	for i := 1 + gidGap; i < 1023; i++ {
		m.remove(gids + strconv.Itoa(i))
	}
	m.errors[gids+"1023"] = hosttree.ErrNotCaptured
	got := m.read(t)
	if diff := cmp.Diff(portOf(t, whole, "mlx5_0", 1), portOf(t, got, "mlx5_0", 1)); diff != "" || len(got.Warnings) > len(whole.Warnings) {
		t.Errorf("whole (-), without the spare ones (+):\n%s%q", diff, texts(got.Warnings))
	}
	if p := portOf(t, got, "mlx5_0", 1); *p.GIDTable != 1024 || *p.GIDsRead != 1+gidGap {
		t.Errorf("%d of %d", *p.GIDsRead, *p.GIDTable)
	}
}

package sysfs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

// TestMutations removes, empties and garbles each file of a machine in turn.
// No other device may disappear, and a warning must name the file, unless its
// absence is normal or other files tell the same: then it may not even be read.
func TestMutations(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: slow, and one goroutine")
	}
	base := newMachine()
	bond := base.netdev("sys/devices/virtual", "bond0", "uevent", "DEVTYPE=bond")
	base.dir(bond, "bonding/mode", "802.3ad 4", "bonding/xmit_hash_policy", "layer3+4 1", "bonding/active_slave", "", "bonding/slaves", "ib0 ib1")
	sriov := "sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:01.0/0000:9b:00.0"
	base.dir(sriov, "sriov_totalvfs", "8", "sriov_numvfs", "0")
	base.file("sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/config", "\x00\x10\x30\xc0"+strings.Repeat("\x00", 60))
	want := ids(t, base.read(t))
	if w := base.read(t).Warnings; len(w) > 0 {
		t.Fatalf("before: %q", texts(w))
	}
	for _, name := range slices.Sorted(maps.Keys(base.files)) {
		for how, text := range map[string]string{"removed": "", "empty": "", "garbled": "\x00\xff garbled \x7f\n", "odd": "#!~\n"} {
			m := &machine{files: maps.Clone(base.files), links: base.links}
			m.files[name] = text
			if how == "removed" {
				delete(m.files, name)
			}
			top := m.read(t)
			got := ids(t, top)
			for _, id := range want {
				if !slices.Contains(got, id) && !about(id, name) {
					t.Errorf("%s %s: %s disappeared", name, how, id)
				}
			}
			if named := namedBy(top, name); !named && !silent(name, how) {
				t.Errorf("%s %s: no warning names it: %q", name, how, texts(top.Warnings))
			}
		}
	}
}

// about says whether a node is made from the file, so that losing it with the
// file is right.
func about(id topo.ID, file string) bool {
	return strings.HasPrefix(string(id), "pkg:") && strings.HasSuffix(file, "/physical_package_id")
}

// namedBy says whether a warning's evidence is the file. A file of a PCI
// function or a class device is shown by its entry below /sys/bus or /sys/class.
func namedBy(top *topo.Topology, file string) bool {
	parts := strings.Split(file, "/")
	for _, w := range top.Warnings {
		for n := 1; n < len(parts); n++ {
			if strings.HasSuffix(w.Evidence, "/"+strings.Join(parts[n:], "/")) && n < len(parts)-1 {
				return true
			}
		}
		if w.Evidence == "/"+file {
			return true
		}
	}
	return false
}

// silent lists what needs no warning: files whose absence is normal, files
// that another one stands in for, and text that cannot be wrong.
func silent(file, how string) bool {
	base := file[strings.LastIndexByte(file, '/')+1:]
	function := strings.HasPrefix(file, "sys/devices/pci") && !strings.Contains(file, "/infiniband/") &&
		!strings.Contains(file, "/net/") && !strings.Contains(file, "/nvme/")
	switch how {
	case "removed":
		switch base {
		case "class", "vendor", "device", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width":
			return !function
		case "cpulist", "distance", "meminfo":
			return !strings.Contains(file, "/node/")
		case "state", "phys_state", "link_layer", "rate", "address":
			return false
		case "information":
			return false
		}
		return true
	case "odd": // any line of text is a name
		switch base {
		case "hostname", "osrelease", "sys_vendor", "product_name", "model", "serial", "fw_ver", "board_id", "hca_type", "slaves", "active_slave", "cmdline":
			return true
		}
	}
	if strings.HasPrefix(file, "sys/module/") { // that it is there tells
		return true
	}
	switch base {
	case "traffic_class": // sets nothing
		return how == "empty"
	case "package_cpus_list", "physical_package_id": // asked of one CPU for all of its package
		return !strings.Contains(file, "/cpu0/") && !strings.Contains(file, "/cpu4/")
	case "core_cpus_list": // asked of one CPU for all of its core
		return strings.ContainsAny(file[len("sys/devices/system/cpu/cpu"):][:1], "1357")
	case "uevent", "size", "registry", "slaves": // read for single words; not read; interface names
		return true
	case "0", "1", "2", "3", "4", "5", "6", "7": // gid_attrs may refuse to be read
		return strings.Contains(file, "/gid_attrs/") && how == "empty"
	case "machine-id": // an image that was never started
		return how == "empty"
	case "local_cpulist": // the CPUs of numa_node
		return true
	}
	return strings.HasSuffix(file, "/net/ib0/speed") || strings.HasSuffix(file, "/net/ib1/speed") && how == "empty"
}

// TestMutationsOfEverything empties all files of one name at once.
func TestMutationsOfEverything(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: slow, and one goroutine")
	}
	base := newMachine()
	names := map[string]bool{}
	for f := range base.files {
		names[f[strings.LastIndexByte(f, '/')+1:]] = true
	}
	for name := range names {
		for _, text := range []string{"", "\n", "-1\n", "99999999999999999999\n", strings.Repeat("7", 70000)} {
			m := newMachine()
			for f := range m.files {
				if strings.HasSuffix(f, "/"+name) {
					m.files[f] = text
				}
			}
			top := m.read(t)
			if len(top.PCIDevices) != 14 || len(top.RDMADevices) != 2 || len(top.Ports) != 2 || len(top.Netdevs) != 2 || len(top.NVMes) != 1 {
				t.Errorf("%s = %q: %d functions, %d RDMA devices", name, fmt.Sprintf("%.9s", text), len(top.PCIDevices), len(top.RDMADevices))
			}
		}
	}
}

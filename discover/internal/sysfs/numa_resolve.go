package sysfs

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// resolveNUMA finds the nodes of host bridges, and of functions whose
// numa_node is -1.
func (r *reader) resolveNUMA() {
	for i := range r.t.HostBridges {
		r.bridgeNUMA(&r.t.HostBridges[i])
	}
	rdma := map[topo.ID]bool{}
	for _, d := range r.t.RDMADevices {
		rdma[d.PCI] = true
	}
	for i := range r.t.PCIDevices {
		d := &r.t.PCIDevices[i]
		if d.NUMA != nil {
			continue
		}
		node, where := r.guessNUMA(d)
		f := r.functionFiles(d)
		matters := d.PF == "" && (rdma[d.ID] || isNear(d))
		if node == nil {
			_, there, _ := f.lookup("numa_node", quiet)
			switch {
			case matters && there:
				f.warn(topo.CodeNUMAUnknown, "numa_node", "not known, and neither local CPUs nor a bridge above tell")
			case matters:
				f.warn(topo.CodeNUMAUnknown, "", "no numa_node, and neither local CPUs nor a bridge above tell")
			}
			continue
		}
		d.NUMA = node
		d.Facts.Set("numa_node", topo.SourceDerived, where)
		if matters && r.nodes.only == nil {
			f.warn(topo.CodeNUMAGuessed, "numa_node", fmt.Sprintf("not known; node %d taken from %s", *node, where))
		}
	}
	r.childrenNUMA()
}

// isNear says whether a function's NUMA node matters to people: GPUs, network
// and InfiniBand adapters, NVMe controllers.
func isNear(d *topo.PCIDevice) bool {
	class := string(d.Class)
	return strings.HasPrefix(class, "0x02") || strings.HasPrefix(class, "0x0c06") ||
		strings.HasPrefix(class, "0x0108") || d.Accelerator()
}

// readsNUMA says whether a function's node is the one that its numa_node gives.
func readsNUMA(d *topo.PCIDevice) bool {
	f, _ := d.Facts.Get("numa_node")
	return f.Source == topo.SourceSysfs
}

// guessNUMA is a function's node as its surroundings suggest it, and the file that
// does; nil if there is none.
func (r *reader) guessNUMA(d *topo.PCIDevice) (*int, string) {
	if r.nodes.only != nil {
		return new(*r.nodes.only), "/" + nodeDir
	}
	if local, ok := r.nodes.local[localKey{"local_cpulist", d.LocalCPUs}]; ok && local.node >= 0 {
		return new(local.node), "local_cpulist"
	}
	for up := d.Parent; ; {
		if i, ok := r.bridgeIndex(up); ok {
			hb := &r.t.HostBridges[i]
			f, ok := hb.Facts.Get("numa_node")
			if !ok || hb.NUMA == nil {
				return nil, ""
			}
			where := strings.ReplaceAll(f.Where, "{bus}", hb.ID.Name())
			if !strings.HasPrefix(where, "/") {
				where = hb.Evidence + "/" + where
			}
			return new(*hb.NUMA), where
		}
		i, ok := r.functionIndex(up)
		if !ok {
			return nil, ""
		}
		if d := &r.t.PCIDevices[i]; readsNUMA(d) {
			return new(*d.NUMA), d.Evidence + "/numa_node"
		}
		up = r.t.PCIDevices[i].Parent
	}
}

// bridgeNUMA is a host bridge's own node: from its numa_node, which few have,
// or from the CPUs of its bus.
func (r *reader) bridgeNUMA(hb *topo.HostBridge) {
	if r.nodes.only != nil {
		hb.NUMA = new(*r.nodes.only)
		hb.Facts.Set("numa_node", topo.SourceDerived, "/"+nodeDir)
		return
	}
	name := hb.ID.Name()
	bus := files{r: r, dir: "sys/class/pci_bus/" + name, show: "sys/class/pci_bus/" + name, subject: hb.ID}
	where := "/sys/class/pci_bus/{bus}/"
	if dir := strings.TrimPrefix(hb.Evidence, "/"); dir != "" {
		f := files{r: r, dir: dir, show: dir, subject: hb.ID, facts: &hb.Facts}
		if hb.NUMA = r.numaNode(f); hb.NUMA != nil {
			return
		}
		bus.dir, where = dir+"/pci_bus/"+name, "pci_bus/{bus}/"
	}
	cpus, file := bus.cpus("cpulistaffinity", "cpuaffinity", optional)
	if n := r.nodeHolding(cpus); n >= 0 {
		hb.NUMA = &n
		hb.Facts.Set("numa_node", topo.SourceDerived, where+file)
	}
}

// childrenNUMA gives a host bridge without a node of its own the node on which the
// functions below it agree.
func (r *reader) childrenNUMA() {
	agreed := map[topo.ID]*int{}
	for i := range r.t.PCIDevices {
		d := &r.t.PCIDevices[i]
		if !readsNUMA(d) {
			continue
		}
		root := r.rootOf(d)
		n, seen := agreed[root]
		switch {
		case !seen:
			agreed[root] = d.NUMA
		case n != nil && *n != *d.NUMA:
			agreed[root] = nil
		}
	}
	for i := range r.t.HostBridges {
		hb := &r.t.HostBridges[i]
		if n := agreed[hb.ID]; hb.NUMA == nil && n != nil {
			hb.NUMA = new(*n)
			hb.Facts.Set("numa_node", topo.SourceDerived, "numa_node of the functions below")
		}
	}
}

// rootOf is the host bridge that a function hangs from.
func (r *reader) rootOf(d *topo.PCIDevice) topo.ID {
	up := d.Parent
	for {
		i, ok := r.functionIndex(up)
		if !ok {
			return up
		}
		up = r.t.PCIDevices[i].Parent
	}
}

func (r *reader) functionIndex(id topo.ID) (int, bool) {
	b, ok := elementBDF(id.Name())
	if !ok || !strings.HasPrefix(string(id), "pci:") {
		return 0, false
	}
	i, ok := r.pci.index[b]
	return i, ok
}

func (r *reader) bridgeIndex(id topo.ID) (int, bool) {
	if !strings.HasPrefix(string(id), "hb:") {
		return 0, false
	}
	b, ok := elementBDF(id.Name() + ":00.0")
	if !ok {
		return 0, false
	}
	i, ok := r.pci.bridges[b]
	return i, ok
}

// inheritNUMA gives GPUs, RDMA devices, interfaces, NVMe controllers and
// NVSwitches the node of their PCI function.
func (r *reader) inheritNUMA() {
	pass := func(pci topo.ID, numa **int, facts *topo.Facts) {
		if i, ok := r.functionIndex(pci); ok && r.t.PCIDevices[i].NUMA != nil {
			*numa = new(*r.t.PCIDevices[i].NUMA)
			facts.Set("numa_node", topo.SourceDerived, "pci")
		}
	}
	for i := range r.t.GPUs {
		pass(r.t.GPUs[i].PCI, &r.t.GPUs[i].NUMA, &r.t.GPUs[i].Facts)
	}
	for i := range r.t.RDMADevices {
		pass(r.t.RDMADevices[i].PCI, &r.t.RDMADevices[i].NUMA, &r.t.RDMADevices[i].Facts)
	}
	for i := range r.t.Netdevs {
		pass(r.t.Netdevs[i].PCI, &r.t.Netdevs[i].NUMA, &r.t.Netdevs[i].Facts)
	}
	for i := range r.t.NVMes {
		pass(r.t.NVMes[i].PCI, &r.t.NVMes[i].NUMA, &r.t.NVMes[i].Facts)
	}
	for i := range r.t.NVSwitches {
		pass(r.t.NVSwitches[i].PCI, &r.t.NVSwitches[i].NUMA, &r.t.NVSwitches[i].Facts)
	}
}

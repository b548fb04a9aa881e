package hwlocxml

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/internal/document"
)

// machine collects packages, cores, NUMA nodes and host facts from an object
// and all below. pkg is the package around it, nil outside.
func (d *decoder) machine(e *document.Element, pkg *int) {
	switch kind(e) {
	case "Machine":
		d.hostFacts(e)
	case "Package":
		d.pkg(e)
		pkg = &d.Packages[len(d.Packages)-1].Index
		d.cpuFacts(e)
	case "Core":
		if pkg != nil {
			d.core()
		}
	case "NUMANode":
		d.numaNode(e)
	case "Bridge", "PCIDev", "OSDev", "PU":
		return
	}
	for _, c := range e.All("object") {
		d.machine(c, pkg)
	}
}

// set reads an attribute that is a set; empty where it is missing or malformed.
func (d *decoder) set(e *document.Element, attr string) cpuset.Set {
	text, ok := e.Attr(attr)
	if !ok {
		return cpuset.Set{}
	}
	s, err := cpuset.ParseHwlocMask(text)
	if err != nil {
		d.Warn(topo.CodeMalformed, "", attr+" "+err.Error(), e.Path())
	}
	return s
}

// osIndex is an object's number in the operating system, -1 if it has no number.
func osIndex(e *document.Element) int {
	n, err := strconv.Atoi(e.Get("os_index"))
	if err != nil || n < 0 || n > cpuset.Max {
		return -1
	}
	return n
}

func (d *decoder) pkg(e *document.Element) {
	p := topo.Package{Index: osIndex(e), CPUs: d.set(e, "cpuset").String()}
	taken := func(n int) bool {
		return slices.ContainsFunc(d.Packages, func(o topo.Package) bool { return o.Index == n })
	}
	if p.Index < 0 || taken(p.Index) {
		for p.Index = 0; taken(p.Index); p.Index++ {
		}
	}
	p.ID, p.Evidence = topo.PackageID(p.Index), e.Path()
	p.Facts.Set("cpus", topo.SourceHwloc, "cpuset")
	d.Text(&p.Facts, "model", &p.Model, info(e, "CPUModel"), "info CPUModel")
	d.Packages = append(d.Packages, p)
}

// core counts one core of the package that was read last.
func (d *decoder) core() {
	p := &d.Packages[len(d.Packages)-1]
	if p.Cores == nil {
		p.Cores = new(int)
		p.Facts.Set("cores", topo.SourceHwloc, "objects of type Core")
	}
	*p.Cores++
}

func (d *decoder) numaNode(e *document.Element) {
	index := osIndex(e)
	if index < 0 || slices.ContainsFunc(d.NUMANodes, func(o topo.NUMANode) bool { return o.Index == index }) {
		d.Warn(topo.CodeMalformed, "", fmt.Sprintf("NUMA node with os_index %.20q, which is no number or a second one: left out", e.Get("os_index")), e.Path())
		return
	}
	n := topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(index), Evidence: e.Path()}, Index: index, CPUs: d.set(e, "cpuset").String()}
	n.Facts.Set("index", topo.SourceHwloc, "os_index")
	n.Facts.Set("cpus", topo.SourceHwloc, "cpuset")
	if bytes, err := strconv.ParseInt(e.Get("local_memory"), 10, 64); err == nil && bytes >= 0 {
		n.MemoryBytes = &bytes
		n.Facts.Set("memory_bytes", topo.SourceHwloc, "local_memory")
	}
	// Two nodes with the same CPUs: the second is other memory (HBM, CXL).
	n.MemoryOnly = n.CPUs == "" || slices.ContainsFunc(d.NUMANodes, func(o topo.NUMANode) bool { return o.CPUs == n.CPUs })
	if e.Get("subtype") == "GPUMemory" {
		n.MemoryOnly = true
		d.memoryOf[index] = info(e, "PCIBusID")
	}
	d.NUMANodes = append(d.NUMANodes, n)
}

// finishMachine puts NUMA nodes into packages. A machine without NUMA objects
// (hwloc 1.x leaves a single node out) has one.
func (d *decoder) finishMachine(machine *document.Element) {
	t := d.Topology
	if len(t.NUMANodes) == 0 {
		n := topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(0), Evidence: machine.Path()}, CPUs: t.Host.CPUs, MemoryBytes: t.Host.MemoryBytes}
		n.Facts.Set("index", topo.SourceDerived, "no NUMA node in the file: the machine is one")
		t.NUMANodes = append(t.NUMANodes, n)
	}
	var total int64
	for i := range t.NUMANodes {
		n := &t.NUMANodes[i]
		if !n.MemoryOnly {
			d.cpuNodes[n.Index] = true
		}
		if n.MemoryBytes != nil {
			total += *n.MemoryBytes
		}
		d.packageOf(n)
	}
	if total > 0 && t.Host.MemoryBytes == nil {
		t.Host.MemoryBytes = &total
		t.Host.Facts.Set("memory_bytes", topo.SourceHwloc, "local_memory of all NUMA nodes")
	}
	d.distances()
}

// packageOf finds the package that holds all of a node's CPUs.
func (d *decoder) packageOf(n *topo.NUMANode) {
	cpus, err := cpuset.Parse(n.CPUs)
	if err != nil || cpus.IsEmpty() {
		return
	}
	for i := range d.Packages {
		p := &d.Packages[i]
		if all, err := cpuset.Parse(p.CPUs); err == nil && cpus.SubsetOf(all) {
			index := p.Index
			n.Package = &index
			n.Facts.Set("package", topo.SourceHwloc, "cpuset")
			p.NUMA = append(p.NUMA, n.Index)
			return
		}
	}
}

func (d *decoder) hostFacts(e *document.Element) {
	h := &d.Topology.Host
	for _, f := range []struct {
		dst        *string
		name, fact string
	}{
		{&h.Name, "HostName", "name"}, {&h.Kernel, "OSRelease", "kernel"}, {&h.Arch, "Architecture", "arch"},
		{&h.Vendor, "DMISysVendor", "vendor"}, {&h.Product, "DMIProductName", "product"}, {&h.Product, "PlatformModel", "product"},
	} {
		for _, at := range []*document.Element{e, d.root} { // version 3 keeps some at the root
			d.Text(&h.Facts, f.fact, f.dst, info(at, f.name), at.Path()+" info "+f.name)
		}
	}
	cpus := d.set(e, "cpuset")
	h.CPUs = cpus.String()
	d.Fact(&h.Facts, h.CPUs != "", "cpus", e.Path()+" cpuset")
	if allowed := d.set(e, "allowed_cpuset"); !allowed.IsEmpty() && !cpus.SubsetOf(allowed) {
		h.AllowedCPUs = allowed.String()
		h.Facts.Set("allowed_cpus", topo.SourceHwloc, e.Path()+" allowed_cpuset")
	}
	d.cpuFacts(e)
}

// cpuFacts takes the processor's name and numbers from the first object that
// has them.
func (d *decoder) cpuFacts(e *document.Element) {
	h := &d.Topology.Host
	d.Text(&h.Facts, "cpu_vendor", &h.CPUVendor, info(e, "CPUVendor"), e.Path()+" info CPUVendor")
	d.Text(&h.Facts, "cpu_model", &h.CPUModel, info(e, "CPUModel"), e.Path()+" info CPUModel")
	number := func(dst **int, name, fact string) {
		if v, err := strconv.Atoi(info(e, name)); err == nil && v >= 0 && *dst == nil {
			*dst = &v
			h.Facts.Set(fact, topo.SourceHwloc, e.Path()+" info "+name)
		}
	}
	if strings.HasPrefix(h.Arch, "x86") || h.Arch == "" {
		number(&h.CPUFamily, "CPUFamilyNumber", "cpu_family")
		number(&h.CPUModelID, "CPUModelNumber", "cpu_model_id")
	}
}

package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/base/cpuset"
)

func (e *expansion) host() {
	h := &e.s.host
	e.files("proc/sys/kernel", "hostname", h.name, "osrelease", h.kernel, "ostype", "Linux", "arch", h.arch)
	e.file("proc/version", fmt.Sprintf("Linux version %s (build@example) (gcc 12.3.0) #1 SMP PREEMPT_DYNAMIC %s", h.kernel, h.arch))
	e.file("proc/cmdline", cmp.Or(h.cmdline, "BOOT_IMAGE=/boot/vmlinuz-"+h.kernel+" ro"))
	e.process()
	if h.vendor != "" {
		e.file("sys/class/dmi/id/sys_vendor", h.vendor)
	}
	if h.product != "" {
		e.file("sys/class/dmi/id/product_name", h.product)
	}
	if h.virtual == "xen" {
		e.file("sys/hypervisor/type", "xen")
	}
	if h.virtual == "kvm" && h.arch == "x86_64" {
		e.file("sys/devices/system/clocksource/clocksource0/available_clocksource", "kvm-clock tsc acpi_pm ")
	}
	for _, name := range e.s.moduleNames() {
		e.file("sys/module/"+name+"/initstate", "live")
	}
}

// rdmaModules are the modules that make an RDMA device of what a driver runs.
// A driver that is not here does so itself.
var rdmaModules = map[string]string{
	"mlx5_core": "mlx5_ib", "mlx4_core": "mlx4_ib", "bnxt_en": "bnxt_re", "ice": "irdma", "i40e": "irdma",
}

// moduleNames are the drivers, as modules are spelt, what goes with them, and
// the modules of the text.
func (s *Spec) moduleNames() []string {
	out := slices.Clone(s.modules)
	rdma := len(s.software) > 0
	for _, f := range s.pci {
		if f.driver == "" || f.driver == "pcieport" {
			continue
		}
		out = append(out, strings.ReplaceAll(f.driver, "-", "_"))
		if f.driver == "nvidia" {
			out = append(out, "nvidia_uvm")
		}
		if f.nic == nil || f.nic.rdma == "" {
			continue
		}
		rdma = true
		if name := rdmaModules[f.driver]; name != "" {
			out = append(out, name)
		}
		if f.nic.layer == "ib" && f.nic.net != "" {
			out = append(out, "ib_ipoib")
		}
	}
	for _, r := range s.software {
		out = append(out, map[string]string{"rxe": "rdma_rxe", "siw": "siw", "scif": "scif"}[r.driver])
	}
	if rdma { // what rdma-core loads
		out = append(out, "ib_core", "ib_uverbs", "ib_umad", "rdma_cm", "rdma_ucm")
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// process adds the limits and the empty environment of the process that /proc/self
// leads to.
func (e *expansion) process() {
	memlock := e.s.host.memlock
	if memlock == "" {
		memlock = "8388608"
		if slices.ContainsFunc(e.s.gpus(), func(f *function) bool { return f.driver != "" }) {
			memlock = "unlimited"
		}
	}
	var b strings.Builder
	for _, row := range [][4]string{
		{"Limit", "Soft Limit", "Hard Limit", "Units"}, {"Max cpu time", "unlimited", "unlimited", "seconds"},
		{"Max open files", "1024", "1048576", "files"}, {"Max locked memory", memlock, memlock, "bytes"},
		{"Max address space", "unlimited", "unlimited", "bytes"},
	} {
		fmt.Fprintf(&b, "%-25s %-20s %-20s %-10s\n", row[0], row[1], row[2], row[3])
	}
	const process = "proc/4242"
	e.link("proc/self", process)
	e.raw(process+"/limits", []byte(b.String()))
	e.raw(process+"/environ", nil)
}

func (e *expansion) cpus() {
	const dir = "sys/devices/system/cpu"
	all := e.s.cpus()
	e.files(dir, "online", all, "possible", all, "present", all, "offline", "")
	packages := map[int]cpuset.Set{}
	for _, n := range e.s.numa {
		packages[n.pkg] = packages[n.pkg].Union(n.cpus)
	}
	width := all.Last() + 1
	info := map[int]string{}  // of /proc/cpuinfo
	nextCore := map[int]int{} // of a package
	for _, n := range e.s.numa {
		siblings := packages[n.pkg]
		siblingList, siblingMask := siblings.String(), siblings.KernelMask(width)
		for _, threads := range e.s.cores(n) {
			core, list, mask := nextCore[n.pkg], threads.String(), threads.KernelMask(width)
			nextCore[n.pkg]++
			for c := range threads.All() {
				cpu := dir + "/cpu" + strconv.Itoa(c)
				e.files(cpu+"/topology", "physical_package_id", n.pkg, "die_id", 0, "core_id", core,
					"core_cpus", mask, "core_cpus_list", list, "thread_siblings", mask, "thread_siblings_list", list,
					"package_cpus", siblingMask, "package_cpus_list", siblingList, "core_siblings", siblingMask, "core_siblings_list", siblingList)
				if c != 0 {
					e.file(cpu+"/online", 1)
				}
				info[c] = e.cpuinfo(c, n.pkg, core, siblings.Len())
			}
		}
	}
	var text strings.Builder
	for c := range all.All() {
		text.WriteString(info[c])
	}
	e.raw("proc/cpuinfo", []byte(text.String()))
}

// cores groups a node's CPUs by core. Threads of a core have neighbouring
// numbers, or (as Linux mostly numbers them) lie one share of the list apart.
func (s *Spec) cores(n *numaNode) []cpuset.Set {
	cpus := slices.Collect(n.cpus.All())
	threads := s.cpu.threads
	out := make([]cpuset.Set, len(cpus)/threads)
	for core := range out {
		var members []int
		for k := range threads {
			i := core + k*len(out)
			if s.cpu.siblings == "adjacent" {
				i = core*threads + k
			}
			members = append(members, cpus[i])
		}
		out[core] = cpuset.Of(members...)
	}
	return out
}

func (e *expansion) cpuinfo(c, pkg, core, siblings int) string {
	p := &e.s.cpu
	if e.s.host.arch != "x86_64" {
		return fmt.Sprintf("processor\t: %d\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd evtstrm aes sha1 sha2 crc32 atomics cpuid sve\n"+
			"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n\n", c)
	}
	flags := "fpu tsc msr pae cx8 apic sep mtrr pge cmov sse sse2 ht syscall nx lm constant_tsc avx avx2"
	if e.s.host.virtual != "none" {
		flags += " hypervisor"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "processor\t: %d\nvendor_id\t: %s\n", c, p.vendor)
	if p.family != nil {
		fmt.Fprintf(&b, "cpu family\t: %d\n", *p.family)
	}
	if p.model != nil {
		fmt.Fprintf(&b, "model\t\t: %d\n", *p.model)
	}
	fmt.Fprintf(&b, "model name\t: %s\nphysical id\t: %d\nsiblings\t: %d\ncore id\t\t: %d\ncpu cores\t: %d\nflags\t\t: %s\n\n",
		p.name, pkg, siblings, core, siblings/p.threads, flags)
	return b.String()
}

func (e *expansion) nodes() {
	const dir = "sys/devices/system/node"
	width := e.s.cpus().Last() + 1
	var all, withCPU, withMemory []int
	var total int64
	for i, n := range e.s.numa {
		all = append(all, n.index)
		if !n.cpus.IsEmpty() {
			withCPU = append(withCPU, n.index)
		}
		if n.mem > 0 {
			withMemory = append(withMemory, n.index)
		}
		total += n.mem
		kb := n.mem >> 10
		node := dir + "/node" + strconv.Itoa(n.index)
		e.files(node, "cpulist", n.cpus, "cpumap", n.cpus.KernelMask(width), "distance", e.s.distances(i))
		e.raw(node+"/meminfo", fmt.Appendf(nil, "Node %[1]d MemTotal:       %[2]d kB\nNode %[1]d MemFree:        %[3]d kB\nNode %[1]d MemUsed:        %[4]d kB\n"+
			"Node %[1]d HugePages_Total:     0\nNode %[1]d HugePages_Free:      0\nNode %[1]d HugePages_Surp:      0\n", n.index, kb, kb/10*9, kb-kb/10*9))
		for _, size := range []string{"1048576kB", "2048kB"} {
			e.files(node+"/hugepages/hugepages-"+size, "nr_hugepages", 0, "free_hugepages", 0, "surplus_hugepages", 0)
		}
		for c := range n.cpus.All() {
			cpu := "cpu" + strconv.Itoa(c)
			e.link(node+"/"+cpu, "sys/devices/system/cpu/"+cpu)
			e.link("sys/devices/system/cpu/"+cpu+"/node"+strconv.Itoa(n.index), node)
		}
	}
	memory := cpuset.Of(withMemory...)
	e.files(dir, "online", cpuset.Of(all...), "possible", cpuset.Of(all...), "has_cpu", cpuset.Of(withCPU...),
		"has_memory", memory, "has_normal_memory", memory)
	kb := total >> 10
	e.raw("proc/meminfo", fmt.Appendf(nil, "MemTotal:       %d kB\nMemFree:        %d kB\nMemAvailable:   %d kB\n"+
		"HugePages_Total:       0\nHugePages_Free:        0\nHugePages_Rsvd:        0\nHugePages_Surp:        0\n"+
		"Hugepagesize:       2048 kB\nHugetlb:               0 kB\n", kb, kb/10*9, kb/10*9))
}

// distances is a node's row of the SLIT: what the text says, or 10 to itself,
// 12 within a socket and 21 to another.
func (s *Spec) distances(row int) string {
	n := s.numa[row]
	out := make([]string, len(s.numa))
	for i, other := range s.numa {
		d := 21
		switch {
		case len(n.distance) > 0:
			d = n.distance[i]
		case i == row:
			d = 10
		case other.pkg == n.pkg:
			d = 12
		}
		out[i] = strconv.Itoa(d)
	}
	return strings.Join(out, " ")
}

package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/cpuset"
)

// addHost adds what is of the whole host, and the process that /proc/self leads to.
func (e *expansion) addHost() {
	h := &e.Host
	e.put("proc/sys/kernel", "hostname", h.Name, "osrelease", h.Kernel, "ostype", "Linux", "arch", h.Arch)
	e.put("proc", "version", fmt.Sprintf("Linux version %s (build@example) (gcc 12.3.0) #1 SMP PREEMPT_DYNAMIC %s", h.Kernel, h.Arch),
		"cmdline", cmp.Or(h.Cmdline, "BOOT_IMAGE=/boot/vmlinuz-"+h.Kernel+" ro"),
		"self", linkTo("proc/4242"), "4242/limits", e.limits(), "4242/environ", raw(""))
	e.put("sys/class/dmi/id", "sys_vendor", unlessEmpty(h.Vendor), "product_name", unlessEmpty(h.Product))
	if h.Virtual == "xen" {
		e.put("sys/hypervisor", "type", "xen")
	}
	if h.Virtual == "kvm" && h.Arch == "x86_64" {
		e.put("sys/devices/system/clocksource/clocksource0", "available_clocksource", "kvm-clock tsc acpi_pm ")
	}
	for _, name := range e.moduleNames() {
		e.put("sys/module/"+name, "initstate", "live")
	}
}

func (e *expansion) limits() entry {
	memlock := e.Host.Memlock
	if memlock == "" {
		memlock = "8388608"
		if slices.ContainsFunc(e.gpus(), func(f *function) bool { return f.Driver != "" }) {
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
	return raw("%s", b.String())
}

// rdmaModules are the modules that make RDMA devices, by driver. A driver that is not
// here does so itself.
var rdmaModules = map[string]string{
	"mlx5_core": "mlx5_ib", "mlx4_core": "mlx4_ib", "bnxt_en": "bnxt_re", "ice": "irdma", "i40e": "irdma",
	"rxe": "rdma_rxe", "siw": "siw", "scif": "scif",
}

// moduleNames are the drivers, as modules are spelt, what goes with them, and
// the modules of the text.
func (s *Spec) moduleNames() []string {
	out := slices.Clone(s.Modules)
	for _, f := range s.pci {
		if f.Driver == "" || f.Driver == "pcieport" {
			continue
		}
		out = append(out, moduleOf(f.Driver))
		if f.Driver == "nvidia" {
			out = append(out, "nvidia_uvm")
		}
		if f.nic != nil && f.nic.RDMA != "" {
			out = append(out, rdmaModules[f.Driver])
			if f.nic.Layer == "ib" && f.nic.Net != "" {
				out = append(out, "ib_ipoib")
			}
		}
	}
	for _, r := range s.SoftRDMA {
		out = append(out, rdmaModules[r.Driver])
	}
	if len(s.rdma) > 0 { // what rdma-core loads
		out = append(out, "ib_core", "ib_uverbs", "ib_umad", "rdma_cm", "rdma_ucm")
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(name string) bool { return name == "" })
}

// moduleOf spells a driver's name as that of its module.
func moduleOf(driver string) string { return strings.ReplaceAll(driver, "-", "_") }

func (e *expansion) addCPUs() {
	const dir = "sys/devices/system/cpu"
	all := e.cpus()
	e.put(dir, "online", all, "possible", all, "present", all, "offline", "")
	packages := map[int]cpuset.Set{}
	for _, n := range e.NUMA {
		packages[n.Package] = packages[n.Package].Union(n.CPUs)
	}
	width := all.Last() + 1
	info := make([]string, width) // of /proc/cpuinfo
	nextCore := map[int]int{}     // of a package
	for _, n := range e.NUMA {
		siblings := packages[n.Package]
		siblingList, siblingMask := siblings.String(), siblings.KernelMask(width)
		for _, threads := range e.cores(n) {
			core, list, mask := nextCore[n.Package], threads.String(), threads.KernelMask(width)
			nextCore[n.Package]++
			for c := range threads.All() {
				cpu := dir + "/cpu" + strconv.Itoa(c)
				e.put(cpu+"/topology", "physical_package_id", n.Package, "die_id", 0, "core_id", core,
					"core_cpus", mask, "core_cpus_list", list, "thread_siblings", mask, "thread_siblings_list", list,
					"package_cpus", siblingMask, "package_cpus_list", siblingList, "core_siblings", siblingMask, "core_siblings_list", siblingList)
				if c != 0 {
					e.put(cpu, "online", 1)
				}
				info[c] = e.cpuinfo(c, n.Package, core, siblings.Len())
			}
		}
	}
	e.put("proc", "cpuinfo", raw("%s", strings.Join(info, "")))
}

// cores groups a node's CPUs by core. Threads of a core have neighbouring
// numbers, or (as Linux mostly numbers them) lie one share of the list apart.
func (s *Spec) cores(n *numaNode) []cpuset.Set {
	cpus := slices.Collect(n.CPUs.All())
	threads := s.CPU.Threads
	out := make([]cpuset.Set, len(cpus)/threads)
	for core := range out {
		var members []int
		for k := range threads {
			i := core + k*len(out)
			if s.CPU.Siblings == "adjacent" {
				i = core*threads + k
			}
			members = append(members, cpus[i])
		}
		out[core] = cpuset.Of(members...)
	}
	return out
}

func (e *expansion) cpuinfo(c, pkg, core, siblings int) string {
	if e.Host.Arch != "x86_64" {
		return fmt.Sprintf("processor\t: %d\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd evtstrm aes sha1 sha2 crc32 atomics cpuid sve\n"+
			"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n\n", c)
	}
	text := fmt.Sprintf("processor\t: %d\nvendor_id\t: %s\n", c, e.CPU.Vendor)
	if e.CPU.Family != nil {
		text += fmt.Sprintf("cpu family\t: %d\n", *e.CPU.Family)
	}
	if e.CPU.Model != nil {
		text += fmt.Sprintf("model\t\t: %d\n", *e.CPU.Model)
	}
	flags := "fpu tsc msr pae cx8 apic sep mtrr pge cmov sse sse2 ht syscall nx lm constant_tsc avx avx2"
	if e.Host.Virtual != "none" {
		flags += " hypervisor"
	}
	return text + fmt.Sprintf("model name\t: %s\nphysical id\t: %d\nsiblings\t: %d\ncore id\t\t: %d\ncpu cores\t: %d\nflags\t\t: %s\n\n",
		e.CPU.Name, pkg, siblings, core, siblings/e.CPU.Threads, flags)
}

func (e *expansion) addNUMANodes() {
	const dir = "sys/devices/system/node"
	width := e.cpus().Last() + 1
	var all, withCPU, withMemory []int
	var total int64
	for i, n := range e.NUMA {
		all = append(all, n.Index)
		if !n.CPUs.IsEmpty() {
			withCPU = append(withCPU, n.Index)
		}
		if n.Mem > 0 {
			withMemory = append(withMemory, n.Index)
		}
		total += n.Mem
		kb := n.Mem >> 10
		node := dir + "/node" + strconv.Itoa(n.Index)
		e.put(node, "cpulist", n.CPUs, "cpumap", n.CPUs.KernelMask(width), "distance", e.distances(i), "meminfo",
			raw("Node %[1]d MemTotal:       %[2]d kB\nNode %[1]d MemFree:        %[3]d kB\nNode %[1]d MemUsed:        %[4]d kB\n"+
				"Node %[1]d HugePages_Total:     0\nNode %[1]d HugePages_Free:      0\nNode %[1]d HugePages_Surp:      0\n", n.Index, kb, kb/10*9, kb-kb/10*9))
		for _, size := range []string{"1048576kB", "2048kB"} {
			e.put(node+"/hugepages/hugepages-"+size, "nr_hugepages", 0, "free_hugepages", 0, "surplus_hugepages", 0)
		}
		for c := range n.CPUs.All() {
			cpu := "cpu" + strconv.Itoa(c)
			e.put(node, cpu, linkTo("sys/devices/system/cpu/"+cpu))
			e.put("sys/devices/system/cpu/"+cpu, "node"+strconv.Itoa(n.Index), linkTo(node))
		}
	}
	memory := cpuset.Of(withMemory...)
	e.put(dir, "online", cpuset.Of(all...), "possible", cpuset.Of(all...), "has_cpu", cpuset.Of(withCPU...),
		"has_memory", memory, "has_normal_memory", memory)
	kb := total >> 10
	e.put("proc", "meminfo", raw("MemTotal:       %d kB\nMemFree:        %d kB\nMemAvailable:   %d kB\n"+
		"HugePages_Total:       0\nHugePages_Free:        0\nHugePages_Rsvd:        0\nHugePages_Surp:        0\n"+
		"Hugepagesize:       2048 kB\nHugetlb:               0 kB\n", kb, kb/10*9, kb/10*9))
}

// distances is a node's row of the SLIT: what the text says, or 10 to itself,
// 12 within a socket and 21 to another.
func (s *Spec) distances(row int) string {
	n := s.NUMA[row]
	out := make([]string, len(s.NUMA))
	for i, other := range s.NUMA {
		d := 21
		switch {
		case len(n.Distance) > 0:
			d = n.Distance[i]
		case i == row:
			d = 10
		case other.Package == n.Package:
			d = 12
		}
		out[i] = strconv.Itoa(d)
	}
	return strings.Join(out, " ")
}

package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func (e *expansion) host() {
	h := &e.s.host
	e.file("proc/sys/kernel/hostname", h.name)
	e.file("proc/sys/kernel/osrelease", h.kernel)
	e.file("proc/sys/kernel/ostype", "Linux")
	e.file("proc/sys/kernel/arch", h.arch)
	e.file("proc/version", fmt.Sprintf("Linux version %s (build@example) (gcc 12.3.0) #1 SMP PREEMPT_DYNAMIC %s", h.kernel, h.arch))
	cmdline := h.cmdline
	if cmdline == "" {
		cmdline = "BOOT_IMAGE=/boot/vmlinuz-" + h.kernel + " ro"
	}
	e.file("proc/cmdline", cmdline)
	e.limits()
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
	seen := map[string]bool{}
	for _, name := range e.s.moduleNames() {
		if !seen[name] {
			seen[name] = true
			e.file("sys/module/"+name+"/initstate", "live")
		}
	}
}

// allCPUs are the machine's CPUs, sorted.
func (s *Spec) allCPUs() []int {
	var all []int
	for _, n := range s.numa {
		all = append(all, n.cpus...)
	}
	slices.Sort(all)
	return all
}

// list writes CPUs or nodes as the kernel does: "0-55,112-167".
func list(sorted []int) string {
	var b []byte
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(sorted[i]), 10)
		if j > i {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(sorted[j]), 10)
		}
		i = j + 1
	}
	return string(b)
}

// mask writes CPUs as the kernel's bitmap of bits bits: groups of 32, high first.
func mask(cpus []int, bits int) string {
	words := make([]uint32, (bits+31)/32)
	for _, c := range cpus {
		words[c/32] |= 1 << (c % 32)
	}
	var b strings.Builder
	for i := len(words) - 1; i >= 0; i-- {
		width := 8
		if i == len(words)-1 && bits%32 != 0 {
			width = (bits%32 + 3) / 4
		}
		fmt.Fprintf(&b, "%0*x", width, words[i])
		if i > 0 {
			b.WriteByte(',')
		}
	}
	return b.String()
}

// maskBits is the width of the machine's CPU bitmaps.
func maskBits(all []int) int { return all[len(all)-1] + 1 }

func (e *expansion) cpus() {
	all := e.s.allCPUs()
	online := list(all)
	for _, name := range []string{"online", "possible", "present"} {
		e.file("sys/devices/system/cpu/"+name, online)
	}
	e.file("sys/devices/system/cpu/offline", "")
	packages := map[int][]int{}
	for _, n := range e.s.numa {
		packages[n.pkg] = append(packages[n.pkg], n.cpus...)
	}
	text := make(map[int]string, len(all)) // of /proc/cpuinfo
	for pkg, cpus := range packages {
		slices.Sort(cpus)
		packages[pkg] = cpus
	}
	cores := map[int]int{} // next core number of a package
	set := func(cpus []int) cpuSet { return cpuSet{list(cpus), mask(cpus, maskBits(all))} }
	for _, n := range e.s.numa {
		siblings := set(packages[n.pkg])
		for _, group := range e.s.cores(n) {
			core, threads := cores[n.pkg], set(group)
			cores[n.pkg]++
			for _, c := range group {
				e.oneCPU(c, n.pkg, core, threads, siblings)
				text[c] = e.cpuinfo(c, n.pkg, core, len(packages[n.pkg]))
			}
		}
	}
	var info strings.Builder
	for _, c := range all {
		info.WriteString(text[c])
	}
	e.raw("proc/cpuinfo", []byte(info.String()))
}

// cores groups a node's CPUs by core. Threads of a core have neighbouring
// numbers, or (as Linux mostly numbers them) lie one share of the list apart.
func (s *Spec) cores(n *numaNode) [][]int {
	t := s.cpu.threads
	count := len(n.cpus) / t
	out := make([][]int, count)
	for core := range out {
		for k := range t {
			i := core + k*count
			if s.cpu.adjacent {
				i = core*t + k
			}
			out[core] = append(out[core], n.cpus[i])
		}
	}
	return out
}

// cpuSet is a set of CPUs in the kernel's two spellings.
type cpuSet struct{ list, mask string }

func (e *expansion) oneCPU(c, pkg, core int, threads, siblings cpuSet) {
	dir := "sys/devices/system/cpu/cpu" + strconv.Itoa(c)
	t := dir + "/topology/"
	e.number(t+"physical_package_id", pkg)
	e.number(t+"die_id", 0)
	e.number(t+"core_id", core)
	for _, name := range []string{"core_cpus", "thread_siblings"} {
		e.file(t+name, threads.mask)
		e.file(t+name+"_list", threads.list)
	}
	for _, name := range []string{"package_cpus", "core_siblings"} {
		e.file(t+name, siblings.mask)
		e.file(t+name+"_list", siblings.list)
	}
	if c != 0 {
		e.file(dir+"/online", "1")
	}
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
	const dir = "sys/devices/system/node/"
	bits := maskBits(e.s.allCPUs())
	var all, withCPU, withMemory []int
	var total int64
	for i, n := range e.s.numa {
		all = append(all, n.index)
		if len(n.cpus) > 0 {
			withCPU = append(withCPU, n.index)
		}
		if n.mem > 0 {
			withMemory = append(withMemory, n.index)
		}
		total += n.mem
		node := dir + "node" + strconv.Itoa(n.index) + "/"
		e.file(node+"cpulist", list(n.cpus))
		e.file(node+"cpumap", mask(n.cpus, bits))
		e.file(node+"distance", e.s.distances(i))
		e.raw(node+"meminfo", nodeMeminfo(n))
		for _, size := range []string{"1048576kB", "2048kB"} {
			for _, name := range []string{"nr_hugepages", "free_hugepages", "surplus_hugepages"} {
				e.number(node+"hugepages/hugepages-"+size+"/"+name, 0)
			}
		}
		for _, c := range n.cpus {
			cpu := "cpu" + strconv.Itoa(c)
			e.link(node+cpu, "sys/devices/system/cpu/"+cpu)
			e.link("sys/devices/system/cpu/"+cpu+"/node"+strconv.Itoa(n.index), strings.TrimSuffix(node, "/"))
		}
	}
	e.file(dir+"online", list(all))
	e.file(dir+"possible", list(all))
	e.file(dir+"has_cpu", list(withCPU))
	e.file(dir+"has_memory", list(withMemory))
	e.file(dir+"has_normal_memory", list(withMemory))
	kb := total >> 10
	e.raw("proc/meminfo", fmt.Appendf(nil, "MemTotal:       %d kB\nMemFree:        %d kB\nMemAvailable:   %d kB\n"+
		"HugePages_Total:       0\nHugePages_Free:        0\nHugePages_Rsvd:        0\nHugePages_Surp:        0\n"+
		"Hugepagesize:       2048 kB\nHugetlb:               0 kB\n", kb, kb/10*9, kb/10*9))
}

func nodeMeminfo(n *numaNode) []byte {
	kb := n.mem >> 10
	return fmt.Appendf(nil, "Node %[1]d MemTotal:       %[2]d kB\nNode %[1]d MemFree:        %[3]d kB\nNode %[1]d MemUsed:        %[4]d kB\n"+
		"Node %[1]d HugePages_Total:     0\nNode %[1]d HugePages_Free:      0\nNode %[1]d HugePages_Surp:      0\n", n.index, kb, kb/10*9, kb-kb/10*9)
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

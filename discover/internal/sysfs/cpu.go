package sysfs

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
)

const cpuDir = "sys/devices/system/cpu"

// cpuState is what reading the CPUs leaves for later steps.
type cpuState struct {
	online   cpuset.Set
	packages []cpuset.Set // beside Topology.Packages

	siblings, cores *int // of the first CPU's package, as /proc/cpuinfo says
}

// readCPUs finds the online CPUs and the packages they are in.
func (r *reader) readCPUs() {
	r.readOnline()
	r.t.Host.CPUs = r.cpus.online.String()
	if !r.readPackages() {
		r.packagesFromProc()
	}
	for i := range r.t.Packages {
		p := &r.t.Packages[i]
		p.CPUs = r.cpus.packages[i].String()
		if p.Model = r.t.Host.CPUModel; p.Model != "" {
			p.Facts.Set("model", topo.SourceProc, "/proc/cpuinfo")
		}
	}
	if r.live {
		r.readAllowed()
	}
}

// readOnline takes the CPUs from cpu/online, which kernels have had since 2008, else from /proc/cpuinfo.
// Source: Documentation/ABI/testing/sysfs-devices-system-cpu.
func (r *reader) readOnline() {
	f := files{r: r, dir: cpuDir, show: cpuDir}
	cpus, _ := value(f, "online", optional, cpuset.Parse)
	source, where := topo.SourceSysfs, "/"+cpuDir+"/online"
	if cpus.IsEmpty() {
		data, _ := r.tree.ReadFile("proc/cpuinfo")
		cpus, source, where = listedCPUs(data), topo.SourceProc, "/proc/cpuinfo"
	}
	if !cpus.IsEmpty() {
		r.cpus.online = cpus
		r.t.Host.Facts.Set("cpus", source, where)
	}
}

// listedCPUs collects the numbers of the "processor : N" lines of cpuinfo.
func listedCPUs(cpuinfo []byte) cpuset.Set {
	var cpus []int
	for line := range bytes.Lines(cpuinfo) {
		k, v, ok := cpuinfoLine(line)
		if n, err := parseUint(v, cpuset.Max); ok && k == "processor" && err == nil {
			cpus = append(cpus, n)
		}
	}
	return cpuset.Of(cpus...)
}

// cpuinfoLine splits "model name\t: X" into its key and value.
func cpuinfoLine(line []byte) (key, value string, ok bool) {
	k, v, ok := bytes.Cut(line, []byte{':'})
	return string(bytes.TrimSpace(k)), string(bytes.TrimSpace(v)), ok
}

// readPackages reads the members of a package from one of its CPUs, so that the
// cost does not grow with the number of CPUs. It is false if sysfs does not have
// them. On x86 the first part of /proc/cpuinfo says how many cores a package of
// its size has; elsewhere they are counted.
// Source: Documentation/ABI/stable/sysfs-devices-system-cpu.
func (r *reader) readPackages() bool {
	rest := r.cpus.online
	names := [2]string{"package_cpus_list", "core_siblings_list"}
	for cpu := rest.First(); cpu >= 0; cpu = rest.First() {
		f := r.topology(cpu)
		index, ok := value(f, "physical_package_id", optional, parsePackage)
		if !ok {
			rest = rest.Minus(cpuset.Of(cpu))
			continue
		}
		members, where := f.firstSet(&names, rest)
		if where == "" {
			members, where = cpuset.Of(cpu), "physical_package_id"
		}
		rest = rest.Minus(members)
		r.addPackage(index, members, "/"+f.dir, where)
	}
	cores := [2]string{"core_cpus_list", "thread_siblings_list"}
	for i := range r.t.Packages {
		p := &r.t.Packages[i]
		cpus := r.cpus.packages[i]
		if n := r.cpus.siblings; n != nil && *n == cpus.Len() && r.cpus.cores != nil {
			p.Cores = new(*r.cpus.cores)
			p.Facts.Set("cores", topo.SourceProc, "/proc/cpuinfo")
		} else if n := r.countCores(cpus, &cores); n > 0 {
			p.Cores = &n
			p.Facts.Set("cores", topo.SourceSysfs, "/"+cpuDir+"/cpu*/topology/"+cores[0])
		}
	}
	return len(r.t.Packages) > 0
}

func (r *reader) topology(cpu int) files {
	dir := cpuDir + "/cpu" + strconv.Itoa(cpu) + "/topology"
	return files{r: r, dir: dir, show: dir}
}

// firstSet reads the first of two names for one thing (new kernels, old ones)
// and keeps the one that is there in front for the next CPU. Only CPUs of
// among count.
func (f files) firstSet(names *[2]string, among cpuset.Set) (cpuset.Set, string) {
	for i, name := range names {
		if set, ok := value(f, name, optional, cpuset.Parse); ok {
			if set = set.Intersect(among); !set.IsEmpty() {
				names[0], names[1] = name, names[1-i]
				return set, name
			}
		}
	}
	return cpuset.Set{}, ""
}

// parsePackage reads a package number; a kernel that has none says -1.
func parsePackage(s string) (int, error) {
	if s == "-1" {
		return 0, nil
	}
	return parseCount(s, 1<<30)
}

// addPackage adds CPUs to a package, making it where it is new.
func (r *reader) addPackage(index int, members cpuset.Set, evidence, where string) {
	for i := range r.t.Packages {
		if r.t.Packages[i].Index == index {
			r.cpus.packages[i] = r.cpus.packages[i].Union(members)
			return
		}
	}
	p := topo.Package{Node: topo.Node{ID: topo.PackageID(index), Kind: topo.KindPackage, Evidence: evidence}, Index: index}
	p.Facts.Set("cpus", sourceOf(strings.TrimPrefix(evidence, "/")), where)
	r.t.Packages = append(r.t.Packages, p)
	r.cpus.packages = append(r.cpus.packages, members)
}

// countCores counts a package's cores by their threads, one file for each
// core; 0 is unknown.
func (r *reader) countCores(rest cpuset.Set, names *[2]string) int {
	n := 0
	for cpu := rest.First(); cpu >= 0; cpu = rest.First() {
		threads, where := r.topology(cpu).firstSet(names, rest)
		if where == "" || !threads.Contains(cpu) {
			return 0
		}
		rest = rest.Minus(threads)
		n++
	}
	return n
}

// packagesFromProc takes packages from the "physical id" lines of cpuinfo, and
// puts all CPUs into package 0 where there are none.
func (r *reader) packagesFromProc() {
	data, _ := r.tree.ReadFile("proc/cpuinfo")
	cpu, cores := -1, map[int]int{}
	for line := range bytes.Lines(data) {
		key, v, _ := cpuinfoLine(line)
		n, err := parseUint(v, 1<<30)
		if err != nil {
			continue
		}
		switch {
		case key == "processor":
			cpu = n
		case key == "physical id" && r.cpus.online.Contains(cpu):
			r.addPackage(n, cpuset.Of(cpu), "/proc/cpuinfo", "physical id")
		case key == "cpu cores" && len(r.t.Packages) > 0:
			cores[r.packageOf(cpu)] = n
		}
	}
	if len(r.t.Packages) == 0 && !r.cpus.online.IsEmpty() {
		r.addPackage(0, r.cpus.online, "/"+cpuDir, "")
		r.t.Packages[0].Facts.Set("cpus", topo.SourceDerived, "/"+cpuDir+"/online")
	}
	for i := range r.t.Packages {
		p := &r.t.Packages[i]
		if n := cores[p.Index]; n > 0 {
			p.Cores = &n
			p.Facts.Set("cores", topo.SourceProc, "cpu cores")
		}
	}
}

// packageOf is the package that holds a CPU, -1 if none does.
func (r *reader) packageOf(cpu int) int {
	for i, cpus := range r.cpus.packages {
		if cpus.Contains(cpu) {
			return r.t.Packages[i].Index
		}
	}
	return -1
}

// readAllowed reads the CPUs that this process may use, if not all.
func (r *reader) readAllowed() {
	data, err := r.tree.ReadFile("proc/self/status")
	if err != nil {
		return
	}
	allowed, ok := allowedCPUs(data)
	if allowed = allowed.Intersect(r.cpus.online); !ok || allowed.IsEmpty() || allowed.Equal(r.cpus.online) {
		return
	}
	r.t.Host.AllowedCPUs = allowed.String()
	r.t.Host.Facts.Set("allowed_cpus", topo.SourceProc, "/proc/self/status")
	r.warn(topo.CodePartialView, "", "proc/self/status", "this process may use "+strconv.Itoa(allowed.Len())+
		" of "+strconv.Itoa(r.cpus.online.Len())+" CPUs ("+allowed.String()+")")
}

// allowedCPUs is Cpus_allowed_list of /proc/PID/status.
func allowedCPUs(status []byte) (cpuset.Set, bool) {
	for line := range bytes.Lines(status) {
		if key, v, _ := cpuinfoLine(line); key == "Cpus_allowed_list" {
			set, err := cpuset.Parse(v)
			return set, err == nil
		}
	}
	return cpuset.Set{}, false
}

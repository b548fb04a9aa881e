package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
)

const nodeDir = "sys/devices/system/node"

// numaState is what reading the NUMA nodes leaves for later steps.
type numaState struct {
	synthetic bool // the kernel lists no nodes
	only      *int // the one node that devices can be near to, nil if there are several
	local     map[localKey]localCPUs
	unlisted  map[int]bool // node numbers that were warned about
}

// localKey is a text that some device's local_cpulist or local_cpus holds.
type localKey struct{ file, text string }

// localCPUs is what such a text comes to: hundreds of devices share a few.
type localCPUs struct {
	list string // list form
	node int    // the one node that holds them, -1 if they name none
	err  error
}

// readNUMA reads the nodes of /sys/devices/system/node. A kernel without NUMA
// lists none: then the whole machine is node 0.
// Source: Documentation/ABI/stable/sysfs-devices-node.
func (r *reader) readNUMA() {
	r.nodes.local = map[localKey]localCPUs{}
	r.nodes.unlisted = map[int]bool{}
	var numbers []int
	for _, e := range r.list(nodeDir) {
		if digits, ok := strings.CutPrefix(e.Name(), "node"); ok {
			if n, err := parseUint(digits, cpuset.Max); err == nil {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		r.readNode(n)
	}
	if len(numbers) == 0 {
		r.syntheticNode()
	}
	r.checkDistances()
	var near []int
	for _, n := range r.t.NUMANodes {
		if !n.MemoryOnly {
			near = append(near, n.Index)
		}
	}
	if len(near) == 1 {
		r.nodes.only = &near[0]
	}
}

func (r *reader) readNode(n int) {
	dir := nodeDir + "/node" + strconv.Itoa(n)
	node := topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(n), Kind: topo.KindNUMA, Evidence: "/" + dir}, Index: n}
	f := files{r: r, dir: dir, show: dir, subject: node.ID, facts: &node.Facts}
	cpus, where := f.cpus("cpulist", "cpumap", required)
	if where != "" {
		node.CPUs = cpus.String()
		node.MemoryOnly = cpus.IsEmpty()
		f.fact(true, "cpus", where)
		f.fact(true, "memory_only", where)
		r.setNodePackage(&node, cpus)
	}
	if d := optionalAttribute(f, "distances", "distance", required, parseDistances); d != nil {
		node.Distances = *d
	}
	if bytes, ok := f.memTotal("meminfo", required); ok {
		node.MemoryBytes = &bytes
		f.fact(true, "memory_bytes", "meminfo")
	}
	if node.Package != nil {
		node.Facts.Set("package", topo.SourceDerived, "cpus")
	}
	r.t.NUMANodes = append(r.t.NUMANodes, node)
}

// syntheticNode is the node of a machine whose kernel has no NUMA.
func (r *reader) syntheticNode() {
	node := topo.NUMANode{
		Node:        topo.Node{ID: topo.NUMAID(0), Kind: topo.KindNUMA, Evidence: "/sys/devices/system/cpu"},
		CPUs:        r.cpus.online.String(),
		MemoryBytes: r.t.Host.MemoryBytes,
	}
	derived := func(name, where string) { node.Facts.Set(name, topo.SourceDerived, where) }
	derived("cpus", "online")
	if node.MemoryBytes != nil {
		derived("memory_bytes", "/proc/meminfo")
	}
	r.setNodePackage(&node, r.cpus.online)
	r.t.NUMANodes = append(r.t.NUMANodes, node)
	r.nodes.synthetic = true
}

// setNodePackage names the package that holds all of a node's CPUs, and adds
// the node to each package that holds some.
func (r *reader) setNodePackage(node *topo.NUMANode, cpus cpuset.Set) {
	for i := range r.t.Packages {
		p := &r.t.Packages[i]
		if !cpus.Overlaps(r.cpus.packages[i]) {
			continue
		}
		p.NUMA = append(p.NUMA, node.Index)
		p.Facts.Set("numa_nodes", topo.SourceDerived, "cpus")
		if cpus.SubsetOf(r.cpus.packages[i]) {
			node.Package = new(p.Index)
		}
	}
}

// checkDistances drops rows that do not fit the number of nodes: their columns
// could not be told apart.
func (r *reader) checkDistances() {
	for i := range r.t.NUMANodes {
		n := &r.t.NUMANodes[i]
		if len(n.Distances) == 0 || len(n.Distances) == len(r.t.NUMANodes) {
			continue
		}
		f := files{r: r, show: strings.TrimPrefix(n.Evidence, "/"), subject: n.ID}
		f.warn(topo.CodeMalformed, "distance", fmt.Sprintf("%d values for %d nodes", len(n.Distances), len(r.t.NUMANodes)))
		n.Distances = nil
		n.Facts = slices.DeleteFunc(n.Facts, func(x topo.Fact) bool { return x.Name == "distances" })
	}
}

// parseDistances reads a row of the SLIT: "10 21 21 31".
func parseDistances(s string) ([]int, error) {
	var row []int
	for word := range strings.FieldsSeq(s) {
		n, err := parseUint(word, 1<<20)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q: want distances like 10 21", clip(s))
		}
		row = append(row, n)
	}
	if len(row) == 0 {
		return nil, errors.New("no distances")
	}
	return row, nil
}

// memTotal finds MemTotal in /proc/meminfo or a node's meminfo, in bytes.
func (f files) memTotal(name string, n need) (int64, bool) {
	data, err := f.r.tree.ReadFile(f.dir + "/" + name)
	if err != nil {
		f.readError(name, n, err)
		return 0, false
	}
	total, err := parseMemTotal(data)
	if err != nil {
		f.warn(topo.CodeMalformed, name, err.Error())
		return 0, false
	}
	return total, true
}

// parseMemTotal reads "MemTotal: 16 kB" and "Node 0 MemTotal: 16 kB".
func parseMemTotal(data []byte) (int64, error) {
	for line := range bytes.Lines(data) {
		_, after, ok := bytes.Cut(line, []byte("MemTotal:"))
		if !ok {
			continue
		}
		words := strings.Fields(clip(string(after)))
		if len(words) == 2 && words[1] == "kB" {
			if kb, err := parseUint(words[0], 1<<50); err == nil {
				return int64(kb) * 1024, nil
			}
		}
		return 0, fmt.Errorf("%q: want a MemTotal in kB", clip(string(bytes.TrimSpace(line))))
	}
	return 0, errors.New("no MemTotal")
}

// cpus reads a set of CPUs from the file in list form, else from the one in
// mask form, and says which gave it; "" is neither.
func (f files) cpus(list, mask string, n need) (cpuset.Set, string) {
	s, there, ok := f.lookup(list, optional)
	if ok {
		set, err := cpuset.Parse(s)
		if err == nil {
			return set, list
		}
		f.warn(topo.CodeMalformed, list, err.Error())
	}
	if set, ok := value(f, mask, optional, cpuset.ParseMask); ok {
		if !there && n == required {
			f.warn(topo.CodeMissing, list, "no such file; taken from "+mask)
		}
		return set, mask
	}
	if !there && n == required {
		f.warn(topo.CodeMissing, list, "no such file")
	}
	return cpuset.Set{}, ""
}

// numaNode reads the attribute numa_node; -1 is nil.
func (r *reader) numaNode(f files) *int {
	n, ok := value(f, "numa_node", optional, parseNUMANode)
	if !ok || n < 0 {
		return nil
	}
	if !r.listsNode(n) && !r.nodes.unlisted[n] {
		r.nodes.unlisted[n] = true
		f.warn(topo.CodeMalformed, "numa_node", fmt.Sprintf("%d: no such node in /%s", n, nodeDir))
	}
	f.fact(true, "numa_node", "numa_node")
	return &n
}

func parseNUMANode(s string) (int, error) {
	if s == "-1" {
		return -1, nil
	}
	n, err := parseUint(s, cpuset.Max)
	if err != nil {
		return 0, fmt.Errorf("%q: want a node number or -1", clip(s))
	}
	return n, nil
}

// listsNode says whether a node exists; true where the kernel lists none.
func (r *reader) listsNode(n int) bool {
	return r.nodes.synthetic || slices.ContainsFunc(r.t.NUMANodes, func(x topo.NUMANode) bool { return x.Index == n })
}

// nodeCPUs are the CPUs of a node in list form, nil where the kernel lists no
// such node.
func (r *reader) nodeCPUs(node *int) *string {
	if node == nil || r.nodes.synthetic {
		return nil
	}
	for i := range r.t.NUMANodes {
		if r.t.NUMANodes[i].Index == *node {
			return &r.t.NUMANodes[i].CPUs
		}
	}
	return nil
}

// localCPUs gives a device's local CPUs in list form. Where the device's node
// is known they are that node's, for the kernel prints no others
// (pci_dev_show_local_cpu in drivers/pci/pci-sysfs.c); else they are read.
func (r *reader) localCPUs(f files, node *int) string {
	if cpus := r.nodeCPUs(node); cpus != nil {
		if *cpus != "" {
			f.facts.Set("local_cpus", topo.SourceDerived, "numa_node")
		}
		return *cpus
	}
	s, ok := f.text("local_cpulist", optional)
	name, parse := "local_cpulist", cpuset.Parse
	if !ok || s == "" {
		if s, ok = f.text("local_cpus", optional); !ok {
			return ""
		}
		name, parse = "local_cpus", cpuset.ParseMask
	}
	key := localKey{name, s}
	local, seen := r.nodes.local[key]
	if !seen {
		set, err := parse(s)
		local = localCPUs{list: set.String(), node: r.nodeHolding(set), err: err}
		r.nodes.local[key] = local
		r.nodes.local[localKey{"local_cpulist", local.list}] = local
	}
	if local.err != nil {
		f.warn(topo.CodeMalformed, name, local.err.Error())
		return ""
	}
	f.fact(local.list != "", "local_cpus", "local_cpulist")
	return local.list
}

// nodeHolding is the one node that holds all of the CPUs, -1 if there is none
// or the set says nothing because it is the whole machine.
func (r *reader) nodeHolding(set cpuset.Set) int {
	if set.IsEmpty() || r.cpus.online.SubsetOf(set) {
		return -1
	}
	for i := range r.t.NUMANodes {
		n := &r.t.NUMANodes[i]
		if cpus, err := cpuset.Parse(n.CPUs); err == nil && set.SubsetOf(cpus) {
			return n.Index
		}
	}
	return -1
}

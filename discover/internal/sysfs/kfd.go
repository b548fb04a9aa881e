package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/internal/gpulink"
	"github.com/topoctl/topoctl/discover/topo"
)

// kfdNodes is where AMD's compute driver describes the machine: a node for
// each NUMA node with CPUs, and for each GPU or partition of one.
const kfdNodes = "sys/class/kfd/kfd/topology/nodes"

const (
	maxKFD    = 1024    // nodes, and links of one node, that are read
	maxMemory = 1 << 50 // bytes: more than any GPU has
)

// kfd is the state of reading that description.
type kfd struct {
	*reader
	listed map[int]bool               // numbers of all nodes
	nodes  []kfdNode                  // of GPUs
	ends   map[[2]int]gpulink.XGMIEnd // by number of the node, and of the one at the other end
	hidden int                        // files that this process may not read
}

// kfdNode is a GPU's node.
type kfdNode struct {
	files
	number int
	gpu    int // place in Topology.GPUs
	props  kfdProps
}

// kfdProps is the content of a properties file: numbers by name.
type kfdProps map[string]uint64

// readKFD reads what AMD's compute driver tells of its GPUs, and their xGMI
// links. A machine without that driver has no such files.
// Source: drivers/gpu/drm/amd/amdkfd/kfd_topology.c.
func (r *reader) readKFD() {
	k := kfd{reader: r, listed: map[int]bool{}, ends: map[[2]int]gpulink.XGMIEnd{}}
	k.readNodes()
	partitions := make([][]kfdNode, len(r.t.GPUs))
	for _, n := range k.nodes {
		partitions[n.gpu] = append(partitions[n.gpu], n)
	}
	for i, nodes := range partitions {
		if len(nodes) > 0 {
			k.describe(&r.t.GPUs[i], nodes)
		}
	}
	k.readXGMI()
	if k.hidden > 0 { // a device cgroup hides the GPUs of others
		r.warn(topo.CodePartialView, "", kfdNodes, fmt.Sprintf("this process may not read %d of the properties files", k.hidden))
	}
}

// readNodes reads the nodes and finds the GPU that each is.
func (k *kfd) readNodes() {
	gpus := map[topo.BDF]int{}
	for i := range k.t.GPUs {
		gpus[*k.t.GPUs[i].BDF] = i
	}
	for _, number := range k.numbers(kfdNodes) {
		k.listed[number] = true
		dir := kfdNodes + "/" + strconv.Itoa(number)
		n := kfdNode{files: files{r: k.reader, dir: dir, show: dir}, number: number}
		n.props = k.properties(n.files, "properties")
		if n.props["simd_count"] > 0 && n.match(gpus) { // CPUs have no SIMD units
			k.nodes = append(k.nodes, n)
		}
	}
}

// numbers are the entries of a directory, which are all numbers, in order.
func (k *kfd) numbers(dir string) []int {
	var numbers []int
	for _, e := range k.list(dir) {
		n, err := parseUint(e.Name(), 1<<20)
		if err != nil {
			k.warn(topo.CodeMalformed, "", dir, fmt.Sprintf("entry %q: want a number", clip(e.Name())))
			continue
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	if len(numbers) > maxKFD {
		k.warn(topo.CodeSkipped, "", dir, fmt.Sprintf("%d entries, only the first %d are read", len(numbers), maxKFD))
		numbers = numbers[:maxKFD]
	}
	return numbers
}

// properties reads a properties file; what makes no sense costs its own line.
func (k *kfd) properties(f files, name string) kfdProps {
	data, err := k.tree.ReadFile(f.dir + "/" + name)
	if errors.Is(err, fs.ErrPermission) {
		k.hidden++
		return nil
	}
	if err != nil {
		f.readError(name, required, err)
		return nil
	}
	props, err := parseKFD(data)
	if err != nil {
		f.warn(topo.CodeMalformed, name, err.Error())
	}
	return props
}

// parseKFD reads lines of a name and a number. The error is about the first
// line that is something else; the others count.
func parseKFD(data []byte) (kfdProps, error) {
	if len(data) == 0 || len(data) > maxAttr {
		return nil, fmt.Errorf("%d bytes, want lines of a name and a number", len(data))
	}
	props := kfdProps{}
	var first error
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		name, number, _ := strings.Cut(string(line), " ")
		n, err := strconv.ParseUint(number, 10, 64)
		_, twice := props[name]
		switch {
		case err == nil && !twice:
			props[name] = n
		case first == nil && twice:
			first = fmt.Errorf("%q: a second line of that name", clip(string(line)))
		case first == nil:
			first = fmt.Errorf("%q: want a name and a number", clip(string(line)))
		}
	}
	return props, first
}

// match finds the GPU that the node is, and makes it the subject of warnings.
func (n *kfdNode) match(gpus map[topo.BDF]int) bool {
	bdf, err := n.props.function()
	if err != nil {
		n.warn(topo.CodeMalformed, "properties", err.Error())
		return false
	}
	at, ok := gpus[bdf]
	if !ok { // kernel 6.5 to 6.9 put a partition's number where the function's is
		at, ok = gpus[topo.BDF{Domain: bdf.Domain, Bus: bdf.Bus, Device: bdf.Device}]
	}
	if !ok {
		n.warn(topo.CodePartialView, "properties", fmt.Sprintf("the AMD driver lists GPU %s, which is no GPU in /%s", bdf, pciDevices))
		return false
	}
	n.gpu, n.subject = at, n.r.t.GPUs[at].ID
	return true
}

// function is the PCI function of a GPU's node. Bits 28 to 31 of location_id
// are the number of a partition. Old kernels tell no domain.
func (p kfdProps) function() (topo.BDF, error) {
	location, ok := p["location_id"]
	domain := p["domain"]
	if !ok {
		return topo.BDF{}, errors.New("no location_id")
	}
	if location&^0xf000ffff != 0 || domain > 1<<32-1 {
		return topo.BDF{}, fmt.Errorf("location_id %d, domain %d: no PCI function", location, domain)
	}
	return topo.BDF{Domain: uint32(domain), Bus: uint8(location >> 8), Device: uint8(location >> 3 & 31), Func: uint8(location & 7)}, nil
}

// describe adds the attributes of a GPU; it has several nodes where it is
// partitioned.
func (k *kfd) describe(g *topo.GPU, nodes []kfdNode) {
	first := nodes[0]
	where := "/" + first.dir + "/properties"
	g.KnownFrom = "proc"
	g.Facts.Set("known_from", topo.SourceSysfs, where)
	name, err := gfxName(first.props["gfx_target_version"])
	if err != nil {
		first.warn(topo.CodeMalformed, "properties", err.Error())
	}
	if g.ComputeCap = name; name != "" {
		g.Facts.Set("compute_capability", topo.SourceSysfs, where)
	}
	id := first.props["unique_id"]
	differ := slices.ContainsFunc(nodes, func(n kfdNode) bool { return n.props["unique_id"] != id })
	if id != 0 && !differ {
		g.UUID = fmt.Sprintf("GPU-%016x", id) // as ROCm writes it
		g.Facts.Set("uuid", topo.SourceSysfs, where)
	}
	k.setMemory(g, nodes)
}

// gfxName is the name of an instruction set: "gfx90a" for 90010, which is
// major, minor and stepping with two decimal digits for each of the last two.
func gfxName(version uint64) (string, error) {
	major, minor, stepping := version/10000, version/100%100, version%100
	switch {
	case version == 0:
		return "", nil
	case major == 0 || major > 99 || minor > 15 || stepping > 15:
		return "", fmt.Errorf("gfx_target_version %d: want one like 90402", version)
	}
	return fmt.Sprintf("gfx%d%x%x", major, minor, stepping), nil
}

// setMemory sets the size of a GPU's memory: what its node says, or, as
// partitions may share memory, what the display driver says.
func (k *kfd) setMemory(g *topo.GPU, nodes []kfdNode) {
	size, where := uint64(0), "/"+nodes[0].dir+"/mem_banks"
	if len(nodes) == 1 {
		size = k.memory(nodes[0])
	}
	if size == 0 {
		f := files{r: k.reader, dir: strings.TrimPrefix(g.Evidence, "/"), show: pciDevices + "/" + g.BDF.String(), subject: g.ID}
		where = "mem_info_vram_total"
		size, _ = value(f, where, optional, parseMemorySize)
	}
	if size > 0 {
		g.MemoryBytes = new(int64(size))
		g.Facts.Set("memory_bytes", topo.SourceSysfs, where)
	}
}

// memory is the size of a node's frame buffer in bytes, 0 where it is not told.
func (k *kfd) memory(n kfdNode) uint64 {
	const public, private = 1, 2 // kinds of heap: HSA_MEM_HEAP_TYPE_FB_*
	var sum uint64
	for _, bank := range k.numbers(n.dir + "/mem_banks") {
		name := "mem_banks/" + strconv.Itoa(bank) + "/properties"
		p := k.properties(n.files, name)
		if heap := p["heap_type"]; heap != public && heap != private {
			continue
		}
		if sum += min(p["size_in_bytes"], maxMemory+1); sum > maxMemory {
			n.warn(topo.CodeMalformed, name, fmt.Sprintf("size_in_bytes %d: more than any GPU has", p["size_in_bytes"]))
			return 0
		}
	}
	return sum
}

func parseMemorySize(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > maxMemory {
		return 0, fmt.Errorf("%q: want a number of bytes", clip(s))
	}
	return n, nil
}

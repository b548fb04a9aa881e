package texts

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/formats/internal/imported"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

// matrixLacks is what no matrix tells.
var matrixLacks = []string{
	"PCI addresses, the PCI tree and link rates: the text states classes only",
	"NIC ports, states and speeds, and the NUMA node of NICs",
	"GPU models, UUIDs and memory",
}

// p2pState is what a cell of a peer access matrix says, as GPU.P2P has it.
var p2pState = map[string]string{
	"OK": "ok", "CNS": "chipset not supported", "GNS": "gpu not supported", "TNS": "topology not supported",
	"NS": "not supported", "DR": "disabled by regkey", "U": "unknown",
}

// topology makes a topology of a table: GPUs and RDMA devices without PCI
// functions, NUMA nodes from the affinity columns, and the cells as asserted
// classes.
func (t *matrix) topology() (*topo.Topology, error) {
	b := &matrixHost{Host: begin(topo.SourceSMI, t.Problems, matrixLacks...), table: t, numa: map[int]int{}}
	lack := func(what string) { b.Topology.Host.Lacks = append(b.Topology.Host.Lacks, what) }
	if t.Affinities < 2 {
		lack("NUMA nodes of GPUs: the text has no column of NUMA affinity")
	}
	ids, err := b.devices()
	if err != nil {
		return nil, err
	}
	if t.Kind == kindP2P {
		lack("classes: a peer access matrix says what the driver allows, not where devices are")
		b.peers()
	} else {
		b.asserted(ids)
	}
	detail := "a matrix of classes has no PCI tree: rates, ports and NUMA nodes of NICs are not known"
	if t.Kind == kindROCm {
		detail = "rocm-smi tells XGMI from PCIe, and PCIe across NUMA nodes: other PCIe pairs and NICs have no class"
	}
	b.Warn(topo.CodeLossyImport, "", detail, "")
	return finish(b.Host, fmt.Sprintf("%s matrix, %d devices, %d rows", t.Kind, len(t.Devices), len(t.Rows)))
}

type matrixHost struct {
	imported.Host
	table *matrix
	numa  map[int]int // NUMA index -> place in NUMANodes
}

// devices adds a node for each column and gives their IDs in column order.
func (b *matrixHost) devices() ([]topo.ID, error) {
	ids := make([]topo.ID, len(b.table.Devices))
	seen := map[topo.ID]bool{}
	for i, label := range b.table.Devices {
		switch {
		case gpuName.MatchString(label):
			n, err := strconv.Atoi(label[len("GPU"):])
			if err != nil {
				return nil, pkgerr.Errorf("texts", "column %q: %w", label, err)
			}
			if ids[i] = topo.GPUID(n); seen[ids[i]] {
				return nil, pkgerr.Errorf("texts", "two columns are called GPU%d", n)
			}
			b.gpu(n, label)
		case strings.HasPrefix(label, "NVME"):
			ids[i] = topo.NVMeID(label)
			b.nvme(label)
		default:
			name := b.table.nameOf(label)
			if seen[topo.RDMAID(name)] {
				b.Warn(topo.CodeConflict, topo.RDMAID(name), fmt.Sprintf("two columns are called %q; %s is kept under its column's name", name, label), "")
				name = label
			}
			if ids[i] = topo.RDMAID(name); seen[ids[i]] {
				return nil, pkgerr.Errorf("texts", "two columns are called %q", name)
			}
			b.nic(name, label)
		}
		seen[ids[i]] = true
	}
	return ids, nil
}

// whereOf is the line that tells of a device; a device whose row is missing is
// known from the column heads.
func (b *matrixHost) whereOf(label string) string {
	if r := b.table.row(label); r != nil {
		return where(r.Line)
	}
	return "column " + label
}

func (b *matrixHost) nvme(label string) {
	n := topo.NVMe{Node: topo.Node{ID: topo.NVMeID(label), Kind: topo.KindNVMe, Evidence: b.whereOf(label)}, Name: label}
	n.Facts.Set("name", topo.SourceSMI, "")
	b.NVMes = append(b.NVMes, n)
}

func (b *matrixHost) nic(name, label string) {
	r := topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID(name), Kind: topo.KindRDMA, Evidence: b.whereOf(label)}, Name: name, Uverbs: "unknown"}
	r.Facts.Set("name", topo.SourceSMI, "NIC Legend "+label)
	b.RDMADevices = append(b.RDMADevices, r)
}

func (b *matrixHost) gpu(n int, label string) {
	g := topo.GPU{Node: topo.Node{ID: topo.GPUID(n), Kind: topo.KindGPU, Evidence: b.whereOf(label)}, Index: n, KnownFrom: "import", Vendor: "nvidia"}
	if b.table.Kind == kindROCm || b.table.hasCell("XGMI") { // the latter in our own print
		g.Vendor = "amd"
	} else {
		g.NVMLIndex = &n
		g.Facts.Set("nvml_index", topo.SourceSMI, "")
	}
	g.Facts.Set("index", topo.SourceSMI, "")
	if row := b.table.row(label); row != nil {
		b.affinity(&g, row)
	}
	b.GPUs = append(b.GPUs, g)
}

// hasCell says whether any row has such a cell.
func (t *matrix) hasCell(cell string) bool {
	return slices.ContainsFunc(t.Rows, func(r tableRow) bool { return slices.Contains(r.Cells, cell) })
}

// affinity takes the affinity columns of a GPU's row. Several NUMA nodes of CPUs
// say that the GPU's node is not known.
func (b *matrixHost) affinity(g *topo.GPU, row *tableRow) {
	cpus := row.CPUAffinity
	if _, err := cpuset.Parse(cpus); err != nil {
		if cpus != "N/A" {
			b.Warn(topo.CodeMalformed, g.ID, fmt.Sprintf("CPU affinity %q is no list of CPUs", text.Clip(cpus, maxQuoted)), g.Evidence)
		}
		cpus = ""
	}
	if g.CPUAffinity = cpus; cpus != "" {
		g.Facts.Set("cpu_affinity", topo.SourceSMI, "")
	}
	nodes, ok := parseList(row.NUMAAffinity)
	memories := b.firstMemory()
	nodes = slices.DeleteFunc(nodes, func(n int) bool { return n >= memories })
	switch {
	case !ok:
		b.Warn(topo.CodeMalformed, g.ID, fmt.Sprintf("NUMA affinity %q is no list of NUMA nodes", text.Clip(row.NUMAAffinity, maxQuoted)), g.Evidence)
	case len(nodes) == 1:
		g.NUMA = &nodes[0]
		g.Facts.Set("numa_node", topo.SourceSMI, "")
		b.numaCPUs(b.node(nodes[0], g.Evidence), cpus, g.Evidence)
	case len(nodes) == 0 && b.table.Affinities < 2:
		// No such column: Host.Lacks says so once.
	default:
		for _, n := range nodes {
			b.node(n, g.Evidence)
		}
		b.Warn(topo.CodeNUMAUnknown, g.ID, fmt.Sprintf("NUMA affinity %q names no single node", row.NUMAAffinity), g.Evidence)
	}
	if memory, ok := parseList(row.GPUNUMAID); ok && len(memory) == 1 {
		g.MemoryNUMA = &memory[0]
		g.Facts.Set("memory_numa_node", topo.SourceSMI, "")
		if _, known := b.numa[memory[0]]; !known {
			n := b.node(memory[0], g.Evidence)
			n.MemoryOnly, n.Owner = true, g.ID
		}
	}
}

// firstMemory is the first NUMA node of a GPU's memory. On Grace each GPU has eight of them (for MIG),
// behind those of the CPUs, and the affinity of a GPU lists all near it but its own: "0,3-9,11-17" of
// GPUs with the nodes 2 and 10. Source: published texts of GB200 and GB300 trays.
func (b *matrixHost) firstMemory() int {
	first := math.MaxInt
	for _, r := range b.table.Rows {
		if n, err := strconv.Atoi(r.GPUNUMAID); err == nil {
			first = min(first, n)
		}
	}
	return first
}

// node gives the NUMA node of an index, made when it is first seen.
func (b *matrixHost) node(index int, evidence string) *topo.NUMANode {
	i, ok := b.numa[index]
	if !ok {
		i = len(b.NUMANodes)
		b.numa[index] = i
		n := topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(index), Kind: topo.KindNUMA, Evidence: evidence}, Index: index}
		n.Facts.Set("index", topo.SourceSMI, "NUMA Affinity")
		b.NUMANodes = append(b.NUMANodes, n)
	}
	return &b.NUMANodes[i]
}

// numaCPUs takes a GPU's CPU affinity for its NUMA node's CPUs. It is only a
// part of them where the tool ran in a smaller cpuset.
func (b *matrixHost) numaCPUs(n *topo.NUMANode, cpus, evidence string) {
	switch {
	case cpus == "":
	case n.CPUs == "":
		n.CPUs, n.MemoryOnly, n.Owner = cpus, false, ""
		n.Facts.Set("cpus", topo.SourceSMI, "CPU Affinity")
	case n.CPUs != cpus:
		b.Warn(topo.CodeConflict, n.ID, fmt.Sprintf("two GPUs of this node have CPU affinity %s and %s; the first is kept", text.Clip(n.CPUs, maxQuoted), text.Clip(cpus, maxQuoted)), evidence)
	}
}

// parseList reads "3", "0-1" or "0,2"; blank and "N/A" are an empty list.
func parseList(s string) ([]int, bool) {
	if s == "" || s == "N/A" {
		return nil, true
	}
	set, err := cpuset.Parse(s)
	if err != nil || set.Len() > 64 {
		return nil, false
	}
	return slices.Collect(set.All()), true
}

// asserted takes the cells as classes. A missing row is filled from the
// columns of the others: a class holds in both directions.
func (b *matrixHost) asserted(ids []topo.ID) {
	table := b.table
	n := len(ids)
	a := &topo.Asserted{Source: topo.SourceSMI, Axis: ids, Class: make([][]topo.Class, n)}
	unknown := map[string]bool{}
	for i, label := range table.Devices {
		a.Class[i] = make([]topo.Class, n)
		row := table.row(label)
		if row == nil {
			continue
		}
		for j, cell := range row.Cells {
			a.Class[i][j] = table.class(cell, i == j, unknown)
			if cell == "PCIE" && table.Across[[2]string{label, table.Devices[j]}] {
				a.Class[i][j] = topo.Class{Kind: topo.ClassSYS}
			}
		}
	}
	for i := range n {
		for j := range i {
			x, y := a.Class[j][i], a.Class[i][j]
			switch {
			case !x.Known():
				a.Class[j][i] = y
			case !y.Known():
				a.Class[i][j] = x
			case x != y:
				b.Warn(topo.CodeConflict, ids[j], fmt.Sprintf("row %s says %s to %s, row %s says %s; the first is kept",
					table.Devices[j], x, table.Devices[i], table.Devices[i], y), b.whereOf(table.Devices[j]))
				a.Class[i][j] = x
			}
		}
		a.Class[i][i] = topo.Class{Kind: topo.ClassSelf}
	}
	for _, cell := range slices.Sorted(maps.Keys(unknown)) {
		b.Warn(topo.CodeLossyImport, "", fmt.Sprintf("cells %q name no class that this program knows: taken as unknown", cell), "")
	}
	b.Asserted = a
}

// class reads one cell; words that name no class are collected in unknown.
func (t *matrix) class(cell string, self bool, unknown map[string]bool) topo.Class {
	if cell == "" || cell == "?" || self || t.Kind == kindROCm && cell != "XGMI" {
		return topo.Class{}
	}
	c, err := topo.ParseClass(cell)
	if err != nil {
		unknown[cell] = true
	}
	return c
}

// peers takes the cells as answers on peer access.
func (b *matrixHost) peers() {
	for i := range b.GPUs {
		g := &b.GPUs[i]
		row := b.table.row(fmt.Sprintf("GPU%d", g.Index))
		if row == nil {
			continue
		}
		for j, cell := range row.Cells {
			state, ok := p2pState[cell]
			if !ok || !gpuName.MatchString(b.table.Devices[j]) {
				continue
			}
			if g.P2P == nil {
				g.P2P = map[topo.ID]string{}
				g.Facts.Set("p2p", topo.SourceSMI, "")
			}
			g.P2P[topo.ID("gpu:"+b.table.Devices[j][len("GPU"):])] = state
		}
	}
}

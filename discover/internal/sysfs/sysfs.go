// Package sysfs reads a host's /sys and /proc into the observed part of a
// topology: PCI functions and host bridges, NUMA nodes, packages, GPUs,
// network interfaces, RDMA devices and their ports, NVMe controllers,
// NVSwitches, and the facts of the host.
//
// It reads one file per fact, and none for what another file already says
// (local_cpulist is the CPUs of numa_node). A file that is missing, empty or
// malformed costs only its own fact and leaves a typed warning with the file's
// name; it never costs another device.
//
// To add an attribute, add a line to the function that reads its kind of device:
//
//	n.MTU = optionalAttribute(f, "mtu_bytes", "mtu", optional, parseIndex)
//
// It names the attribute as in the document, the file, whether the file must
// exist, and the parser. Provenance and warnings follow from it.
package sysfs

import (
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
)

// reader is the state of one Read.
type reader struct {
	tree hosttree.Tree
	live bool
	t    *topo.Topology

	cpus  cpuState
	nodes numaState
	pci   pciState
}

// Read returns the observed nodes, Host and Warnings of a host's file tree; it
// does not derive. A live tree is that of the machine this process runs on: only
// then are device files, the process's CPUs and signs of a container read.
func Read(tree hosttree.Tree, live bool) *topo.Topology {
	r := &reader{tree: tree, live: live, t: &topo.Topology{}}
	r.readHost()
	r.readCPUs()
	r.readNUMA()
	r.readPCI()
	r.readNetdevs()
	r.readInfiniBand()
	r.readNVMes()
	r.resolveNUMA()
	r.readGPUs()
	r.readKFD()
	r.readNVSwitches()
	r.inheritNUMA()
	r.t.Complete = true
	for _, w := range r.t.Warnings {
		if w.Partial() {
			r.t.Complete = false
		}
	}
	return r.t
}

// noteLack adds what this tree does not show to Host.Lacks, once.
func (r *reader) noteLack(sentence string) {
	if !slices.Contains(r.t.Host.Lacks, sentence) {
		r.t.Host.Lacks = append(r.t.Host.Lacks, sentence)
	}
}

// Package sysfs reads a host's /sys and /proc into the observed part of a
// topology: PCI functions and host bridges, NUMA nodes, packages, GPUs,
// network interfaces, RDMA devices and their ports, NVMe controllers,
// NVSwitches, and the facts of the host.
//
// It reads one file per fact, and none for what a file that was read tells
// already (local_cpulist is the CPUs of numa_node). Files that are not read are
// not judged: a warning is about a fact that was wanted. Whatever is missing,
// empty or makes no sense costs that fact and leaves a typed warning with the
// file's name; it never costs another device.
package sysfs

import (
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/hosttree"
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

// Read gives the observed nodes, Host and Warnings of a host's file tree; it
// does not derive. A live tree is the machine that this process runs on: only
// then device files, the process's CPUs and the signs of a container are asked.
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

// noteLack notes what this tree cannot tell, once.
func (r *reader) noteLack(sentence string) {
	if !slices.Contains(r.t.Host.Lacks, sentence) {
		r.t.Host.Lacks = append(r.t.Host.Lacks, sentence)
	}
}

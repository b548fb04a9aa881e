// Package discover finds out what a host has and how it is joined: it reads
// the host's files, asks the libraries that know more, and merges their
// answers into one topo.Topology.
//
// # Sources
//
//	sysfs    /sys, /proc and the device files: the PCI tree, NUMA, network, RDMA
//	ghw      github.com/jaypipes/ghw and its pci.ids database: names
//	rdmamap  github.com/Mellanox/rdmamap: RDMA devices, their PCI functions and character devices
//	netlink  github.com/vishvananda/netlink: interfaces, bonds, VLANs, addresses, routes, VFs
//	nvml     the vendor's library (a GPUSource): GPUs, NVLink, C2C, MIG, peer access
//
// sysfs always runs. Each of the others may fail alone: it then costs what it
// would have added, leaves a warning, and the rest stays. Every source leaves a
// topo.SourceReport.
//
// # Which host
//
// Live (the default) and Options.HostRoot read this machine; netlink and NVML
// are asked. Options.Root and Options.FS are another machine's files: no live
// source is opened, and the answers that a capture recorded are replayed from
// topoctl/nvml.json and topoctl/netlink.json. ghw and rdmamap read files
// by themselves and follow any link, so their own look at the devices is for
// this machine only; the names of pci.ids are for every tree.
//
// # Who wins
//
// A fact that only one source has is taken from it, and topo.Facts say which.
// Where two sources have it:
//
//	PCI tree, NUMA node, PCIe link      sysfs
//	driver, IOMMU group                 sysfs
//	vendor and device names             pci.ids, by the IDs that sysfs gave
//	RDMA device: PCI, netdevs, char devices  sysfs
//	interface: MTU, state, MAC, master  sysfs
//	bond, VLAN, addresses, routes, VFs  netlink
//	GPU: name, UUID, memory, NVML index, capability, MIG, CPU affinity  NVML
//	GPU: minor number, serial           sysfs, where /proc told; else NVML
//	NVLink, C2C, peer access            NVML
//
// A disagreement of two sources becomes a topo.CodeConflict warning that has
// both values and says which was kept. The PCIe speed of NVML and of sysfs is
// no such case: an idle GPU changes it between two looks.
//
// # Again and again
//
// Discover says what a host is. A Sampler reads what it does: counters, rates
// and states of a topology's ports and interfaces, the PCIe links of its GPUs
// and NICs, the load of its GPUs (a GPULoadSource). Bytes are bytes in each
// direction, whatever unit the kernel's file has; counters.Between makes rates
// of two samples. Reading costs about two microseconds of processor time for a
// value, and what the driver takes: 1.7 ms a sample on a host with 44 NICs.
//
// Watch says when it is time for a new topology: netlink messages about links,
// addresses and routes, uevents of devices, and files where those are refused.
package discover

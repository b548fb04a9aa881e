// Package discover finds out what hardware a host has and how it is connected. It reads the
// host's files, asks the libraries that know more, and merges the answers into one
// topo.Topology.
//
// # Sources
//
//	sysfs    /sys, /proc and device files: the PCI tree, NUMA, network, RDMA
//	ghw      github.com/jaypipes/ghw and its pci.ids database: names
//	rdmamap  github.com/Mellanox/rdmamap: RDMA devices, their PCI functions and character devices
//	netlink  github.com/vishvananda/netlink: interfaces, bonds, VLANs, addresses, routes, VFs
//	nvml     the GPU vendor's library (a GPUSource): GPUs, NVLink, C2C, MIG, peer access
//
// sysfs always runs. Any other source may fail on its own: the topology then lacks what that
// source would have added and carries a warning. Every source leaves a topo.SourceReport.
//
// # Which host
//
// By default, and with Options.HostRoot, Discover looks at this machine and asks netlink and
// NVML. With Options.Root or Options.FS it reads another machine's files: it asks no live
// source and replays the answers that a capture recorded, if there are any. ghw and rdmamap
// open files themselves and follow any symbolic link, so they list devices on this machine
// only; names from pci.ids are added for every host.
//
// # Which source wins
//
// topo.Facts says where each attribute came from. Where two sources know an attribute, this is
// the one that is kept:
//
//	PCI tree, NUMA node, PCIe link           sysfs
//	driver, IOMMU group                      sysfs
//	vendor and device names                  pci.ids, by the IDs that sysfs gave
//	RDMA device: PCI, netdevs, char devices  sysfs
//	interface: MTU, state, MAC, master       sysfs
//	bond, VLAN, addresses, routes, VFs       netlink
//	GPU: name, UUID, memory, NVML index,
//	  capability, MIG, CPU affinity          NVML
//	GPU: minor number, serial                sysfs if /proc has it, else NVML
//	NVLink, C2C, peer access                 NVML
//
// If two sources disagree, a topo.CodeConflict warning names both values and the one that was
// kept. PCIe speeds are exempt: an idle GPU changes its speed between two readings.
//
// # Over time
//
// Discover describes what a host is. A Sampler reads what the host does: the counters and
// states of ports and interfaces, the PCIe links of GPUs and NICs, and the load of GPUs (from a
// GPULoadSource). Byte counters are in bytes, one per direction, whatever unit the kernel's
// file uses. Reading a value takes about two microseconds of CPU time plus what the driver
// takes: 1.7 ms per sample on a host with 44 NICs.
//
// Watch reports when a new Discover is due. It listens to netlink messages about links,
// addresses and routes and to uevents of devices.
package discover

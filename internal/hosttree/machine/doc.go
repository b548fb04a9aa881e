// Package machine reads descriptions of machines and expands them to the files of a
// host.
//
// A description is a YAML text that lists a machine's hardware: CPUs, NUMA nodes, the
// tree of PCI functions, and what NVML and netlink answer. It expands to /sys and /proc
// as Linux shows them, so that discovery reads it like a real machine.
//
// In this package, spec.go has the things that a description may speak of, whose tags
// are its keys. node.go looks at a text as YAML, read.go puts what stands there into the
// fields, parse.go says what it means together, check.go looks at the machine as a whole,
// plan.go computes what depends on it, tree.go and the files that it calls expand the
// result, and patch.go changes it.
//
// # Keys
//
// fixtures/README.md has an example. A text begins with machine, the name, which is also
// what invented identifiers (UUIDs, MACs, GUIDs, serials) come from: they are the same in
// every expansion. Unknown keys are refused, as are anchors, aliases and tags. Where a
// list is wanted, one thing alone is a list of one.
//
//	description          the machine in one sentence
//	sources              where facts come from
//	published, assumed   what is known from there, and what is not
//	base                 the name of another machine: this one is a variant of it, and has patches alone
//	host                 arch, kernel, vendor, product, virtual, name, iommu, config, cmdline, memlock
//	cpu                  vendor, family, model, name, threads, siblings
//	numa                 list of node, package, cpus ("0-55,112-167"), mem, distance ([10, 21])
//	nvidia               driver, cuda: versions; module: open or proprietary
//	modules              loaded kernel modules beside the drivers
//	parts                list of part (a name), kind, and what parts.yaml has: parts of one's own
//	pci                  list of root (DOMAIN:BUS), numa, under, below: the functions of one root bus
//	nvlink, xgmi         list of gpus ([0, 1] in PCI order, or all), links
//	p2p                  list of gpus, answer: what NVML says of peer access: ok, or a reason
//	interfaces           list of name, kind, ip, mtu; of a bond legs, mode, hash; of a vlan on, id
//	softrdma             list of name, driver (rxe, siw, scif), on: RDMA devices without hardware
//	routes               list of to, dev, via, metric
//	patches              changes of what the rest says, see below
//
// # Functions
//
// What is below a root or a bridge is a list. The first key says what a thing is, and has
// its address: bus:device.function of the root's domain.
//
//	port       a root port; the part follows the CPU's vendor unless named
//	switch     a PCIe switch's upstream port; below it are
//	down       its downstream ports, which have its part
//	bridge     a conventional or virtual bridge
//	gpu        uuid, serial, nvml-index, minor, nvlink (links to the switch), c2c, c2c-rate, memory-numa, mig
//	nic        layer (ib, eth), rdma, net, gbps, rate, state, lid, sm-lid, ip, mac, guid, mtu, ndev, gids, pkeys, tc,
//	           sriov, vf-of, phys-port, phys-switch
//	nvme       name
//	nvswitch
//	device     anything else; may have a list of addresses
//
// Every function takes part, id, sub, rev, class, driver, title, link, at, numa and acs.
// link is what it can do ("gen5x16"); at is what the link runs at, if less ("gen1",
// "x8", "gen1x8"); numa is its node, if not that of its root; acs is the control
// register of the ACS capability.
//
// # Patches
//
// A change replaces or adds keys of one function before expansion, so that the answers of
// NVML and netlink agree with the files. The others change single files after it. Paths
// may lead through symbolic links, and "*" matches any name:
//
//	{change: 0000:52:00.0, at: x8}
//	{set: PATH, to: VALUE}              write a file
//	{remove: PATH}                      remove a file, a link or a directory
//	{link: PATH, to: TARGET}            make a symbolic link
//	{move: PATH, to: PATH}              move a directory; links to it follow
//	{unreadable: PATH, error: EINVAL}   reading fails: EACCES, EINVAL, EIO, ENODEV
//
// # Software
//
// The modules of a machine are those of its drivers, those of RDMA if it has an
// RDMA device, and those of the key modules (nvidia_peermem). memlock is
// the limit on locked memory, in bytes or unlimited; without it the limit is
// unlimited on a machine whose GPUs have a driver, else systemd's 8388608.
// NVIDIA's kernel module is the one that the driver's version installs (open from
// 560 on) unless the GPU supports only one. pkeys are the first entries of a
// port's partition key table, [0xffff, 0x8001]; the default is 0xffff. tc is what
// the vendor's driver package writes for a port: a traffic class, or unset for a
// file that sets none. Without tc there is no file.
package machine

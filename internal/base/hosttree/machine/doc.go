// Package machine reads descriptions of machines (specs) and expands them to the
// files of a host.
//
// A spec is a text that lists a machine's hardware: CPUs, NUMA nodes, the tree of
// PCI functions, and what NVML and netlink answer. It expands to /sys and /proc
// as Linux shows them, so that discovery reads it like a real machine.
//
// In this package, spec.go has the language: the table of statements, and the things that
// they describe, whose fields carry the keys of their options. lex.go splits a text into
// statements, read.go puts their words into fields, parse.go says what each statement
// means, check.go looks at the machine as a whole, plan.go computes what depends on it,
// tree.go and the files that it calls expand the result, and patch.go changes it.
//
// # Language
//
// A line holds one statement. What belongs below another thing is indented under
// it with blanks. Words are separated by blanks; a word that contains blanks is
// quoted as in Go. "#" begins a comment. A statement's own words are followed by
// options: a key and its value, or a flag. Example:
//
//	machine small "a host with one GPU and one NIC"
//	cpu vendor GenuineIntel family 6 model 143 name "Intel(R) Xeon(R)" threads 2
//	numa 0 package 0 cpus 0-7 mem 64GiB
//	root 0000:15 numa 0
//	  port 15:01.0
//	    switch 16:00.0 broadcom-c030
//	      down 17:00.0
//	        gpu 1a:00.0 h100-sxm
//	      down 17:01.0
//	        nic 18:00.0 connectx7 ib rdma mlx5_0 net ibp24s0 lid 12
//
// Statements at the left margin:
//
//	machine NAME "DESCRIPTION"          always the first
//	base NAME                           a variant of another machine: only patches may follow
//	source "TEXT"                       where facts come from, any number
//	host                                arch, kernel, vendor, product, virtual, name, iommu, config, cmdline, memlock
//	cpu                                 vendor, family, model, name, threads, siblings
//	numa N                              package, cpus, mem, distance "10 21"
//	part NAME KIND                      a part of one's own, see parts.txt for the ones that are there
//	root DDDD:BB                        numa, under; the functions of one root bus stand below it
//	nvidia                              driver, cuda: versions; module: open or proprietary
//	nvlink GPU GPU N, nvlink all N      N links between two GPUs, or every two
//	xgmi GPU GPU N, xgmi all N          the same of AMD's link
//	p2p GPU GPU ANSWER, p2p all ANSWER  what NVML says of peer access: ok, or a reason
//	bond NAME                           legs, mode, hash, ip, mtu
//	vlan NAME                           on, id, ip
//	netdev NAME                         kind (bridge, dummy, veth, ...), ip: a virtual interface
//	softrdma NAME                       driver (rxe, siw, scif), on: an RDMA device without hardware
//	route DST                           dev, via, metric
//	module NAME                         a loaded kernel module beside the drivers
//
// Functions, below a root or a bridge (BDF is bus:device.function of the
// root's domain):
//
//	port BDF [PART]      a root port
//	switch BDF PART      a PCIe switch's upstream port, holds down
//	down BDF [PART]      a downstream port of the switch above
//	bridge BDF PART      a conventional or virtual bridge
//	gpu BDF PART         uuid, serial, nvml-index, minor, nvlink N (to the switch), c2c, c2c-rate, memory-numa, mig
//	nic BDF PART         ib, eth, rdma, net, gbps, rate, state, lid, sm-lid, ip, mac, guid, mtu, ndev, gids, pkeys, tc, sriov, vf-of, phys-port, phys-switch
//	nvme BDF PART        name
//	nvswitch BDF PART
//	device BDF,BDF PART  anything else
//
// Every function takes id, sub, rev, class, driver, title, link, at, numa and acs.
// link is what it can do ("gen5x16"); at is what the link runs at, if less ("gen1",
// "x8", "gen1x8"); numa is its node, if not that of its root; acs is the control
// register of the ACS capability.
//
// # Variants and patches
//
// A variant names its base and says what differs. A change replaces or adds
// options of one function before expansion, so that the answers of NVML and
// netlink agree with the files:
//
//	change BDF KEY VALUE     change 0000:52:00.0 at x8
//
// Patches change single files after expansion. Paths may lead through symbolic
// links, and "*" matches any name:
//
//	set PATH VALUE           write a file
//	remove PATH              remove a file, a link or a directory
//	link PATH -> TARGET      make a symbolic link
//	move PATH -> PATH        move a directory; links to it follow
//	unreadable PATH ERRNO    reading fails: EACCES, EINVAL, EIO, ENODEV
//
// # Software
//
// The modules of a machine are those of its drivers, those of RDMA if it has an
// RDMA device, and those that module statements name (nvidia_peermem). memlock is
// the limit on locked memory, in bytes or unlimited; without it the limit is
// unlimited on a machine whose GPUs have a driver, else systemd's 8388608.
// NVIDIA's kernel module is the one that the driver's version installs (open from
// 560 on) unless the GPU supports only one. pkeys are the first entries of a
// port's partition key table, "0xffff,0x8001"; the default is 0xffff. tc is what
// the vendor's driver package writes for a port: a traffic class, or unset for a
// file that sets none. Without tc there is no file.
//
// What a spec leaves out (UUIDs, MACs, GUIDs, serials) is derived from the
// machine's name and is the same in every expansion.
package machine

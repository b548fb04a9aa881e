package doctor

import "slices"

// checks are all checks, in the order in which findings of one severity are reported: what is broken, wrong
// settings, how the host is built, what cannot be seen. A new check is a line here, its function beside its kin
// in check_*.go, a case in cases_test.go, and an entry in docs/doctor.md, which says how it is judged. The
// function goes through the devices that the check is about and says of each what is known: see outcome in
// report.go.
var checks = []Check{
	// PCIe links.
	{Code: "link-degraded", Severity: Warning, run: checkDegraded, noun: "link", none: "no GPU, NIC or drive with a PCIe link",
		Title: "every PCIe link of GPUs, NICs, switches and drives runs at what both of its ends can do"},
	{Code: "link-disagrees", Severity: Warning, run: checkDisagrees, noun: "link", none: "no link with two ends that can be believed",
		Title: "both ends of every PCIe link report the same state"},
	{Code: "implausible-bridge-link", Severity: Warning, run: checkImplausible,
		Title: "no bridge above a GPU or NIC reports a link state that is invented"},
	// NIC slots.
	{Code: "nic-slot-limited", Severity: Warning, run: checkSlots, noun: "port", none: "no port of a PCIe card is up",
		Title: "the PCIe link of every NIC carries what its port can"},
	{Code: "shared-slot", Severity: Warning, run: checkSharedSlot, noun: "card", none: "no card has two ports that are up",
		Title: "ports of one card that are up fit through its slot together"},
	{Code: "rdma-no-pci", Severity: Warning, run: checkNoPCI, noun: "RDMA device", none: "no RDMA hardware",
		Title: "every RDMA device that is hardware has its PCI function here"},
	// GPU links.
	{Code: "nvlink-missing", Severity: Error, run: checkNVLinkMissing, noun: "GPU", none: "no NVIDIA GPU",
		Title: "every GPU that should have NVLinks has some that are active"},
	{Code: "nvlink-uneven", Severity: Warning, run: checkNVLinkUneven, none: "no two GPUs of one model",
		Title: "GPUs of one model have equally many active links to each other"},
	{Code: "p2p-disabled", Severity: Error, run: checkP2P,
		Title: "GPUs may reach each other's memory"},
	{Code: "mig-enabled", Severity: Info, run: checkMIG, noun: "GPU", none: "no NVIDIA GPU",
		Title: "no GPU is partitioned with MIG"},
	// NICs and GPU memory.
	{Code: "gpu-driver-missing", Severity: Error, run: checkGPUDriver, noun: "GPU", none: "no GPU",
		Title: "every GPU has the driver that programs use it with"},
	{Code: "no-gdr-path", Severity: Error, AsksDevices: true, run: checkGDR,
		Title: "RDMA devices can reach GPU memory (GPUDirect RDMA)"},
	{Code: "iommu-translate", Severity: Warning, run: checkIOMMU, noun: "device", none: "no GPU and no RDMA hardware",
		Title: "the IOMMU does not translate what GPUs and RDMA NICs move"},
	{Code: "memlock", Severity: Error, run: checkMemlock,
		Title: "programs may lock as much memory as they register with RDMA devices"},
	{Code: "registration-refused", Severity: Error, AsksDevices: true, run: checkRegistration, noun: "device",
		Title: "memory can be registered with every RDMA device that can be opened"},
	{Code: "acs-redirect", Severity: Error, run: checkACS,
		Title: "no PCIe port sends transfers of GPUs and NICs up to the root complex or the IOMMU"},
	// RDMA ports.
	{Code: "port-down", Severity: Error, run: checkPortDown, noun: "port", none: "no RDMA port",
		Title: "every RDMA port is ACTIVE"},
	{Code: "no-usable-port", Severity: Error, run: checkUsable,
		Title: "data can leave the host by a usable port, and by RDMA where the host has the hardware"},
	{Code: "uverbs-inaccessible", Severity: Error, run: checkUverbs, noun: "RDMA device", none: "no RDMA device",
		Title: "this process may use every RDMA device"},
	{Code: "rdma-lag", Severity: Warning, run: checkLAG, noun: "port", none: "no RDMA hardware",
		Title: "no RDMA device is a bond, or its legs are all up"},
	{Code: "pf-and-vf-visible", Severity: Warning, run: checkVFs, noun: "RDMA device", none: "no RDMA hardware",
		Title: "no virtual function is visible beside its physical function"},
	{Code: "software-rdma", Severity: Warning, run: checkSoftware, noun: "RDMA device", none: "no RDMA device",
		Title: "no RDMA device is software"},
	// RoCE and InfiniBand settings.
	{Code: "gid-index-wrong", Severity: Error, run: checkWrongIndex,
		Title: "the GID index that programs are configured to use works on every RoCE data port"},
	{Code: "gid-missing", Severity: Error, run: checkGIDs, noun: "port", none: "no RDMA port that is up and needs GIDs",
		Title: "every RDMA port that is up has GIDs"},
	{Code: "gid-none-routable", Severity: Warning, run: checkRoutable,
		Title: "every RoCE port has a RoCE v2 GID that peers on other networks can reach"},
	{Code: "gid-index-differs", Severity: Warning, run: checkGIDIndex,
		Title: "the GID index to use is the same on all RoCE data ports"},
	{Code: "traffic-class-unset", Severity: Warning, run: checkTrafficClass, noun: "port", none: noRoCE,
		Title: "RoCE ports mark their packets for the lossless queue of the network"},
	{Code: "mtu-mismatch", Severity: Warning, run: checkMTU,
		Title: "Ethernet data ports, and the legs of bonds, have one MTU"},
	{Code: "mtu-small", Severity: Info, run: checkSmallMTU, noun: "port", none: noRoCE,
		Title: "RoCE ports have an MTU that lets RDMA use its largest packets"},
	{Code: "mtu-active", Severity: Warning, AsksDevices: true, run: checkActiveMTU, noun: "port", none: noRoCE,
		Title: "RoCE ports send RDMA packets as large as the MTU of their interface allows"},
	{Code: "mtu-peer", Severity: Warning, run: checkPeerMTU,
		Title: "both ends of every lane to the peer have one MTU"},
	{Code: "pkey-mismatch", Severity: Warning, run: checkPKeys, noun: "port", none: "no InfiniBand data port is up",
		Title: "InfiniBand data ports are full members of the same partitions"},
	// Rails.
	{Code: "rate-mismatch", Severity: Warning, run: checkRates, noun: "port",
		Title: "data ports of one kind run at one rate"},
	{Code: "mixed-link-layer", Severity: Warning, run: checkLayers, none: "no RDMA hardware port is up",
		Title: "the RDMA ports that are up have one link layer"},
	{Code: "firmware-differs", Severity: Info, run: checkFirmware, noun: "RDMA device",
		Title: "NICs of one board have one firmware version"},
	{Code: "rails-share-subnet", Severity: Info, run: checkSubnets, noun: "port",
		Title: "each Ethernet data port has an IP network of its own"},
	// GPUs and their NICs.
	{Code: "gpu-without-near-nic", Severity: Warning, run: checkNearNIC, noun: "GPU",
		Title: "every GPU has a NIC below its own PCIe switch, or reaches NICs over its CPU's C2C link"},
	{Code: "gpu-nic-index", Severity: Warning, run: checkIndex,
		Title: "pairing GPU and NIC by their numbers gives each GPU a nearest NIC"},
	{Code: "c2c-path", Severity: Info, run: checkC2C, noun: "GPU",
		Title: "no GPU depends on its C2C link to reach NICs"},
	{Code: "nic-role", Severity: Info, run: checkRoles, noun: "RDMA device", none: "no RDMA hardware",
		Title: "every RDMA device is made for data"},
	{Code: "dpu", Severity: Info, run: checkDPU, noun: "network function", none: "no NIC on PCI",
		Title: "no NIC is a DPU with a system of its own"},
	// Sharing NICs.
	{Code: "nic-unassigned", Severity: Warning, run: checkUnassigned,
		Title: "every usable data NIC is among the nearest of some GPU"},
	{Code: "nic-oversubscribed", Severity: Warning, run: checkOversubscribed,
		Title: "no two GPUs have to share a NIC, and taking the first of the nearest spreads them as well as a plan does"},
	// NUMA.
	{Code: "numa-unknown", Severity: Warning, run: checkNUMA,
		Title: "the NUMA node of every GPU and NIC is known"},
	{Code: "asymmetric-sockets", Severity: Warning, run: checkSockets,
		Title: "GPUs and data NICs are spread evenly over the sockets"},
	// What can be seen.
	{Code: "vm-flat", Severity: Warning, run: checkFlat,
		Title: "a virtual machine shows which GPUs and NICs are near each other"},
	{Code: "partial-view", Severity: Warning, run: checkView,
		Title: "this process sees and may use all of the host"},
	{Code: "facts-unread", Severity: Warning, run: checkUnread,
		Title: "everything that is there could be read"},
	{Code: "facts-conflict", Severity: Info, run: checkConflicts,
		Title: "the sources of facts agree with each other"},
}

// Checks lists all checks.
func Checks() []Check { return slices.Clone(checks) }

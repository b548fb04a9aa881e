package topo

import "slices"

// relevantModules are sorted.
var relevantModules = []string{
	"amdgpu", "bnxt_re", "efa", "efa_nv_peermem", "gdrdrv", "habanalabs", "i915", "ib_core", "ib_ipoib", "ib_peer_mem", "ib_umad",
	"ib_uverbs", "irdma", "mlx4_ib", "mlx5_core", "mlx5_ib", "nv_peer_mem", "nvidia", "nvidia_peermem", "nvidia_uvm",
	"rdma_cm", "rdma_rxe", "rdma_ucm", "siw", "xe",
}

// RelevantModules are the kernel modules that Software.Modules looks for, as
// /sys/module spells them: drivers of accelerators and RDMA devices, and what
// lets one reach the other's memory. The list is sorted.
func RelevantModules() []string { return slices.Clone(relevantModules) }

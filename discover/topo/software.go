package topo

import "slices"

// Software is what of the host's set-up decides whether devices may reach
// memory, and how fast.
type Software struct {
	// Modules are the loaded kernel modules among RelevantModules, sorted; null
	// where /sys/module could not be read.
	Modules []string `json:"modules"`
	// GPUModule is the kind of NVIDIA's kernel module: "open" or "proprietary".
	// Source: /proc/driver/nvidia/version.
	GPUModule string `json:"gpu_module,omitempty"`
	// KernelOptions are the words of /proc/cmdline about IOMMU, PCI and huge
	// pages; others stay private. null where it could not be read.
	KernelOptions []string `json:"kernel_options"`
	// Memlock is RLIMIT_MEMLOCK of the process that looked (/proc/self/limits).
	Memlock *Memlock `json:"memlock"`
}

// Memlock is a limit on locked memory. Registering memory with an RDMA device
// locks it.
type Memlock struct {
	SoftBytes *int64 `json:"soft_bytes"` // null: unlimited
	HardBytes *int64 `json:"hard_bytes"` // null: unlimited
}

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

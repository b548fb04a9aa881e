package topo

// Software is what of the host's set-up decides whether devices may reach
// memory, and how fast.
type Software struct {
	// Modules are the loaded kernel modules that matter for transfers, sorted:
	// drivers of accelerators and RDMA devices, and what lets one reach the
	// other's memory. null where /sys/module could not be read.
	Modules []string `json:"modules"`
	// GPUModule is the kind of NVIDIA's kernel module: "open" or "proprietary".
	// Source: /proc/driver/nvidia/version.
	GPUModule string `json:"gpu_module,omitempty"`
	// KernelOptions are the words of /proc/cmdline about IOMMU, PCI and huge
	// pages; others stay private. null where it could not be read.
	KernelOptions []string `json:"kernel_options"`
	// Memlock is RLIMIT_MEMLOCK of the process that looked (/proc/self/limits).
	Memlock *Memlock `json:"memlock"`
	// Environment is what RDMA programs are told by the environment of the
	// process that looked; nil where that could not be read.
	Environment *Environment `json:"environment,omitempty"`
}

// Memlock is a limit on locked memory. Registering memory with an RDMA device
// locks it.
type Memlock struct {
	SoftBytes *int64 `json:"soft_bytes"` // null: unlimited
	HardBytes *int64 `json:"hard_bytes"` // null: unlimited
	// Exempt: the process has CAP_IPC_LOCK in the kernel's first user namespace,
	// so that the limit does not hold for it. nil: not known.
	Exempt *bool `json:"exempt,omitempty"`
}

// Environment are the settings that choose a port's GID; others are not read.
type Environment struct {
	Settings []Setting `json:"settings"` // files first, each in its order
}

// Setting is a value that an RDMA program is told.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Where string `json:"where"` // "/proc/self/environ" or a file
}

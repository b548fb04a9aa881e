package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// rdmaModules are the modules that make an RDMA device of what a driver runs.
// A driver that is not here does so itself.
var rdmaModules = map[string]string{
	"mlx5_core": "mlx5_ib", "mlx4_core": "mlx4_ib", "bnxt_en": "bnxt_re", "ice": "irdma", "i40e": "irdma",
}

// moduleNames are the drivers, as modules are spelt, what goes with them, and
// the modules of the text.
func (s *Spec) moduleNames() []string {
	out := slices.Clone(s.modules)
	rdma := len(s.software) > 0
	for _, f := range s.pci {
		if f.driver == "" || f.driver == "pcieport" {
			continue
		}
		out = append(out, strings.ReplaceAll(f.driver, "-", "_"))
		if f.driver == "nvidia" {
			out = append(out, "nvidia_uvm")
		}
		if f.nic == nil || f.nic.rdma == "" {
			continue
		}
		rdma = true
		if name := rdmaModules[f.driver]; name != "" {
			out = append(out, name)
		}
		if f.nic.layer == "ib" && f.nic.net != "" {
			out = append(out, "ib_ipoib")
		}
	}
	for _, r := range s.software {
		out = append(out, map[string]string{"rxe": "rdma_rxe", "siw": "siw", "scif": "scif"}[r.driver])
	}
	if rdma { // what rdma-core loads
		out = append(out, "ib_core", "ib_uverbs", "ib_umad", "rdma_cm", "rdma_ucm")
	}
	return out
}

// nvidiaModule is how NVIDIA's kernel module names itself. Which one a driver
// installs where both would do changed with version 560; GPUs before Turing
// have only the proprietary one, Grace and Blackwell only the open one.
func (s *Spec) nvidiaModule() string {
	kind := s.nvidia.module
	if kind == "" {
		kind = "proprietary"
		major, _, _ := strings.Cut(s.nvidia.driver, ".")
		if n, err := strconv.Atoi(major); err == nil && n >= 560 || s.host.arch == "aarch64" {
			kind = "open"
		}
		for _, f := range s.gpus() {
			cc, err := strconv.ParseFloat(f.part.cc, 64)
			switch {
			case f.driver != "nvidia" || err != nil:
			case cc < 7.5:
				kind = "proprietary"
			case cc >= 10:
				kind = "open"
			}
		}
	}
	if kind == "open" {
		return fmt.Sprintf("NVIDIA UNIX Open Kernel Module for %s  %s  Release Build  (build@example)", s.host.arch, s.nvidia.driver)
	}
	return fmt.Sprintf("NVIDIA UNIX %s Kernel Module  %s", s.host.arch, s.nvidia.driver)
}

// limits adds the limits of the process that looks, which /proc/self leads to, and
// its environment, which is empty.
func (e *expansion) limits() {
	memlock := e.s.host.memlock
	if memlock == "" {
		memlock = "8388608"
		if slices.ContainsFunc(e.s.gpus(), func(f *function) bool { return f.driver != "" }) {
			memlock = "unlimited"
		}
	}
	var b strings.Builder
	row := func(name, soft, hard, unit string) {
		fmt.Fprintf(&b, "%-25s %-20s %-20s %-10s\n", name, soft, hard, unit)
	}
	row("Limit", "Soft Limit", "Hard Limit", "Units")
	row("Max cpu time", "unlimited", "unlimited", "seconds")
	row("Max open files", "1024", "1048576", "files")
	row("Max locked memory", memlock, memlock, "bytes")
	row("Max address space", "unlimited", "unlimited", "bytes")
	const process = "proc/4242"
	e.link("proc/self", process)
	e.raw(process+"/limits", []byte(b.String()))
	e.raw(process+"/environ", nil)
}

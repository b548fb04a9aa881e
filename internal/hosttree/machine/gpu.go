package machine

import (
	"fmt"
	"strconv"
	"strings"
)

// addGPUs adds what the drivers of GPUs show beside the PCI function: NVIDIA's
// /proc/driver/nvidia, AMD's attributes and the KFD topology with xGMI.
func (e *expansion) addGPUs() {
	nvidia, amd := false, false
	for _, f := range e.gpus() {
		nvidia, amd = nvidia || f.Driver == "nvidia", amd || f.Driver == "amdgpu"
		if f.Driver != "nvidia" {
			continue
		}
		dir := "proc/driver/nvidia/gpus/" + f.bdf.String()
		e.put(dir, "information", raw("Model: \t\t %s\nIRQ:   \t\t %d\nGPU UUID: \t %s\nVideo BIOS: \t 96.00.00.00.01\nBus Type: \t PCIe\n"+
			"DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Firmware: \t %s\nGPU Excluded:\t No\n",
			f.Title, f.irq, f.gpu.UUID, f.bdf, f.gpu.Minor, e.NVIDIA.Driver))
		if f.gpu.MemoryNUMA != nil {
			e.put(dir, "numa_status", raw("Node:           %d\nStatus:         online\n", *f.gpu.MemoryNUMA))
		}
	}
	if nvidia {
		e.put("proc/driver/nvidia", "version", "NVRM version: "+e.nvidiaModule()+"\nGCC version:  gcc version 12.3.0")
		e.put("sys/module/nvidia", "version", e.NVIDIA.Driver)
	}
	if amd {
		e.addKFD()
	}
}

// Link types of the KFD topology. Source: drivers/gpu/drm/amd/amdkfd/kfd_crat.h.
const (
	kfdPCIe = 2
	kfdXGMI = 11
)

// addKFD adds /sys/class/kfd: one node for each NUMA node with CPUs, then one for
// each GPU, and the GPUs' links: to the CPU node over PCIe, to other GPUs over xGMI.
// Source: drivers/gpu/drm/amd/amdkfd/kfd_topology.c.
func (e *expansion) addKFD() {
	const kfd, nodes = "sys/devices/virtual/kfd/kfd", "sys/devices/virtual/kfd/kfd/topology/nodes/"
	e.device("sys/class/kfd", kfd)
	cpuNode, gpuNode := map[int]int{}, map[*function]int{} // by NUMA node; by GPU
	for _, n := range e.NUMA {
		if !n.CPUs.IsEmpty() {
			number := len(cpuNode)
			cpuNode[n.Index] = number
			e.put(nodes+strconv.Itoa(number), "gpu_id", 0,
				"properties", fmt.Sprintf("cpu_cores_count %d\nsimd_count 0\nio_links_count 0\ndomain 0\nlocation_id 0\nunique_id 0", n.CPUs.Len()))
		}
	}
	gpus := e.gpus()
	for _, f := range gpus {
		if f.Driver == "amdgpu" {
			gpuNode[f] = len(cpuNode) + len(gpuNode)
		}
	}
	for i, f := range gpus {
		number, ours := gpuNode[f]
		if !ours {
			continue
		}
		node, links := nodes+strconv.Itoa(number), 0
		link := func(kind, to, weight int) {
			e.put(node+"/io_links/"+strconv.Itoa(links), "properties", fmt.Sprintf("type %d\nversion_major 0\nversion_minor 0\nnode_from %d\nnode_to %d\nweight %d\n"+
				"min_latency 0\nmax_latency 0\nmin_bandwidth 0\nmax_bandwidth 0\nrecommended_transfer_size 0\nflags 1", kind, number, to, weight))
			links++
		}
		link(kfdPCIe, cpuNode[f.NUMA], 20)
		for j, g := range gpus {
			if to, ours := gpuNode[g]; ours && j != i && linksBetween(e.XGMI, i, j) > 0 {
				link(kfdXGMI, to, 15)
			}
		}
		id := e.made("unique "+f.bdf.String(), 8)
		e.put(f.path, "unique_id", fmt.Sprintf("%x", id), "mem_info_vram_total", f.part.Memory, "product_name", f.Title)
		location := int(f.bdf.Bus)<<8 | int(f.bdf.Device)<<3 | int(f.bdf.Func)
		e.put(node, "gpu_id", 1000+number-len(cpuNode), "properties", fmt.Sprintf("cpu_cores_count 0\nsimd_count 1216\nio_links_count %d\n"+
			"gfx_target_version %s\nvendor_id %d\ndevice_id %d\nlocation_id %d\ndomain %d\nunique_id %d\nhive_id 1",
			links, kfdVersion(f.part.CC), f.ID.vendor, f.ID.device, location, f.bdf.Domain, uint64(id[0])<<56|uint64(id[7])))
	}
}

// kfdVersion is "90402" for "gfx942": major, minor and stepping, the last two
// hexadecimal.
func kfdVersion(gfx string) string {
	digits := strings.TrimPrefix(gfx, "gfx")
	if len(digits) < 3 {
		return "0"
	}
	minor, err1 := strconv.ParseUint(digits[len(digits)-2:len(digits)-1], 16, 8)
	step, err2 := strconv.ParseUint(digits[len(digits)-1:], 16, 8)
	if err1 != nil || err2 != nil {
		return "0"
	}
	return fmt.Sprintf("%s%02d%02d", digits[:len(digits)-2], minor, step)
}

// linksBetween counts the links between two GPUs.
func linksBetween(all []*links, i, j int) int {
	n := 0
	for _, x := range all {
		if x.joins(i, j) {
			n += x.Links
		}
	}
	return n
}

// nvidiaModule is how NVIDIA's kernel module names itself. Which one a driver
// installs where both would do changed with version 560; GPUs before Turing
// have only the proprietary one, Grace and Blackwell only the open one.
func (s *Spec) nvidiaModule() string {
	kind := s.NVIDIA.Module
	if kind == "" {
		kind = "proprietary"
		major, _, _ := strings.Cut(s.NVIDIA.Driver, ".")
		if n, err := strconv.Atoi(major); err == nil && n >= 560 || s.Host.Arch == "aarch64" {
			kind = "open"
		}
		for _, f := range s.gpus() {
			cc, err := strconv.ParseFloat(f.part.CC, 64)
			switch {
			case f.Driver != "nvidia" || err != nil:
			case cc < 7.5:
				kind = "proprietary"
			case cc >= 10:
				kind = "open"
			}
		}
	}
	if kind == "open" {
		return fmt.Sprintf("NVIDIA UNIX Open Kernel Module for %s  %s  Release Build  (build@example)", s.Host.Arch, s.NVIDIA.Driver)
	}
	return fmt.Sprintf("NVIDIA UNIX %s Kernel Module  %s", s.Host.Arch, s.NVIDIA.Driver)
}

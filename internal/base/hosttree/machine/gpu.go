package machine

import (
	"fmt"
	"strconv"
	"strings"
)

// gpus adds what the drivers of GPUs show beside the PCI function: NVIDIA's
// /proc/driver/nvidia, AMD's attributes and the KFD topology with xGMI.
func (e *expansion) gpus() {
	byDriver := map[string][]*function{}
	for _, f := range e.s.gpus() {
		byDriver[f.driver] = append(byDriver[f.driver], f)
	}
	for _, f := range byDriver["nvidia"] {
		e.nvidiaProc(f)
	}
	if len(byDriver["nvidia"]) > 0 {
		e.file("proc/driver/nvidia/version", "NVRM version: "+e.s.nvidiaModule()+"\nGCC version:  gcc version 12.3.0")
		e.file("sys/module/nvidia/version", e.s.nvidia.driver)
	}
	if len(byDriver["amdgpu"]) > 0 {
		e.kfd(byDriver["amdgpu"])
	}
}

func (e *expansion) nvidiaProc(f *function) {
	dir := fmt.Sprintf("proc/driver/nvidia/gpus/%s/", f.bdf)
	e.raw(dir+"information", fmt.Appendf(nil, "Model: \t\t %s\nIRQ:   \t\t %d\nGPU UUID: \t %s\nVideo BIOS: \t 96.00.00.00.01\nBus Type: \t PCIe\n"+
		"DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Firmware: \t %s\nGPU Excluded:\t No\n",
		f.title, f.irq(), f.gpu.uuid, f.bdf, f.gpu.minor, e.s.nvidia.driver))
	if f.gpu.memoryNUMA != nil {
		e.raw(dir+"numa_status", fmt.Appendf(nil, "Node:           %d\nStatus:         online\n", *f.gpu.memoryNUMA))
	}
}

// Link types of the KFD topology. Source: drivers/gpu/drm/amd/amdkfd/kfd_crat.h.
const (
	kfdPCIe = 2
	kfdXGMI = 11
)

// kfd adds /sys/class/kfd: one node for each NUMA node with CPUs, then one for
// each GPU, and the GPUs' links.
// Source: drivers/gpu/drm/amd/amdkfd/kfd_topology.c.
func (e *expansion) kfd(gpus []*function) {
	const dir = "sys/devices/virtual/kfd/kfd"
	e.inClass("sys/class/kfd", "kfd", dir)
	number := map[int]int{} // KFD node of a NUMA node
	next := 0
	for _, n := range e.s.numa {
		if n.cpus.IsEmpty() {
			continue
		}
		number[n.index] = next
		node := dir + "/topology/nodes/" + strconv.Itoa(next)
		e.file(node+"/gpu_id", 0)
		e.file(node+"/properties", fmt.Sprintf("cpu_cores_count %d\nsimd_count 0\nio_links_count 0\ndomain 0\nlocation_id 0\nunique_id 0", n.cpus.Len()))
		next++
	}
	order := map[*function]int{}
	for i, f := range e.s.gpus() {
		order[f] = i
	}
	first := next
	for i, f := range gpus {
		id := e.s.made("unique "+f.bdf.String(), 8)
		e.files(f.path, "unique_id", fmt.Sprintf("%x", id), "mem_info_vram_total", f.part.memory, "product_name", f.title)
		node := dir + "/topology/nodes/" + strconv.Itoa(first+i)
		links := e.kfdLinks(node, first, i, number[f.numa], gpus, order)
		e.file(node+"/gpu_id", 1000+i)
		location := int(f.bdf.Bus)<<8 | int(f.bdf.Device)<<3 | int(f.bdf.Func)
		e.file(node+"/properties", fmt.Sprintf("cpu_cores_count 0\nsimd_count 1216\nio_links_count %d\ngfx_target_version %s\n"+
			"vendor_id %d\ndevice_id %d\nlocation_id %d\ndomain %d\nunique_id %d\nhive_id %d", links, kfdVersion(f.part.cc),
			f.id.vendor, f.id.device, location, f.bdf.Domain, uint64(id[0])<<56|uint64(id[7]), uint64(1)))
	}
}

// kfdLinks adds a GPU's links: to its CPU node over PCIe, and the xGMI pairs.
func (e *expansion) kfdLinks(node string, first, i, cpu int, gpus []*function, order map[*function]int) int {
	n := 0
	add := func(kind, to, weight int) {
		e.file(node+"/io_links/"+strconv.Itoa(n)+"/properties", fmt.Sprintf("type %d\nversion_major 0\nversion_minor 0\nnode_from %d\nnode_to %d\nweight %d\n"+
			"min_latency 0\nmax_latency 0\nmin_bandwidth 0\nmax_bandwidth 0\nrecommended_transfer_size 0\nflags 1", kind, first+i, to, weight))
		n++
	}
	add(kfdPCIe, cpu, 20)
	for j, g := range gpus {
		if j != i && e.s.linksBetween("xgmi", order[gpus[i]], order[g]) > 0 {
			add(kfdXGMI, first+j, 15)
		}
	}
	return n
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

// linksBetween counts the links of one kind between two GPUs.
func (s *Spec) linksBetween(kind string, x, y int) int {
	n := 0
	for _, b := range s.between {
		if b.is(kind, x, y) {
			n += b.count
		}
	}
	return n
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

package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

const gdrCode Code = "no-gdr-path"

var directChecks = []Check{
	{
		Code: "gpu-driver-missing", Family: "NICs and GPU memory", Severity: Error,
		Title: "every GPU has the driver that programs use it with",
		Judged: "GPUs without a bound driver, or with nouveau, cannot be used for computing: an error. GPUs that are bound to vfio-pci " +
			"belong to a virtual machine: info.",
		Facts: "driver in /sys/bus/pci/devices, /proc/driver/nvidia/gpus, NVML",
		Fix:   "Install and load the vendor's driver; dmesg says why it did not bind.",
		run:   checkGPUDriver,
	},
	{
		Code: gdrCode, Family: "NICs and GPU memory", Severity: Error,
		Title: "RDMA devices can reach GPU memory (GPUDirect RDMA)",
		Judged: "NVIDIA: the module nvidia_peermem (or nv_peer_mem) is loaded, or the kernel module is the open one and the kernel is 5.12 or newer (dma-buf). " +
			"Neither is an error, and so is dma-buf alone where a device that was tried on the running host does not register them; EFA has efa_nv_peermem, or none in older drivers, which cannot be told. dma-buf alone is info, because older programs only know peer memory. GeForce GPUs have neither. " +
			"Of AMD and Intel GPUs the kernel's configuration decides, which is not read.",
		Facts: "/sys/module, /proc/driver/nvidia/version, the kernel's release, ibv_reg_dmabuf_mr",
		Fix:   "modprobe nvidia_peermem (after the RDMA modules), or install the driver's open kernel module.",
		run:   checkGDR,
	},
	{
		Code: "iommu-translate", Family: "NICs and GPU memory", Severity: Warning,
		Title: "the IOMMU does not translate what GPUs and RDMA NICs move",
		Judged: "The type of each device's IOMMU group: DMA and DMA-FQ translate, identity and no group do not. Groups that belong to a " +
			"virtual machine (vfio) are left out.",
		Facts: "/sys/kernel/iommu_groups/N/type, /proc/cmdline",
		Fix:   "Boot with iommu=pt (x86) or iommu.passthrough=1 (Arm).",
		run:   checkIOMMU,
	},
	memlockCheck,
	registrationCheck,
	acsCheck,
}

func checkGPUDriver(h *host) outcome {
	if len(h.t.GPUs) == 0 {
		return notApplicable("no GPU")
	}
	var o outcome
	var untold []topo.ID
	for i := range h.t.GPUs {
		g := &h.t.GPUs[i]
		f := Finding{Severity: Error, Subjects: []topo.ID{g.ID}, Evidence: places(g.Evidence)}
		if d := h.pci[g.PCI]; d != nil {
			f.Evidence = places(pciFile(d, "driver", g.Driver))
		}
		switch {
		case g.KnownFrom == "driver" || g.KnownFrom == "proc":
			continue
		case strings.HasPrefix(g.Driver, "vfio"):
			f.Severity, f.Text = Info, "bound to "+g.Driver+": a virtual machine has it, this host cannot use it"
			f.Fix = "nothing, if that is intended"
		case g.Vendor == "nvidia" && g.Driver == "nouveau":
			f.Text, f.Fix = "bound to nouveau, which cannot compute", "install NVIDIA's driver, which keeps nouveau away, and reboot"
		case g.Driver != "":
			continue
		case h.imported():
			untold = append(untold, g.ID)
			continue
		default:
			f.Text, f.Fix = "no driver is bound: the GPU cannot be used", "load the vendor's driver; dmesg says why it did not bind"
		}
		o.find(f)
	}
	if len(untold) > 0 {
		o.lack("the driver is not told", h.lookAgain(), untold...)
	}
	o.note = count(len(h.t.GPUs), "GPU")
	return o
}

// kernelAtLeast compares the kernel's release; known is false where that makes
// no sense.
func (h *host) kernelAtLeast(major, minor int) (yes, known bool) {
	a, rest, ok := strings.Cut(h.t.Host.Kernel, ".")
	b := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	x, err1 := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil {
		return false, false
	}
	return x > major || x == major && y >= minor, true
}

func checkGDR(h *host) outcome {
	if len(h.t.GPUs) == 0 || len(h.hardware()) == 0 {
		return notApplicable("needs a GPU and RDMA hardware")
	}
	var o outcome
	var nvidia, others []topo.ID
	for i := range h.t.GPUs {
		g := &h.t.GPUs[i]
		switch {
		case g.Vendor == "nvidia" && strings.Contains(g.Model, "GeForce"):
			o.find(Finding{Severity: Error, Subjects: []topo.ID{g.ID}, Evidence: places(g.Evidence),
				Text: fmt.Sprintf("%s: GeForce GPUs have no GPUDirect RDMA, so every transfer is copied through host memory", g.Model),
				Fix:  "plan with copies through host memory, or use a data-centre GPU"})
		case g.Vendor == "nvidia" || g.Vendor == "":
			nvidia = append(nvidia, g.ID)
		default:
			others = append(others, g.ID)
		}
	}
	if len(nvidia) > 0 {
		h.nvidiaGDR(&o, nvidia)
	}
	s := h.t.Host.Software
	if len(others) > 0 && !(s != nil && slices.Contains(s.Modules, "ib_peer_mem")) {
		o.lack("of GPUs that are not NVIDIA's the kernel's configuration decides, which is not read",
			"look for amdkfd in /sys/kernel/mm/memory_peers, or CONFIG_PCI_P2PDMA and CONFIG_DMABUF_MOVE_NOTIFY in /boot/config-*", others...)
	}
	return o
}

// nvidiaGDR judges how RDMA devices can reach the memory of NVIDIA GPUs.
func (h *host) nvidiaGDR(o *outcome, gpus []topo.ID) {
	s := h.t.Host.Software
	if s == nil {
		o.lack("kernel modules are not told", h.lookAgain(), gpus...)
		return
	}
	const version = "/proc/driver/nvidia/version"
	kernel := h.t.Host.Kernel
	recent, known := h.kernelAtLeast(5, 12)
	open := s.GPUModule == "open"
	efa := !slices.ContainsFunc(h.hardware(), func(r *topo.RDMADevice) bool { return r.Driver != "efa" })
	peer, wanted := "", []string{"nvidia_peermem", "nv_peer_mem"}
	if efa {
		wanted = []string{"efa_nv_peermem"}
	}
	for _, name := range wanted {
		if peer == "" && slices.Contains(s.Modules, name) {
			peer = name
		}
	}
	switch {
	case peer != "":
		o.note = "by " + peer
	case open && known && recent && h.noDMABuf() != nil:
		o.find(Finding{Severity: Error, Subjects: h.noDMABuf(), Evidence: []string{"ibv_reg_dmabuf_mr = EOPNOTSUPP", "/sys/module/nvidia_peermem is not there"},
			Text: "RDMA devices cannot reach GPU memory: nvidia_peermem is not loaded, and their driver does not register dma-bufs",
			Fix:  "modprobe nvidia_peermem, or update the driver of the NIC and rdma-core"})
	case open && known && recent && s.Modules == nil:
		o.note = "by dma-buf: open kernel module, kernel " + kernel
	case open && known && recent:
		o.find(Finding{Severity: Info, Subjects: gpus, Evidence: []string{version + " = Open Kernel Module", "/sys/module/nvidia_peermem is not there"},
			Text: "dma-buf is the only way from RDMA devices to GPU memory (open kernel module, kernel " + kernel + "): programs must know it",
			Fix:  "nothing for programs that register dma-buf (current NCCL, UCX, NIXL); for older ones modprobe nvidia_peermem"})
	case s.Modules == nil:
		o.lack("kernel modules are not told, so whether nvidia_peermem is loaded", h.lookAgain(), gpus...)
	case !slices.Contains(s.Modules, "nvidia"):
		o.lack("NVIDIA's driver is not loaded, so there is nothing to reach", "see gpu-driver-missing", gpus...)
	case efa:
		o.lack("efa_nv_peermem is not loaded, but older EFA drivers do without it", "cat /sys/class/infiniband/DEV/gdr on the host (1: there is a path); modprobe efa_nv_peermem", gpus...)
	case s.GPUModule == "" || open && !known:
		o.lack("nvidia_peermem is not loaded, and whether dma-buf is there is not told", h.lookAgain(), gpus...)
	default:
		why := "the kernel module is the proprietary one"
		if open {
			why = "the kernel is " + kernel + ", older than 5.12"
		}
		o.find(Finding{Severity: Error, Subjects: gpus, Evidence: []string{"/sys/module/nvidia_peermem is not there", version + " = " + s.GPUModule},
			Text: "RDMA devices cannot reach GPU memory: nvidia_peermem is not loaded, and dma-buf is not there (" + why +
				"): registering GPU memory fails with \"Bad address\", or data is copied through host memory",
			Fix: "modprobe nvidia_peermem, and add it to /etc/modules-load.d; or install the driver's open kernel module on kernel 5.12 or newer"})
	}
}

// noDMABuf are the RDMA devices that were tried and do not register dma-bufs.
func (h *host) noDMABuf() []topo.ID {
	var out []topo.ID
	for _, r := range h.hardware() {
		if a := h.answer(r.Name); a != nil && a.DMABuf != nil && !*a.DMABuf {
			out = append(out, r.ID)
		}
	}
	return out
}

func checkIOMMU(h *host) outcome {
	var o outcome
	devices := h.directDevices()
	if len(devices) == 0 {
		if h.imported() && len(h.t.GPUs)+len(h.hardware()) > 0 {
			o.lack("the input has no PCI functions", h.lookAgain())
			return o
		}
		return notApplicable("no GPU and no RDMA hardware")
	}
	var translated, untold []topo.ID
	var evidence []string
	passthrough, told := h.passthrough()
	looked := 0
	for _, d := range devices {
		f := h.pci[d.pci]
		switch f.IOMMUType {
		case "DMA", "DMA-FQ":
			translated = append(translated, d.id)
			if len(evidence) == 0 && f.IOMMUGroup != nil {
				evidence = append(evidence, saying(fmt.Sprintf("/sys/kernel/iommu_groups/%d/type", *f.IOMMUGroup), f.IOMMUType))
			}
		case "":
			if h.imported() || f.IOMMUGroup != nil && !(told && passthrough) {
				untold = append(untold, d.id)
			}
		}
		looked++
	}
	if len(translated) > 0 {
		option := "iommu=pt"
		if h.t.Host.Arch == "aarch64" {
			option = "iommu.passthrough=1"
		}
		text := fmt.Sprintf("the IOMMU translates every access of %s: less throughput, and peer-to-peer transfers may take the way through the root complex", count(len(translated), "device"))
		if told && passthrough {
			text += "; the kernel was booted with pass-through, so something set these devices apart"
		} else if told {
			evidence = append(evidence, "/proc/cmdline without "+option)
		}
		o.find(Finding{Severity: Warning, Subjects: translated, Text: text, Evidence: evidence,
			Fix: "boot with " + option + ", if no virtual machine and no security policy needs translation"})
	}
	if len(untold) > 0 {
		o.lack("the type of the IOMMU group is not told", h.lookAgain(), untold...)
	}
	o.note = count(looked, "device")
	if guest, _ := h.guest(); guest {
		o.note += ", as the guest sees it"
	}
	return o
}

// device is a GPU or an RDMA device with its function.
type device struct{ id, pci topo.ID }

// directDevices are the GPUs and the RDMA hardware that have a PCI function
// here.
func (h *host) directDevices() []device {
	var out []device
	add := func(id, pci topo.ID) {
		if h.pci[pci] != nil && !slices.ContainsFunc(out, func(d device) bool { return d.pci == pci }) {
			out = append(out, device{id, pci})
		}
	}
	for i := range h.t.GPUs {
		add(h.t.GPUs[i].ID, h.t.GPUs[i].PCI)
	}
	for _, r := range h.hardware() {
		add(r.ID, r.PCI)
	}
	return out
}

// passthrough says whether the kernel was told not to translate; told is false
// where the command line is not known.
func (h *host) passthrough() (yes, told bool) {
	s := h.t.Host.Software
	if s == nil || s.KernelOptions == nil {
		return false, false
	}
	for _, o := range s.KernelOptions {
		switch o {
		case "iommu=pt", "iommu.passthrough=1", "iommu.passthrough=on", "iommu.passthrough=y":
			yes = true
		case "iommu=nopt", "iommu.passthrough=0", "iommu.passthrough=off", "iommu.passthrough=n":
			yes = false
		}
	}
	return yes, true
}

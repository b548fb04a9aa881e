package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

func checkGPUDriver(h *host) (o outcome) {
	for _, g := range h.gpus {
		o.judged++
		_, told := g.Facts.Get("driver")
		f := Finding{Severity: Error, Subjects: []topo.ID{g.ID}, Evidence: []string{g.Evidence}}
		if d := h.PCIDevice(g.PCI); d != nil && g.Driver != "" {
			f.Evidence = []string{pciFile(d, "driver", g.Driver)}
		} else if d != nil {
			f.Evidence = []string{pciFile(d, "driver", "") + " does not exist"}
		}
		switch {
		case g.KnownFrom == "driver" || g.KnownFrom == "proc":
			continue
		case strings.HasPrefix(g.Driver, "vfio"):
			f.Severity, f.Text = Info, "bound to "+g.Driver+": it belongs to a virtual machine, and this host cannot use it"
			f.Fix = "nothing, if that is intended"
		case g.Vendor == "nvidia" && g.Driver == "nouveau":
			f.Text, f.Fix = "bound to nouveau, which cannot compute", "install NVIDIA's driver, which keeps nouveau away, and reboot"
		case g.Driver != "":
			continue
		case !told:
			o.missing("the driver is not known", h.lookAgain(), g.ID)
			continue
		default:
			f.Text, f.Fix = "no driver is bound: the GPU cannot be used", "load the vendor's driver; dmesg says why it did not bind"
		}
		o.find(f)
	}
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

func checkGDR(h *host) (o outcome) {
	if len(h.gpus) == 0 || len(h.hardware) == 0 {
		return notApplicable("needs a GPU and RDMA hardware")
	}
	var nvidia, others []topo.ID
	for _, g := range h.gpus {
		model := g.Model
		if d := h.PCIDevice(g.PCI); d != nil && model == "" {
			model = d.DeviceName
		}
		switch {
		case g.Vendor == "nvidia" && strings.Contains(model, "GeForce"):
			o.find(Finding{Severity: Error, Subjects: []topo.ID{g.ID}, Evidence: []string{g.Evidence},
				Text: fmt.Sprintf("%s: GeForce GPUs have no GPUDirect RDMA, so every transfer is copied through host memory", model),
				Fix:  "plan with copies through host memory, or use a data-centre GPU"})
		case g.Vendor == "nvidia" && model == "":
			o.missing("the model is not known, and GeForce GPUs have no GPUDirect RDMA", h.askNVML(), g.ID)
			nvidia = append(nvidia, g.ID)
		case g.Vendor == "nvidia" || g.Vendor == "":
			nvidia = append(nvidia, g.ID)
		default:
			others = append(others, g.ID)
		}
	}
	if len(nvidia) > 0 {
		h.nvidiaGDR(&o, nvidia)
	}
	if s := h.t.Host.Software; s == nil || !slices.Contains(s.Modules, "ib_peer_mem") {
		o.missing("of GPUs that are not NVIDIA's the kernel's configuration decides, which is not read",
			"look for amdkfd in /sys/kernel/mm/memory_peers, or CONFIG_PCI_P2PDMA and CONFIG_DMABUF_MOVE_NOTIFY in /boot/config-*", others...)
	}
	return o
}

// nvidiaGDR judges how RDMA devices can reach the memory of NVIDIA GPUs.
func (h *host) nvidiaGDR(o *outcome, gpus []topo.ID) {
	s := h.t.Host.Software
	if s == nil {
		o.missing("kernel modules are not known", h.lookAgain(), gpus...)
		return
	}
	const version = "/proc/driver/nvidia/version"
	kernel := h.t.Host.Kernel
	recent, known := h.kernelAtLeast(5, 12)
	open := s.GPUModule == "open"
	efa := !slices.ContainsFunc(h.hardware, func(r *topo.RDMADevice) bool { return r.Driver != "efa" })
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
		o.find(Finding{Severity: Error, Subjects: h.noDMABuf(), Evidence: []string{"ibv_reg_dmabuf_mr = EOPNOTSUPP", "/sys/module/nvidia_peermem does not exist"},
			Text: "RDMA devices cannot reach GPU memory: nvidia_peermem is not loaded, and their driver does not register dma-bufs",
			Fix:  "modprobe nvidia_peermem, or update the driver of the NIC and rdma-core"})
	case open && known && recent && s.Modules == nil:
		o.note = "by dma-buf: open kernel module, kernel " + kernel
	case open && known && recent:
		o.find(Finding{Severity: Info, Subjects: gpus, Evidence: []string{version + " = Open Kernel Module", "/sys/module/nvidia_peermem does not exist"},
			Text: "dma-buf is the only way from RDMA devices to GPU memory (open kernel module, kernel " + kernel + "): programs must support it",
			Fix:  "nothing for programs that register dma-buf (current NCCL, UCX, NIXL); for older ones modprobe nvidia_peermem"})
	case s.Modules == nil:
		o.missing("kernel modules are not known, so whether nvidia_peermem is loaded", h.lookAgain(), gpus...)
	case !slices.Contains(s.Modules, "nvidia"):
		o.missing("NVIDIA's driver is not loaded, so there is nothing to reach", "see gpu-driver-missing", gpus...)
	case efa:
		o.missing("efa_nv_peermem is not loaded, but older EFA drivers do without it", "cat /sys/class/infiniband/DEV/gdr on the host (1: there is a path); modprobe efa_nv_peermem", gpus...)
	case s.GPUModule == "" || open && !known:
		o.missing("nvidia_peermem is not loaded, and whether dma-buf is there is not known", h.lookAgain(), gpus...)
	default:
		why := "the kernel module is the proprietary one"
		if open {
			why = "the kernel is " + kernel + ", older than 5.12"
		}
		o.find(Finding{Severity: Error, Subjects: gpus, Evidence: []string{"/sys/module/nvidia_peermem does not exist", version + " = " + s.GPUModule},
			Text: "RDMA devices cannot reach GPU memory: nvidia_peermem is not loaded, and dma-buf is not there (" + why +
				"): registering GPU memory fails with \"Bad address\", or data is copied through host memory",
			Fix: "modprobe nvidia_peermem, and add it to /etc/modules-load.d; or install the driver's open kernel module on kernel 5.12 or newer"})
	}
}

// noDMABuf are the RDMA devices that were tried and do not register dma-bufs.
func (h *host) noDMABuf() []topo.ID {
	var out []topo.ID
	for _, r := range h.hardware {
		if a := h.answer(r.Name); a != nil && a.DMABuf != nil && !*a.DMABuf {
			out = append(out, r.ID)
		}
	}
	return out
}

func checkIOMMU(h *host) (o outcome) {
	devices := h.directDevices()
	if len(devices) == 0 && h.imported() && len(h.gpus)+len(h.hardware) > 0 {
		return couldNotCheck("the input has no PCI functions", h.lookAgain())
	}
	var translated []topo.ID
	var evidence []string
	passthrough, known := h.passthrough()
	for _, d := range devices {
		o.judged++
		f := h.PCIDevice(d.pci)
		switch f.IOMMUType {
		case "DMA", "DMA-FQ":
			translated = append(translated, d.id)
			if len(evidence) == 0 && f.IOMMUGroup != nil {
				evidence = append(evidence, withValue(fmt.Sprintf("/sys/kernel/iommu_groups/%d/type", *f.IOMMUGroup), f.IOMMUType))
			}
		case "":
			if h.imported() || f.IOMMUGroup != nil && !(known && passthrough) {
				o.missing("the type of the IOMMU group is not known", h.lookAgain(), d.id)
			}
		}
	}
	if len(translated) > 0 {
		option := h.passOption()
		sentence := fmt.Sprintf("the IOMMU translates every access of %s: less throughput, and peer-to-peer transfers may go through the root complex", text.Plural(len(translated), "device"))
		if known && passthrough {
			sentence += "; the kernel was booted with pass-through, so something made an exception for these devices"
		} else if known {
			evidence = append(evidence, "/proc/cmdline without "+option)
		}
		o.find(Finding{Severity: Warning, Subjects: translated, Text: sentence, Evidence: evidence,
			Fix: "boot with " + option + ", if no virtual machine and no security policy needs translation"})
	}
	if guest, _ := h.guest(); guest && o.judged > 0 {
		o.note = text.Plural(o.judged, "device") + ", as the guest sees it"
	}
	return o
}

// passOption is the kernel's option not to translate.
func (h *host) passOption() string {
	if h.t.Host.Arch == "aarch64" {
		return "iommu.passthrough=1"
	}
	return "iommu=pt"
}

// device is a GPU or an RDMA device with its function.
type device struct{ id, pci topo.ID }

// directDevices are the GPUs and the RDMA hardware that have a PCI function
// here.
func (h *host) directDevices() []device {
	var out []device
	add := func(id, pci topo.ID) {
		if h.PCIDevice(pci) != nil && !slices.ContainsFunc(out, func(d device) bool { return d.pci == pci }) {
			out = append(out, device{id, pci})
		}
	}
	for _, g := range h.gpus {
		add(g.ID, g.PCI)
	}
	for _, r := range h.hardware {
		add(r.ID, r.PCI)
	}
	return out
}

// passthrough says whether the kernel was booted with the option not to translate;
// known is false where the command line is not known.
func (h *host) passthrough() (yes, known bool) {
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

func checkRegistration(h *host) (o outcome) {
	switch {
	case len(h.t.RDMADevices) == 0:
		return notApplicable("no RDMA device")
	case h.verbs == nil:
		return couldNotCheck("registering memory can be tried on the running host only", h.onHost())
	case h.verbs.Unavailable != "":
		return couldNotCheck("registering memory was not tried: "+h.verbs.Unavailable, h.withVerbs())
	}
	var untried, forbidden []topo.ID
	for i := range h.t.RDMADevices {
		r := &h.t.RDMADevices[i]
		a := h.answer(r.Name)
		switch {
		case a == nil:
			untried = append(untried, r.ID)
		case a.Open != nil && (permissionError(a.Open.Errno) || r.Uverbs != "rw" && r.Uverbs != "" && r.Uverbs != "unknown"):
			forbidden = append(forbidden, r.ID)
		default:
			if f := h.refused(r, a); f != nil {
				o.find(*f)
			} else if len(a.Registrations) == 0 {
				untried = append(untried, r.ID)
			}
			o.judged++
		}
	}
	o.missing("this process may not open the device, so nothing was tried", "see uverbs-inaccessible", forbidden...)
	o.missing("libibverbs does not list the device, or could not try it", "ibv_devices lists what libibverbs knows: install the device's provider (ibverbs-providers, rdma-core)", untried...)
	return o
}

// permissionError says whether an error number means that this process may not open a device.
func permissionError(errno string) bool {
	return errno == "EACCES" || errno == "EPERM" || errno == "ENOENT"
}

// withVerbs says how to have the library of RDMA devices.
func (h *host) withVerbs() string {
	return "install libibverbs (libibverbs1 and ibverbs-providers, or rdma-core), and use a topoctl that was built with cgo"
}

// answer is how the trial of a device went, nil if it was not tried.
func (h *host) answer(name string) *replies.VerbsDevice {
	if h.verbs == nil {
		return nil
	}
	i := slices.IndexFunc(h.verbs.Devices, func(a replies.VerbsDevice) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &h.verbs.Devices[i]
}

// refused is the finding about a device that fails, nil if it does not.
func (h *host) refused(r *topo.RDMADevice, a *replies.VerbsDevice) *Finding {
	f := &Finding{Severity: Error, Subjects: []topo.ID{r.ID}}
	step := func(e *replies.VerbsError, what string) {
		f.Evidence = []string{withValue(e.Verb, errorName(e))}
		cause, fix := h.meaning(e.Errno, 0)
		f.Text, f.Fix = what+" failed with "+errorName(e)+": "+cause, fix
	}
	switch {
	case a.Silent:
		f.Text = "the device did not answer in time when it was asked for " + a.Step + ": programs that use it hang"
		f.Evidence = []string{a.Step}
		f.Fix = "dmesg says what its driver waits for; the device may need a reset or the host a reboot"
		return f
	case a.Open != nil:
		step(a.Open, "opening the device")
		return f
	case a.Domain != nil:
		step(a.Domain, "making a protection domain")
		return f
	}
	i := slices.IndexFunc(a.Registrations, func(x replies.VerbsRegistration) bool { return x.Failed != nil })
	if i < 0 {
		return nil
	}
	x := a.Registrations[i]
	cause, fix := h.meaning(x.Failed.Errno, x.Bytes)
	f.Text = fmt.Sprintf("the device refuses to register %s with %s: %s", units.Bytes(x.Bytes), errorName(x.Failed), cause)
	if i > 0 {
		f.Text += fmt.Sprintf(" (it accepts %s)", units.Bytes(a.Registrations[i-1].Bytes))
	}
	f.Evidence, f.Fix = []string{withValue(fmt.Sprintf("%s of %s", x.Failed.Verb, units.Bytes(x.Bytes)), errorName(x.Failed))}, fix
	if a.MaxMRBytes != nil && *a.MaxMRBytes < x.Bytes {
		f.Text = fmt.Sprintf("the device refuses to register %s: the largest region that it accepts is %s", units.Bytes(x.Bytes), units.Bytes(*a.MaxMRBytes))
		f.Fix = "make regions no larger than that"
		f.Evidence = append(f.Evidence, "ibv_query_device max_mr_size = "+fmt.Sprint(*a.MaxMRBytes))
	}
	return f
}

// meaning says what an error number of a verb means here and what to do. bytes
// is the size of what was to be registered, 0 for other steps.
func (h *host) meaning(errno string, bytes int64) (cause, fix string) {
	limit, limited := h.lockLimit()
	const see = "raise the limit on locked memory: see memlock"
	switch {
	case errno == "EPERM" && limited && limit == 0 || errno == "EPERM" && bytes > 0 && limited:
		return "this process may not lock any memory", see
	case errno == "ENOMEM" && limited && limit < max(bytes, leastLocked):
		return "the limit on locked memory, " + units.Bytes(limit) + " for everything that is locked, is too low for it", see
	case errno == "ENOMEM" && h.lockLimitUnknown():
		return "the limit on locked memory, which is not known, may be too low for it, or the device has no room for it", "ulimit -l in the program's place; " + see
	case errno == "ENOMEM":
		return "the device or the kernel has no room for it: no free memory regions or pages", "look at what else is registered (rdma resource show mr), at free memory and huge pages, and at dmesg"
	case errno == "EPERM", errno == "EACCES":
		return "this process may not use the device", "permissions of /dev/infiniband (rdma-core's udev rules); in a container the device cgroup: --device /dev/infiniband"
	case errno == "ENODEV", errno == "ENXIO", errno == "EIO", errno == "ENOENT":
		return "the device is gone, or its driver has given it up", "dmesg; load the driver again or reset the device, and restart the programs that use it"
	case errno == "EAGAIN":
		return "the rdma cgroup allows no more objects", "look at rdma.max and rdma.current of the process's cgroup"
	case errno == "EOPNOTSUPP", errno == "ENOSYS", errno == "EPROTONOSUPPORT":
		return "the driver cannot do it", "update kernel, driver and rdma-core; libibverbs and the driver must know each other"
	case errno == "EINVAL":
		return "the driver does not accept what was asked for", "update kernel, driver and rdma-core together: they seem not to fit; dmesg may say more"
	case errno == "EFAULT":
		return "the memory cannot be pinned", "dmesg; report it together with the kernel's version"
	}
	return "the driver gives no better reason", "dmesg may say more"
}

// lockLimit is the limit on locked memory that holds for the process that
// ran topoctl; limited is false if there is no limit or it is not known.
func (h *host) lockLimit() (bytes int64, limited bool) {
	s := h.t.Host.Software
	if s == nil || s.Memlock == nil || s.Memlock.SoftBytes == nil || s.Memlock.Exempt != nil && *s.Memlock.Exempt {
		return 0, false
	}
	return *s.Memlock.SoftBytes, true
}

// lockLimitUnknown says whether the limit on locked memory is unknown.
func (h *host) lockLimitUnknown() bool {
	s := h.t.Host.Software
	return s == nil || s.Memlock == nil
}

// errorName is an error number's name, with what the system says where it has none.
func errorName(e *replies.VerbsError) string {
	if e.Errno == "" {
		return e.Text
	}
	return e.Errno
}

// leastLocked is the smallest limit on locked memory that some RDMA program can
// live with, in bytes: what the devices are tried with.
const leastLocked = 16 << 20

func checkMemlock(h *host) (o outcome) {
	if len(h.t.RDMADevices) == 0 {
		return notApplicable("no RDMA device")
	}
	if h.lockLimitUnknown() {
		return couldNotCheck("the limit on locked memory is not known", h.onHost())
	}
	m := h.t.Host.Software.Memlock
	switch limit := m.SoftBytes; {
	case limit == nil:
		o.note = "unlimited"
	case h.t.Host.MemoryBytes != nil && *limit >= *h.t.Host.MemoryBytes:
		o.note = units.Bytes(*limit) + ", no less than the host's memory"
	default:
		o.find(h.smallMemlock(m))
	}
	return o
}

// smallMemlock is the finding about a limit that is below the host's memory.
func (h *host) smallMemlock(m *topo.Memlock) Finding {
	limit := *m.SoftBytes
	hard := "unlimited"
	if m.HardBytes != nil {
		hard = fmt.Sprint(*m.HardBytes)
	}
	f := Finding{Severity: Warning, Evidence: []string{withValue("/proc/self/limits Max locked memory", fmt.Sprintf("%d, at most %s", limit, hard))}, Fix: h.memlockFix(m)}
	if m.Exempt != nil && *m.Exempt {
		f.Severity = Info
		f.Evidence = append(f.Evidence, "/proc/self/status CapEff has CAP_IPC_LOCK")
		f.Text = fmt.Sprintf("the limit on locked memory is %s; it does not apply to the process that ran topoctl (CAP_IPC_LOCK), but programs of other users cannot register more than that", units.Bytes(limit))
		return f
	}
	f.Text = fmt.Sprintf("the process that ran topoctl may lock only %s of memory: registering more than that with an RDMA device fails", units.Bytes(limit))
	switch {
	case m.Exempt == nil:
		f.Text += ", unless the program has CAP_IPC_LOCK"
	case limit < leastLocked:
		f.Severity = Error
		f.Text += fmt.Sprintf("; less than %s is too little for the queues of a few connections and one small region", units.Bytes(leastLocked))
	}
	return f
}

// memlockFix says how to raise the limit.
func (h *host) memlockFix(m *topo.Memlock) string {
	now := ""
	if m.HardBytes == nil {
		now = "ulimit -l unlimited before the program starts (the hard limit allows it); "
	} else if *m.HardBytes > *m.SoftBytes {
		now = fmt.Sprintf("ulimit -l %d before the program starts is as far as the hard limit allows; ", *m.HardBytes>>10)
	}
	if c := h.t.Host.Container; c != nil && *c {
		return now + "the container's runtime sets it: --ulimit memlock=-1 (docker, podman), LimitMEMLOCK=infinity in the unit of containerd or CRI-O on the node; or give it CAP_IPC_LOCK"
	}
	return now + "for good: memlock in /etc/security/limits.d and log in again, LimitMEMLOCK=infinity in the service's unit, --ulimit memlock=-1 for a container"
}

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

func checkFlat(h *host) (o outcome) {
	gpus, nics := len(h.gpus), len(h.hardware)
	if gpus == 0 || gpus+nics < 2 {
		return notApplicable("needs a GPU, and a second GPU or RDMA hardware")
	}
	guest, known := h.guest()
	switch {
	case !known:
		return couldNotCheck("whether the host is a virtual machine is not known", h.lookAgain())
	case !guest:
		return notApplicable("not a virtual machine")
	}
	switch h.near {
	case topo.NearnessShown:
		o.note = "PCIe switches show near and far"
		return o
	case topo.NearnessByNUMA:
		o.note = "no PCIe switch is visible, NUMA nodes show near and far"
		return o
	}
	devices := h.directDevices()
	where := "all on one NUMA node"
	if unknown := matching(devices, func(d *device) bool { return h.PCIDevice(d.pci).NUMA == nil }); len(unknown) > 0 {
		where = fmt.Sprintf("the NUMA node of %d of them unknown", len(unknown))
	}
	o.find(Finding{Severity: Warning, Evidence: []string{h.hypervisorFile(), h.gpus[0].Evidence},
		Text: fmt.Sprintf("which NIC is near which GPU cannot be seen in this guest (%s): its PCI tree is flat, %s and %s stand side by side, %s",
			h.t.Host.Virtual, text.Plural(gpus, "GPU"), text.Plural(nics, "RDMA NIC"), where),
		Fix: "give programs the layout of the physical host (NCCL_TOPO_FILE, topoctl --from): topoctl remap writes it from a topology of the hypervisor's host; or let the hypervisor build switches and NUMA nodes"})
	return o
}

// hypervisorFile is the file that shows the hypervisor.
func (h *host) hypervisorFile() string {
	if f, ok := h.t.Host.Facts.Get("virtual"); ok {
		return f.Where
	}
	return ""
}

func checkView(h *host) (o outcome) {
	var hidden []topo.ID
	for _, g := range h.gpus {
		if g.Visible != nil && !*g.Visible {
			hidden = append(hidden, g.ID)
		}
	}
	inside := h.t.Host.Container != nil && *h.t.Host.Container
	process := "this process"
	if inside {
		process = "this container"
	}
	if len(hidden) > 0 {
		o.find(Finding{Severity: Warning, Subjects: hidden, Evidence: []string{"/dev/nvidia*"},
			Text: fmt.Sprintf("%s may use %d of %d GPUs; these are visible on PCI but not available to it", process, len(h.gpus)-len(hidden), len(h.gpus)),
			Fix:  "nothing, if that is intended (a device plugin, --gpus): CUDA's indices then count the others only; else --gpus all"})
	}
	for _, w := range h.t.Warnings {
		// GPUs are reported above, RDMA devices by uverbs-inaccessible.
		if w.Code != topo.CodePartialView || w.Evidence == "nvmlDeviceGetCount" || w.Evidence == "/dev" || strings.Contains(w.Evidence, "dev/infiniband") || strings.HasPrefix(w.Detail, "this process cannot use gpu") {
			continue
		}
		o.find(Finding{Severity: Warning, Subjects: subjects(w), Text: w.Detail, Evidence: []string{w.Evidence},
			Fix: "in a container, mount all of /sys and give it all devices; in a guest, look on the host"})
	}
	if allowed := h.t.Host.AllowedCPUs; allowed != "" {
		o.find(Finding{Severity: Info, Evidence: []string{"/proc/self/status Cpus_allowed_list = " + allowed},
			Text: fmt.Sprintf("%s may use CPUs %s of %s: the NUMA nodes of other CPUs are far from its threads", process, allowed, h.t.Host.CPUs),
			Fix:  "nothing, if that is intended; else widen the CPU set (taskset, cpuset of the container)"})
	}
	if h.t.Host.Container == nil {
		o.missingOfHost("what a process may use can be seen on the running host only", h.onHost())
	}
	if o.note = "not in a container"; inside {
		h.otherNamespace(&o)
		o.note = "in a container, nothing is known to be hidden"
	}
	return o
}

// otherNamespace notes NICs that have a driver and neither an interface nor an
// RDMA device here: in a container their interfaces are in the host's network
// namespace.
func (h *host) otherNamespace(o *outcome) {
	away := slices.DeleteFunc(h.networkFunctions(), func(d *topo.PCIDevice) bool {
		on := h.On(d.ID)
		return len(on.Netdevs)+len(on.RDMADevices) > 0 || d.Driver == "" || strings.HasPrefix(d.Driver, "vfio") || strings.HasPrefix(d.Driver, "uio") || d.PF != ""
	})
	if len(away) > 0 {
		o.find(Finding{Severity: Info, Subjects: functionIDs(away), Evidence: []string{pciFile(away[0], "driver", away[0].Driver)},
			Text: fmt.Sprintf("%s without an interface here: the interfaces are in another network namespace, so their state and addresses are not known", text.Plural(len(away), "NIC function")),
			Fix:  "run topoctl in the host's network namespace (--network host) to see them"})
	}
}

// subjects are the devices that warnings of discovery are about.
func subjects(warnings ...topo.Warning) []topo.ID {
	var out []topo.ID
	for _, w := range warnings {
		if w.Subject != "" && !slices.Contains(out, w.Subject) {
			out = append(out, w.Subject)
		}
	}
	return out
}

func checkUnread(h *host) (o outcome) {
	var by groups[topo.Code, topo.Warning]
	for _, w := range h.t.Warnings {
		if w.Partial() {
			by.add(w.Code, w)
		}
	}
	by.each(func(code topo.Code, warnings []topo.Warning) {
		sentence := fmt.Sprintf("%s could not be read (%s): for example, %s", text.Plural(len(warnings), "fact"), code, warnings[0].Detail)
		if code == topo.CodeSourceFailed {
			sentence = fmt.Sprintf("%s failed: %s", text.Plural(len(warnings), "source"), warnings[0].Detail)
		}
		o.find(Finding{Severity: Warning, Subjects: subjects(warnings...), Text: sentence,
			Evidence: mapped(warnings, warned),
			Fix:      "look at the files; \"topoctl discover\" lists every one of them on stderr"})
	})
	if len(o.findings) == 0 && !h.t.Complete {
		o.missingOfHost("the input says that it is incomplete, not where", h.lookAgain())
	}
	if len(o.findings) == 0 && h.imported() {
		o.missingOfHost("another tool's file does not say what that tool could not read", h.lookAgain())
	}
	return o
}

// warned is what shows a warning: a file, or that it is not there.
func warned(w topo.Warning) string {
	if w.Code == topo.CodeMissing && strings.HasPrefix(w.Evidence, "/") {
		return w.Evidence + " does not exist"
	}
	return w.Evidence
}

func checkConflicts(h *host) (o outcome) {
	for _, w := range h.t.Warnings {
		if w.Code == topo.CodeConflict {
			o.find(Finding{Severity: Info, Subjects: subjects(w), Text: w.Detail, Evidence: []string{w.Evidence},
				Fix: "look at both; topoctl uses the one that the text names"})
		}
	}
	var answered []string
	for _, s := range h.t.Sources {
		if s.Status == topo.StatusOK || s.Status == topo.StatusPartial {
			answered = append(answered, string(s.Source))
		}
	}
	if len(answered) < 2 && len(o.findings) == 0 {
		o.missingOfHost("fewer than two sources answered, so nothing could disagree", h.lookAgain())
	}
	o.note = strings.Join(answered, ", ")
	return o
}

package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
)

// nvml asks the GPU vendor's library, or replays what a capture recorded.
func (p pipeline) nvml(ctx context.Context) outcome {
	const s = topo.SourceNVML
	if p.live && p.opts.GPUs == nil {
		return gpusUnasked(withStatus(s, topo.StatusSkipped, "this program was given no GPU library"), true)
	}
	if p.live {
		report, err := p.opts.GPUs.GPUs(ctx)
		switch {
		case libraryAbsent(err):
			return gpusUnasked(withStatus(s, topo.StatusAbsent, err.Error()), true)
		case err != nil:
			return failed(s, "", err)
		case report == nil:
			return failed(s, "", errors.New("the GPU library gave no report"))
		}
		return gpusAnswered(report, false)
	}
	report := &replies.GPUReport{}
	found, err := replay(p.tree, replies.NVMLPath, replies.SchemaNVML, report)
	if err == nil && found {
		err = checkGPUs(report)
	}
	switch {
	case err != nil:
		return failed(s, replies.NVMLPath, err)
	case !found:
		return gpusUnasked(withStatus(s, topo.StatusAbsent, "the tree has no recorded NVML answers"), false)
	}
	return gpusAnswered(report, true)
}

// gpusAnswered is the outcome of a report.
func gpusAnswered(report *replies.GPUReport, recorded bool) outcome {
	detail := []string{fmt.Sprintf("%d GPUs", len(report.GPUs))}
	for _, v := range []struct{ name, value string }{
		{"driver", report.DriverVersion}, {"NVML", report.NVMLVersion}, {"CUDA", report.CUDAVersion},
	} {
		if v.value != "" {
			detail = append(detail, v.name+" "+v.value)
		}
	}
	o := withStatus(topo.SourceNVML, topo.StatusOK, strings.Join(detail, ", "))
	if len(report.Warnings) > 0 {
		o.report.Status = topo.StatusPartial
	}
	o.report.Recorded = recorded
	o.warnings = fromSource(topo.SourceNVML, report.Warnings)
	o.raw.gpus = report
	o.apply = func(t *topo.Topology, _ *topo.SourceReport) { applyNVML(t, report) }
	return o
}

// gpusUnasked adds a warning to an outcome without answers if the host has NVIDIA
// GPUs that the driver lists. The sysfs reader warns about those it does not list.
func gpusUnasked(o outcome, live bool) outcome {
	o.apply = func(t *topo.Topology, r *topo.SourceReport) {
		var mute []string
		for i := range t.GPUs {
			if g := &t.GPUs[i]; g.Vendor == vendorNVIDIA && g.KnownFrom == "proc" {
				mute = append(mute, string(g.ID))
			}
		}
		switch {
		case len(mute) == 0:
		case live:
			t.Warnings = append(t.Warnings, topo.Warning{
				Code: topo.CodeDriverOnly, Source: topo.SourceNVML,
				Detail: fmt.Sprintf("%s: NVML was not asked (%s): UUIDs, NVLink and peer access are unknown", strings.Join(mute, ", "), r.Detail),
			})
		default:
			t.Host.Lacks = append(t.Host.Lacks, "UUIDs, NVLink and peer access of the NVIDIA GPUs: no NVML answers were recorded")
		}
	}
	return o
}

// checkGPUs refuses a recorded report above the limits.
func checkGPUs(r *replies.GPUReport) error {
	if len(r.GPUs) > maxGPUs {
		return fmt.Errorf("%d GPUs, more than %d", len(r.GPUs), maxGPUs)
	}
	if len(r.Warnings) > maxWarnings {
		return fmt.Errorf("%d warnings, more than %d", len(r.Warnings), maxWarnings)
	}
	for i := range r.GPUs {
		g := &r.GPUs[i]
		if len(g.NVLinks) > maxNVLinks || len(g.P2P) > maxGPUs || g.MIG != nil && len(g.MIG.Instances) > maxGPUs {
			return fmt.Errorf("GPU %d: more NVLinks, peers or MIG devices than a GPU can have", g.Index)
		}
	}
	return nil
}

// applyNVML adds what NVML says of the GPUs. A GPU that it has and PCI does not
// show becomes a node without a PCI function; an NVIDIA GPU on PCI that it does
// not list is not visible to this process.
func applyNVML(t *topo.Topology, r *replies.GPUReport) {
	if r.DriverVersion != "" {
		t.Host.GPUDriver = r.DriverVersion
		t.Host.Facts.Set("gpu_driver_version", topo.SourceNVML, "nvmlSystemGetDriverVersion")
	}
	listed := matchGPUs(t, r)
	index := topo.NewIndex(t)
	for _, l := range listed {
		mergeGPU(t, index, l.gpu, l.answer)
	}
	hideUnlisted(t, r, listed)
	p := peers{t: t, index: index, listed: listed, byNVML: map[int]*topo.GPU{}, known: map[*topo.GPU]bool{}}
	for _, l := range listed {
		p.byNVML[l.answer.Index], p.known[l.gpu] = l.gpu, true
	}
	p.nvlinks()
	p.c2c()
	p.p2p()
}

// listedGPU is a GPU and NVML's answer about it.
type listedGPU struct {
	gpu    *topo.GPU
	answer *replies.GPU
}

// matchGPUs finds the GPU of each answer, in the topology's order; answers without one get
// a new GPU, behind the others and in PCI order.
func matchGPUs(t *topo.Topology, r *replies.GPUReport) []listedGPU {
	index := topo.NewIndex(t)
	answers := map[topo.ID]*replies.GPU{}
	var fresh []*replies.GPU
	for i := range r.GPUs {
		a := &r.GPUs[i]
		g := index.GPUAt(a.BDF)
		switch {
		case g == nil:
			fresh = append(fresh, a)
		case answers[g.ID] != nil:
			t.Warnings = append(t.Warnings, topo.Warning{
				Code: topo.CodeMalformed, Subject: g.ID, Source: topo.SourceNVML,
				Detail: fmt.Sprintf("NVML GPU %d has the PCI address of another one, %s: ignored", a.Index, a.BDF),
			})
		default:
			answers[g.ID] = a
		}
	}
	slices.SortStableFunc(fresh, func(a, b *replies.GPU) int { return a.BDF.Compare(b.BDF) })
	for _, a := range fresh {
		answers[addGPU(t, index.PCIDevice(topo.PCIID(a.BDF)), a)] = a
	}
	var listed []listedGPU
	for i := range t.GPUs {
		if a := answers[t.GPUs[i].ID]; a != nil {
			listed = append(listed, listedGPU{&t.GPUs[i], a})
		}
	}
	return listed
}

// addGPU makes a node for a GPU that sysfs did not find. d is the function at its address, nil if there is
// no function.
func addGPU(t *topo.Topology, d *topo.PCIDevice, a *replies.GPU) topo.ID {
	index := 0
	for i := range t.GPUs {
		index = max(index, t.GPUs[i].Index+1)
	}
	g := topo.GPU{
		Node:  topo.Node{ID: topo.GPUID(index), Kind: topo.KindGPU},
		Index: index, Vendor: vendorNVIDIA, Driver: driverNVIDIA,
	}
	if a.BDF != (topo.BDF{}) { // 0000:00:00.0 is a host bridge: NVML could not tell
		bdf := a.BDF
		g.BDF = &bdf
		g.Facts.Set("bdf", topo.SourceNVML, "nvmlDeviceGetPciInfo")
	}
	if d != nil && g.BDF != nil {
		g.PCI = d.ID
	} else {
		t.Warnings = append(t.Warnings, topo.Warning{
			Code: topo.CodePartialView, Subject: g.ID, Source: topo.SourceNVML, Evidence: "nvmlDeviceGetPciInfo",
			Detail: fmt.Sprintf("NVML GPU %d (%s) has no PCI function here: its place in the PCI tree is unknown", a.Index, a.BDF),
		})
	}
	t.GPUs = append(t.GPUs, g)
	return g.ID
}

// mergeGPU adds one answer to its node.
func mergeGPU(t *topo.Topology, index *topo.Index, g *topo.GPU, a *replies.GPU) {
	m := merger{t, g.ID, &g.Facts, topo.SourceNVML}
	g.KnownFrom = "driver"
	overrideNumber(m, "nvml_index", &g.NVMLIndex, &a.Index, "nvmlDeviceGetHandleByIndex")
	if a.Name != "" {
		g.Model = a.Name // the driver's name over pci.ids and /proc
		g.Facts.Set("model", topo.SourceNVML, "nvmlDeviceGetName")
	}
	m.override("uuid", &g.UUID, a.UUID, "nvmlDeviceGetUUID")
	m.fill("serial", &g.Serial, a.Serial, "nvmlDeviceGetSerial")
	fillNumber(m, "minor", &g.Minor, a.Minor, "nvmlDeviceGetMinorNumber")
	overrideNumber(m, "memory_bytes", &g.MemoryBytes, a.MemoryBytes, "nvmlDeviceGetMemoryInfo")
	m.override("compute_capability", &g.ComputeCap, a.ComputeCap, "nvmlDeviceGetCudaComputeCapability")
	if a.CPUAffinity != "" {
		g.CPUAffinity = a.CPUAffinity
		g.Facts.Set("cpu_affinity", topo.SourceNVML, "nvmlDeviceGetCpuAffinity")
	}
	if a.MIG != nil {
		mig := *a.MIG
		g.MIG = &mig
		g.Facts.Set("mig", topo.SourceNVML, "nvmlDeviceGetMigMode")
	}
	if a.NVLinkFabric != nil {
		fabric := *a.NVLinkFabric
		g.NVLinkFabric = &fabric
		g.Facts.Set("nvlink_fabric", topo.SourceNVML, "nvmlDeviceGetGpuFabricInfo")
	}
	if g.Visible == nil {
		g.Visible = new(true)
		g.Facts.Set("visible", topo.SourceNVML, "nvmlDeviceGetHandleByIndex")
	}
	var d *topo.PCIDevice
	if g.BDF != nil {
		d = index.PCIDevice(topo.PCIID(*g.BDF))
	}
	mergeGPUNUMA(m, index, g, d, a)
	if d != nil {
		mergeGPULink(t, d, a)
	}
}

// mergeGPUNUMA fills in the NUMA nodes of a GPU and of its PCI function, where
// sysfs said -1.
func mergeGPUNUMA(m merger, index *topo.Index, g *topo.GPU, d *topo.PCIDevice, a *replies.GPU) {
	const where = "nvmlDeviceGetMemoryAffinity"
	if a.CPUNUMA != nil && index.NUMANodeAt(*a.CPUNUMA) != nil {
		learned := g.NUMA == nil
		fillNumber(m, "numa_node", &g.NUMA, a.CPUNUMA, where)
		if d != nil && d.NUMA == nil && learned {
			fillNumber(merger{m.t, d.ID, &d.Facts, m.from}, "numa_node", &d.NUMA, a.CPUNUMA, where)
			m.t.Warnings = slices.DeleteFunc(m.t.Warnings, func(w topo.Warning) bool {
				return w.Code == topo.CodeNUMAUnknown && (w.Subject == g.ID || w.Subject == d.ID)
			})
		}
	}
	if a.MemoryNUMA == nil {
		return
	}
	fillNumber(m, "memory_numa_node", &g.MemoryNUMA, a.MemoryNUMA, "nvmlDeviceGetNumaNodeId")
	if n := index.NUMANodeAt(*a.MemoryNUMA); n != nil && n.Owner == "" && n.CPUs == "" {
		n.Owner = g.ID
		n.Facts.Set("owner", topo.SourceNVML, "nvmlDeviceGetNumaNodeId")
	}
}

// mergeGPULink fills in the PCIe link of a GPU where sysfs had none. Widths that
// differ are reported; speeds are not, for an idle GPU changes its own.
func mergeGPULink(t *topo.Topology, d *topo.PCIDevice, a *replies.GPU) {
	link := topo.PCILink{}
	if d.Link != nil {
		link = *d.Link
	}
	m := merger{t, d.ID, &d.Facts, topo.SourceNVML}
	if link.SpeedMTs == nil {
		fillNumber(m, "link.speed_mts", &link.SpeedMTs, genSpeed(a.PCIeGen), "nvmlDeviceGetCurrPcieLinkGeneration")
	}
	if link.MaxSpeedMTs == nil {
		fillNumber(m, "link.max_speed_mts", &link.MaxSpeedMTs, genSpeed(a.PCIeMaxGen), "nvmlDeviceGetMaxPcieLinkGeneration")
	}
	fillNumber(m, "link.width", &link.Width, positive(a.PCIeWidth), "nvmlDeviceGetCurrPcieLinkWidth")
	fillNumber(m, "link.max_width", &link.MaxWidth, positive(a.PCIeMaxWidth), "nvmlDeviceGetMaxPcieLinkWidth")
	if link != (topo.PCILink{}) {
		d.Link = &link
	}
}

// genSpeed is the lane speed of a PCIe generation in MT/s, nil for one that
// does not exist.
func genSpeed(gen *int) *int {
	if gen == nil || units.PCIeSpeed(*gen) == 0 {
		return nil
	}
	return new(units.PCIeSpeed(*gen))
}

// positive is nil for 0, which drivers use for unknown.
func positive(n *int) *int {
	if n == nil || *n <= 0 {
		return nil
	}
	return n
}

// hideUnlisted marks the NVIDIA GPUs on PCI that NVML does not list, and warns
// about those that sysfs had not found hidden. NVML's answer replaces the
// warnings of sysfs about a driver that lists no GPUs.
func hideUnlisted(t *topo.Topology, r *replies.GPUReport, listed []listedGPU) {
	t.Warnings = slices.DeleteFunc(t.Warnings, func(w topo.Warning) bool {
		return w.Code == topo.CodeDriverOnly && strings.Contains(w.Evidence, "proc/driver/nvidia")
	})
	seen := map[*topo.GPU]bool{}
	for _, l := range listed {
		seen[l.gpu] = true
	}
	var hidden []string
	for i := range t.GPUs {
		g := &t.GPUs[i]
		if seen[g] || g.Vendor != vendorNVIDIA {
			continue
		}
		if g.Visible == nil || *g.Visible {
			hidden = append(hidden, fmt.Sprintf("%s (driver: %s)", g.ID, cmp.Or(g.Driver, "none")))
		}
		g.Visible = new(false)
		g.Facts.Set("visible", topo.SourceNVML, "nvmlDeviceGetCount")
	}
	if len(hidden) > 0 {
		t.Warnings = append(t.Warnings, topo.Warning{
			Code: topo.CodePartialView, Source: topo.SourceNVML, Evidence: "nvmlDeviceGetCount",
			Detail: fmt.Sprintf("NVML lists %d GPUs and not these, which are on PCI but cannot be used here: %s",
				len(r.GPUs), strings.Join(firstOf(hidden, 16), ", ")),
		})
	}
}

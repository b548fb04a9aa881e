package hwlocxml

import (
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
)

// gpuItem is a GPU with the gp_index of the objects that stand for it.
type gpuItem struct {
	gpu     topo.GPU
	objects []string
}

// functionNodes adds what a PCI function is by its class: GPU or NVSwitch.
func (d *decoder) functionNodes(e *document.Element, index int) {
	p := &d.t.PCIDevices[index]
	var compute []*document.Element
	for _, c := range e.All("object") {
		if kind(c) == "OSDev" && d.osKindOf(c)&(osGPU|osCoproc) != 0 {
			compute = append(compute, c)
		}
	}
	switch {
	case p.Accelerator() || slices.ContainsFunc(compute, isVendorDevice):
		item := gpuItem{gpu: newGPU(p), objects: []string{e.Get("gp_index")}}
		for _, c := range compute {
			d.gpuFacts(&item, c)
		}
		d.gpus = append(d.gpus, item)
	case p.Class.Uint()>>8 == 0x0680 && p.Vendor == "0x10de", e.Get("subtype") == subtypeNVSwitch:
		bdf := p.BDF
		s := topo.NVSwitch{Node: topo.Node{ID: topo.NVSwitchID(bdf), Evidence: e.Path()}, PCI: p.ID, BDF: &bdf, NUMA: p.NUMA}
		s.Facts.Set("pci", topo.SourceHwloc, "pci_type")
		d.t.NVSwitches = append(d.t.NVSwitches, s)
		d.objects[e.Get("gp_index")] = topo.FabricID
	}
}

// subtypeNVSwitch is hwloc's word for an NVSwitch's PCI function, which stands
// even where its configuration space could not be read.
const subtypeNVSwitch = "NVSwitch"

// isVendorDevice says whether an OS device is one that only a GPU's own driver
// makes. OpenCL devices are not: they are matched to functions by guess.
func isVendorDevice(e *document.Element) bool {
	for _, prefix := range []string{"cuda", "nvml", "rsmi", "ze", "ve"} {
		if n, ok := strings.CutPrefix(e.Get("name"), prefix); ok && n != "" && n[0] >= '0' && n[0] <= '9' {
			return true
		}
	}
	return false
}

// newGPU is a GPU as its function tells.
func newGPU(p *topo.PCIDevice) topo.GPU {
	g := topo.GPU{Node: topo.Node{Evidence: p.Evidence}, Model: p.DeviceName, KnownFrom: "import"}
	g.PCI, g.BDF, g.NUMA = identity(p)
	switch g.Vendor = string(p.Vendor); p.Vendor {
	case "0x10de":
		g.Vendor = "nvidia"
	case "0x1002":
		g.Vendor = "amd"
	case "0x8086":
		g.Vendor = "intel"
	}
	g.Facts.Set("pci", topo.SourceHwloc, "")
	g.Facts.Set("vendor", topo.SourceHwloc, "pci_type")
	if g.NUMA != nil {
		g.Facts.Set("numa_node", topo.SourceHwloc, "nodeset above")
	}
	return g
}

// gpuFacts takes what an OS device (nvml0, cuda0, rsmi0, opencl0d0) says.
func (d *decoder) gpuFacts(item *gpuItem, e *document.Element) {
	g := &item.gpu
	item.objects = append(item.objects, e.Get("gp_index"))
	for _, f := range []struct {
		dst        *string
		name, fact string
	}{
		{&g.Serial, "NVIDIASerial", "serial"}, {&g.Serial, "AMDSerial", "serial"},
		{&g.UUID, "NVIDIAUUID", "uuid"}, {&g.UUID, "AMDUUID", "uuid"},
	} {
		if v := info(e, f.name); v != "" && *f.dst == "" {
			*f.dst = v
			g.Facts.Set(f.fact, topo.SourceHwloc, e.Get("name")+" info "+f.name)
		}
	}
	_, told := g.Facts.Get("model")
	if model := info(e, "GPUModel"); model != "" && (!told || strings.HasPrefix(e.Get("name"), "nvml")) {
		g.Model = model
		g.Facts.Set("model", topo.SourceHwloc, e.Get("name")+" info GPUModel")
	}
	for _, name := range []string{"CUDAGlobalMemorySize", "OpenCLGlobalMemorySize", "LevelZeroHBMSize"} {
		if kib, err := strconv.ParseInt(info(e, name), 10, 40); err == nil && kib > 0 && g.MemoryBytes == nil {
			bytes := kib * 1024
			g.MemoryBytes = &bytes
			g.Facts.Set("memory_bytes", topo.SourceHwloc, e.Get("name")+" info "+name)
		}
	}
	if n, ok := strings.CutPrefix(e.Get("name"), "nvml"); ok {
		if index, err := strconv.Atoi(n); err == nil && index >= 0 {
			g.NVMLIndex = &index
			g.Facts.Set("nvml_index", topo.SourceHwloc, "name "+e.Get("name"))
		}
	}
}

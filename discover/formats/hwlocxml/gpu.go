package hwlocxml

import (
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/internal/gpulink"
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
	p := &d.PCIDevices[index]
	var compute []*document.Element
	for _, c := range e.All("object") {
		if kind(c) == "OSDev" && d.osKindOf(c)&(osGPU|osCoproc) != 0 {
			compute = append(compute, c)
		}
	}
	switch {
	case p.Accelerator() || slices.ContainsFunc(compute, isVendorDevice):
		item := gpuItem{gpu: d.GPU(p), objects: []string{e.Get("gp_index")}}
		item.gpu.Model = p.DeviceName
		for _, c := range compute {
			d.gpuFacts(&item, c)
		}
		d.gpus = append(d.gpus, item)
	case p.Class.Uint()>>8 == 0x0680 && p.Vendor == gpulink.VendorNVIDIA, e.Get("subtype") == subtypeNVSwitch:
		d.AddNVSwitch(p, "pci_type")
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
		d.Text(&g.Facts, f.fact, f.dst, info(e, f.name), e.Get("name")+" info "+f.name)
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

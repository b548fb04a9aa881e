package discover

import "github.com/topoctl/topoctl/discover/topo"

// applyNames names PCI functions by their numbers.
func applyNames(t *topo.Topology, names pciNames) {
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		n, ok := numberOf(d)
		if !ok {
			continue
		}
		m := merger{t, d.ID, &d.Facts, topo.SourceGHW}
		m.fill("vendor_name", &d.VendorName, names.vendor[n.vendor], "pci.ids")
		m.fill("device_name", &d.DeviceName, names.device[n], "pci.ids")
	}
}

// applyGHW adds what ghw read of the devices where sysfs had nothing.
func applyGHW(t *topo.Topology, devices map[topo.BDF]ghwDevice) {
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		g, ok := devices[d.BDF]
		if !ok {
			continue
		}
		m := merger{t, d.ID, &d.Facts, topo.SourceGHW}
		m.fill("driver", &d.Driver, g.driver, "driver")
		fillNumber(m, "iommu_group", &d.IOMMUGroup, g.iommuGroup, "iommu_group")
	}
}

// nameGPUs gives GPUs that neither NVML nor the driver named the name of their
// PCI function.
func nameGPUs(t *topo.Topology) {
	index := topo.NewIndex(t)
	for i := range t.GPUs {
		g := &t.GPUs[i]
		if g.Model != "" || g.BDF == nil {
			continue
		}
		if d := index.PCIDevice(topo.PCIID(*g.BDF)); d != nil && d.DeviceName != "" {
			g.Model = d.DeviceName
			g.Facts.Set("model", topo.SourceGHW, "pci.ids")
		}
	}
}

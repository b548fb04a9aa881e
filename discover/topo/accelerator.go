package topo

import "slices"

// Accelerator says whether a function is a GPU or another accelerator, by
// class and vendor: display controllers that compute, 3D controllers,
// processing accelerators (MI300, Gaudi), co-processors (vector engines).
// Source: PCI Code and ID Assignment Specification.
func (d *PCIDevice) Accelerator() bool {
	if len(d.Class) != len("0x030000") || noAccelerator(d.Vendor) {
		return false
	}
	switch d.Class[:6] {
	case "0x0300", "0x0302", "0x0380":
		integrated := d.Vendor == vendorIntel && d.onCPUDie() && d.BDF.Device == 2
		return !integrated && !(d.Vendor == vendorAMD && serverVGA(d.Device))
	case "0x1200":
		return !(d.Vendor == vendorIntel && d.onCPUDie()) // an NPU
	case "0x0b40":
		return d.Vendor != vendorIntel || xeonPhi(d.Device) // Intel's others are QuickAssist
	}
	return false
}

const (
	vendorAMD   HexID = "0x1002"
	vendorIntel HexID = "0x8086"
)

// noAccelerator knows vendors whose display or accelerator functions do not
// compute: management controllers, virtual displays, FPGA boards.
func noAccelerator(vendor HexID) bool {
	switch vendor {
	case "", "0x1a03", "0x102b", "0x19e5", "0x18ca", "0x126f", "0x1106", "0x1039": // ASPEED, Matrox, iBMC, XGI, SM, VIA, SiS
		return true
	case "0x1234", "0x1b36", "0x1af4", "0x15ad", "0x1414", "0x1013", "0x80ee", "0x1ab8", "0x1d0f", "0x5853": // of hypervisors
		return true
	case "0x10ee": // Xilinx
		return true
	}
	return false
}

// onCPUDie says whether an Intel function is part of the processor: those sit
// on bus 0.
func (d *PCIDevice) onCPUDie() bool { return d.BDF.Domain == 0 && d.BDF.Bus == 0 }

// serverVGA knows the ATI chips that servers carry for their console.
func serverVGA(device HexID) bool {
	return slices.Contains([]HexID{"0x515e", "0x5969", "0x4752", "0x5159"}, device)
}

func xeonPhi(device HexID) bool { return device >= "0x2250" && device <= "0x226f" }

// coherent says whether a GPU's memory is coherent with a CPU over NVLink-C2C: Grace Hopper, Grace
// Blackwell and GB10. Source: the PCI ID database.
func (d *PCIDevice) coherent() bool {
	return d.Vendor == "0x10de" && slices.Contains([]HexID{"0x2342", "0x2348", "0x2941", "0x31c2", "0x2e12"}, d.Device)
}

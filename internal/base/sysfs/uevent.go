package sysfs

import (
	"bytes"
	"path"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// plain says whether a function's class is none of those that topologies are
// about: half of a server's functions are memory controllers, performance
// counters and the like. Of them the numbers and the driver are read from one
// file, uevent. The others (bridges, storage, network, InfiniBand, displays, accelerators,
// NVSwitches, and what has no class) are read file by file, so that a warning
// can name the file that is wrong.
// Source: PCI Code and ID Assignment Specification.
func plain(class topo.HexID) bool {
	if len(class) != len("0x060400") {
		return false
	}
	switch class[2:4] {
	case "00", "01", "02", "03", "12", "ff":
		return false
	}
	switch class[2:6] {
	case "0604", "0680", "0b40", "0c06":
		return false
	}
	return true
}

// onRootBus says whether a function's directory is below a root bus and no
// port. A link always has a port above it, so a part of the root complex that
// is none itself has no link.
func onRootBus(dir string) bool {
	_, ok := rootBus(path.Base(path.Dir(dir)))
	return ok
}

// ids reads the numbers and the driver of a function whose class is known: of
// a plain one from its uevent file, of others, and where uevent makes no sense
// or is another device's, from a file each. It says which file that was.
// Source: pci_uevent in drivers/pci/pci-driver.c.
func (f files) ids(d *topo.PCIDevice) (uevent bool) {
	if plain(d.Class) {
		data, err := f.r.tree.ReadFile(f.dir + "/uevent")
		if err == nil && len(data) <= maxAttr && parseUevent(data, d) {
			return true
		}
	}
	d.Vendor = f.hex("vendor", 4, required)
	d.Device = f.hex("device", 4, required)
	d.SubVendor = f.hex("subsystem_vendor", 4, optional)
	d.SubDevice = f.hex("subsystem_device", 4, optional)
	d.Driver = f.link("driver")
	return false
}

// parseUevent takes a function's numbers and driver from the lines
//
//	DRIVER=skx_uncore
//	PCI_CLASS=88000
//	PCI_ID=8086:09A2
//	PCI_SUBSYS_ID=8086:0000
//	PCI_SLOT_NAME=0000:00:00.1
//
// It is false, and d as it was, where a line but DRIVER is missing, or class or
// address are not the function's.
func parseUevent(data []byte, d *topo.PCIDevice) bool {
	var id, sub [2]topo.HexID
	var driver string
	var class, slot bool
	for line := range bytes.Lines(data) {
		key, v, _ := strings.Cut(string(bytes.TrimSpace(line)), "=")
		switch key {
		case "DRIVER":
			driver = v
		case "PCI_CLASS":
			c, err := topo.ParseHexID(v, 6)
			class = err == nil && c == d.Class
		case "PCI_ID":
			id = idPair(v)
		case "PCI_SUBSYS_ID":
			sub = idPair(v)
		case "PCI_SLOT_NAME":
			slot = v == d.BDF.String()
		}
	}
	if !class || !slot || id[1] == "" || sub[1] == "" || driver != "" && !validName(driver) {
		return false
	}
	d.Vendor, d.Device, d.SubVendor, d.SubDevice, d.Driver = id[0], id[1], sub[0], sub[1], driver
	return true
}

// idPair reads "8086:09A2"; what is none gives two empty texts.
func idPair(s string) [2]topo.HexID {
	a, b, ok := strings.Cut(s, ":")
	if !ok || len(a) != 4 || len(b) != 4 {
		return [2]topo.HexID{}
	}
	first, err1 := parseHex("0x"+strings.ToLower(a), 4)
	second, err2 := parseHex("0x"+strings.ToLower(b), 4)
	if err1 != nil || err2 != nil {
		return [2]topo.HexID{}
	}
	return [2]topo.HexID{first, second}
}

package sysfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

const pciDevices = "sys/bus/pci/devices"

// pciState is what reading the PCI tree leaves for later steps.
type pciState struct {
	index     map[topo.BDF]int     // places in Topology.PCIDevices
	linkFiles []linkState          // beside Topology.PCIDevices: the link files that are there
	bridges   map[topo.BDF]int     // places in Topology.HostBridges, by domain and root bus
	below     map[topo.BDF]topo.ID // the bridge that leads to a bus; made when first needed
	iommu     map[int]string       // group types
}

// functionAt is the function at an address, nil if there is no function.
func (r *reader) functionAt(bdf *topo.BDF) *topo.PCIDevice {
	if bdf == nil {
		return nil
	}
	if i, ok := r.pci.index[*bdf]; ok {
		return &r.t.PCIDevices[i]
	}
	return nil
}

// functionFiles are the attributes of a function that has been read already.
func (r *reader) functionFiles(d *topo.PCIDevice) files {
	return files{r: r, dir: strings.TrimPrefix(d.Evidence, "/"), show: pciDevices + "/" + d.BDF.String(), subject: d.ID, facts: &d.Facts}
}

// readPCI reads every function of /sys/bus/pci/devices, and the host bridges.
func (r *reader) readPCI() {
	r.pci.index = map[topo.BDF]int{}
	r.pci.bridges = map[topo.BDF]int{}
	r.pci.iommu = map[int]string{}
	r.readRoots()

	type found struct {
		bdf topo.BDF
		files
	}
	var all []found
	for _, e := range r.list(pciDevices) {
		bdf, ok := elementBDF(e.Name())
		if !ok {
			r.warn(topo.CodeMalformed, "", pciDevices+"/"+e.Name(), "not a PCI address")
			continue
		}
		f := files{r: r, show: pciDevices + "/" + e.Name(), subject: topo.PCIID(bdf)}
		f.dir = r.functionDir(f, e)
		all = append(all, found{bdf, f})
	}
	if len(all) == 0 && len(r.t.HostBridges) > 0 {
		r.warn(topo.CodeMissing, "", pciDevices, "lists no function, though there are root buses")
	}
	slices.SortFunc(all, func(a, b found) int { return a.bdf.Compare(b.bdf) })
	all = slices.CompactFunc(all, func(a, b found) bool { return a.bdf == b.bdf })
	r.t.PCIDevices = make([]topo.PCIDevice, len(all))
	r.pci.linkFiles = make([]linkState, len(all))
	for i, f := range all {
		r.pci.index[f.bdf] = i
		r.pci.linkFiles[i] = r.readFunction(&r.t.PCIDevices[i], f.bdf, f.files)
	}
	r.readVirtualFunctions()
	for i := range r.t.PCIDevices {
		r.findParent(&r.t.PCIDevices[i])
	}
	r.breakCycles()
	r.completeLinks()
	r.readATS()
	h := &r.t.Host
	if h.ConfigBytes == nil {
		return
	}
	h.Facts.Set("config_space_bytes", topo.SourceConfig, "/"+pciDevices+"/*/config")
	if *h.ConfigBytes < cfgLegacySize {
		r.noteLack("ACS and PCIe port types: configuration space can be read to 64 bytes only, the rest needs root")
	}
}

// readFunction reads one PCI function, and says which link files it has; the parent is found when all
// are known. An attribute more is a line here and a field of topo.PCIDevice, with a tag: documents
// follow, the schema by go test ./discover/topo -update; what topoctl diff compares is a table of its own.
func (r *reader) readFunction(d *topo.PCIDevice, bdf topo.BDF, f files) (link linkState) {
	d.ID, d.Kind, d.BDF, d.Evidence = f.subject, topo.KindPCI, bdf, "/"+f.dir
	d.Facts = make(topo.Facts, 0, 17)
	f.facts = &d.Facts
	f.fact(true, "parent", "")
	before := len(r.t.Warnings)
	d.Class = f.hex("class", "class", 6, required)
	f.readIDs(d)
	if d.Vendor == "" && d.Class == "" && !r.exists(f.dir) { // one warning says more than one for each file
		r.t.Warnings = r.t.Warnings[:before]
		f.warn(topo.CodeVanished, "", "the device's directory is not there")
		return 0
	}
	d.Revision = f.hex("revision", "revision", 2, optional)
	d.NUMA = r.numaNode(f)
	d.LocalCPUs = r.localCPUs(f, d.NUMA)
	d.IOMMUGroup, d.IOMMUType = r.iommu(f)
	if !plain(d.Class) || !onRootBus(f.dir) {
		d.Link, link = r.readLink(f)
	}
	if isBridge(d) {
		if info := r.readConfig(f, d); info != nil {
			d.Role, d.ACS = info.role, info.acs
			if d.Role != "" {
				d.Facts.Set("role", topo.SourceConfig, "config")
			}
			if d.ACS != nil {
				d.Facts.Set("acs", topo.SourceConfig, "config")
			}
		}
	}
	return link
}

// functionDir is where a function's files are: where the entry's link leads,
// or the entry itself in a copy whose links became directories.
func (r *reader) functionDir(f files, e fs.DirEntry) string {
	if e.Type()&fs.ModeSymlink == 0 {
		return f.show
	}
	target, err := r.tree.ReadLink(f.show)
	if err != nil {
		f.warn(topo.CodeUnreadable, "", reason(err))
		return f.show
	}
	dir := resolve(pciDevices, target)
	if path.Base(dir) != e.Name() {
		f.warn(topo.CodeMalformed, "", fmt.Sprintf("link to %q, which is not this device", clip(target)))
		return f.show
	}
	return dir
}

func isBridge(d *topo.PCIDevice) bool { return strings.HasPrefix(string(d.Class), "0x0604") }

// plain says whether a function's class is not one that topologies are
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

// onRootBus says whether a function's directory is directly below a root bus. A link
// always has a port above it, so a function there that is no port itself has no link.
func onRootBus(dir string) bool {
	_, ok := rootBus(path.Base(path.Dir(dir)))
	return ok
}

// readIDs reads the numbers and the driver of a function whose class is known: of
// a plain one from its uevent file, of others, and where uevent makes no sense
// or is another device's, from a file each.
// Source: pci_uevent in drivers/pci/pci-driver.c.
func (f files) readIDs(d *topo.PCIDevice) {
	if plain(d.Class) {
		data, err := f.r.tree.ReadFile(f.dir + "/uevent")
		if err == nil && len(data) <= maxAttr && parseUevent(data, d) {
			for _, name := range []string{"vendor", "device", "subsystem_vendor", "subsystem_device"} {
				f.fact(true, name, "uevent")
			}
			f.fact(d.Driver != "", "driver", "uevent")
			return
		}
	}
	d.Vendor = f.hex("vendor", "vendor", 4, required)
	d.Device = f.hex("device", "device", 4, required)
	d.SubVendor = f.hex("subsystem_vendor", "subsystem_vendor", 4, optional)
	d.SubDevice = f.hex("subsystem_device", "subsystem_device", 4, optional)
	d.Driver = f.linkAttribute("driver", "driver")
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

// idPair reads "8086:09A2"; any other text gives two empty texts.
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

// hex is attribute for an ID of the given number of hexadecimal digits.
func (f files) hex(name, file string, digits int, n need) topo.HexID {
	return attribute(f, name, file, n, func(s string) (topo.HexID, error) { return parseHex(s, digits) })
}

// parseHex reads "0x15b3" as it is, other spellings by way of topo.ParseHexID.
func parseHex(s string, digits int) (topo.HexID, error) {
	if len(s) == digits+2 && s[0] == '0' && s[1] == 'x' && strings.Trim(s[2:], "0123456789abcdef") == "" {
		return topo.HexID(s), nil
	}
	id, err := topo.ParseHexID(s, digits)
	if err != nil || len(id) != digits+2 {
		return "", fmt.Errorf("%q: want %d hexadecimal digits", clip(s), digits)
	}
	return id, nil
}

// iommu is the function's IOMMU group and that group's type.
func (r *reader) iommu(f files) (*int, string) {
	base := f.link("iommu_group")
	if base == "" {
		return nil, ""
	}
	group, err := parseUint(base, 1<<30)
	if err != nil {
		f.warn(topo.CodeMalformed, "iommu_group", fmt.Sprintf("link to %q: want a group number", clip(base)))
		return nil, ""
	}
	kind, ok := r.pci.iommu[group]
	if !ok {
		dir := "sys/kernel/iommu_groups/" + base
		kind, _ = files{r: r, dir: dir, show: dir, subject: f.subject}.text("type", optional)
		r.pci.iommu[group] = kind
	}
	f.fact(true, "iommu_group", "iommu_group")
	f.fact(kind != "", "iommu_type", "iommu_group/type")
	return &group, kind
}

// readVirtualFunctions asks endpoints for SR-IOV: those with a link, as only
// PCI Express functions have the capability; all of them on kernels that show
// no links.
func (r *reader) readVirtualFunctions() {
	linked := slices.ContainsFunc(r.pci.linkFiles, func(s linkState) bool { return s != 0 })
	for i := range r.t.PCIDevices {
		if d := &r.t.PCIDevices[i]; !isBridge(d) && (r.pci.linkFiles[i] != 0 || !linked) {
			r.readSRIOV(r.functionFiles(d), d)
		}
	}
}

// readATS asks the NICs below switches of their own vendor for ATS: it tells how
// the ports of such a switch have to be set.
func (r *reader) readATS() {
	index := topo.NewIndex(r.t)
	for i := range r.t.PCIDevices {
		d := &r.t.PCIDevices[i]
		up := index.PCIDevice(d.Parent)
		if d.Class.Uint()>>16 != 0x02 || d.Vendor != "0x15b3" || d.PF != "" || up == nil || up.Vendor != d.Vendor {
			continue
		}
		if info := r.readConfig(r.functionFiles(d), d); info != nil && info.ats != "" {
			d.ATS = info.ats
			d.Facts.Set("ats", topo.SourceConfig, "config")
		}
	}
}

// readSRIOV reads what makes a function physical or virtual.
func (r *reader) readSRIOV(f files, d *topo.PCIDevice) {
	if b, ok := elementBDF(f.link("physfn")); ok {
		d.PF = topo.PCIID(b)
		f.fact(true, "pf", "physfn")
		return
	}
	total, ok := value(f, "sriov_totalvfs", optional, parseVFs)
	if !ok {
		return
	}
	d.SRIOV = &topo.SRIOV{TotalVFs: &total}
	f.fact(true, "sriov", "sriov_totalvfs sriov_numvfs")
	active, ok := value(f, "sriov_numvfs", required, parseVFs)
	if !ok {
		return
	}
	d.SRIOV.NumVFs = &active
	for n := range active {
		b, ok := elementBDF(f.link("virtfn" + strconv.Itoa(n)))
		if !ok {
			f.warn(topo.CodeMissing, "virtfn"+strconv.Itoa(n), "no link to this virtual function")
			return
		}
		d.SRIOV.VFs = append(d.SRIOV.VFs, topo.PCIID(b))
	}
}

func parseVFs(s string) (int, error) { return parseCount(s, 1<<16-1) }

// parseCount is parseUint with an error for people.
func parseCount(s string, limit int) (int, error) {
	n, err := parseUint(s, limit)
	if err != nil {
		return 0, fmt.Errorf("%q: want a number from 0 to %d", clip(s), limit)
	}
	return n, nil
}

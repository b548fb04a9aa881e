package sysfs

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

const pciDevices = "sys/bus/pci/devices"

// pciState is what reading the PCI tree leaves for later steps. Its slices run
// beside Topology.PCIDevices.
type pciState struct {
	index   map[topo.BDF]int
	dirs    []string // each function's directory in the tree
	links   []linkState
	known   []bool               // numa_node was read and is not -1
	uevents []bool               // numbers and driver are from uevent
	bridges map[topo.BDF]int     // host bridges by domain and root bus
	roots   []string             // each host bridge's directory, "" where invented
	below   map[topo.BDF]topo.ID // the bridge that leads to a bus; made when first needed
	iommu   map[int]string       // group types
}

// files are the attributes of a function that has been read already.
func (p *pciState) files(d *topo.PCIDevice, r *reader) files {
	return files{r: r, dir: p.dirs[p.index[d.BDF]], show: pciDevices + "/" + d.BDF.String(), subject: d.ID}
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
	for i, f := range all {
		r.pci.index[f.bdf] = i
		r.readFunction(&r.t.PCIDevices[i], f.bdf, f.files)
	}
	r.readVirtualFunctions()
	for i := range r.t.PCIDevices {
		d := &r.t.PCIDevices[i]
		d.Facts = r.pciFacts(d, i)
	}
	for i := range r.t.PCIDevices {
		r.findParent(&r.t.PCIDevices[i])
	}
	r.breakCycles()
	r.completeLinks()
	h := &r.t.Host
	if h.ConfigBytes == nil {
		return
	}
	h.Facts.Set("config_space_bytes", topo.SourceConfig, "/"+pciDevices+"/*/config")
	if *h.ConfigBytes < cfgLegacySize {
		r.lack("ACS and PCIe port types: configuration space can be read to 64 bytes only, the rest needs root")
	}
}

// readFunction reads one PCI function; the parent is found when all are known.
func (r *reader) readFunction(d *topo.PCIDevice, bdf topo.BDF, f files) {
	d.ID, d.Kind, d.BDF, d.Evidence = f.subject, topo.KindPCI, bdf, "/"+f.dir
	r.pci.dirs = append(r.pci.dirs, f.dir)

	before := len(r.t.Warnings)
	d.Class = f.hex("class", 6, required)
	uevent := f.ids(d)
	gone := d.Vendor == "" && d.Class == "" && !r.exists(f.dir)
	if gone { // one warning says more than one for each file
		r.t.Warnings = r.t.Warnings[:before]
		f.warn(topo.CodeVanished, "", "the device's directory is not there")
		r.pci.links = append(r.pci.links, 0)
		r.pci.known = append(r.pci.known, false)
		r.pci.uevents = append(r.pci.uevents, false)
		return
	}
	d.Revision = f.hex("revision", 2, optional)
	d.NUMA = r.numaNode(f)
	d.LocalCPUs = r.localCPUs(f, d.NUMA)
	d.IOMMUGroup, d.IOMMUType = r.iommu(f)
	var state linkState
	if !plain(d.Class) || !onRootBus(f.dir) {
		d.Link, state = r.readLink(f)
	}
	if isBridge(d) {
		if info := r.readConfig(f, d); info != nil {
			d.Role, d.ACS = info.role, info.acs
		}
	}
	r.pci.links = append(r.pci.links, state)
	r.pci.known = append(r.pci.known, d.NUMA != nil)
	r.pci.uevents = append(r.pci.uevents, uevent)
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

// hex reads an ID attribute of the given number of hexadecimal digits.
func (f files) hex(name string, digits int, h how) topo.HexID {
	v, _ := value(f, name, h, func(s string) (topo.HexID, error) { return parseHex(s, digits) })
	return v
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
	return &group, kind
}

// readVirtualFunctions asks endpoints for SR-IOV: those with a link, as only
// PCI Express functions have the capability; all of them on kernels that show
// no links.
func (r *reader) readVirtualFunctions() {
	linked := slices.ContainsFunc(r.pci.links, func(s linkState) bool { return s != 0 })
	for i := range r.t.PCIDevices {
		if d := &r.t.PCIDevices[i]; !isBridge(d) && (r.pci.links[i] != 0 || !linked) {
			r.readSRIOV(r.pci.files(d, r), d)
		}
	}
}

// readSRIOV reads what makes a function physical or virtual.
func (r *reader) readSRIOV(f files, d *topo.PCIDevice) {
	if b, ok := elementBDF(f.link("physfn")); ok {
		d.PF = topo.PCIID(b)
		return
	}
	total := pointer(f, "sriov_totalvfs", optional, parseVFs)
	if total == nil {
		return
	}
	d.SRIOV = &topo.SRIOV{TotalVFs: total, NumVFs: pointer(f, "sriov_numvfs", required, parseVFs)}
	if d.SRIOV.NumVFs == nil {
		return
	}
	for n := range *d.SRIOV.NumVFs {
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

// pciFacts names the file of each attribute that was read, ordered by name.
func (r *reader) pciFacts(d *topo.PCIDevice, i int) topo.Facts {
	from := [...]string{"vendor", "device", "subsystem_vendor", "subsystem_device", "driver"}
	if r.pci.uevents[i] {
		from = [...]string{"uevent", "uevent", "uevent", "uevent", "uevent"}
	}
	cpus := fact("local_cpus", "local_cpulist")
	if r.nodeCPUs(d.NUMA) != nil {
		cpus.Source, cpus.Where = topo.SourceDerived, "numa_node"
	}
	facts := make(topo.Facts, 0, 17)
	add := func(set bool, name string, source topo.Source, where string) {
		if set {
			facts = append(facts, topo.Fact{Name: name, Source: source, Where: where})
		}
	}
	add(d.ACS != nil, "acs", topo.SourceConfig, "config")
	add(d.Class != "", "class", topo.SourceSysfs, "class")
	add(d.Device != "", "device", topo.SourceSysfs, from[1])
	add(d.Driver != "", "driver", topo.SourceSysfs, from[4])
	add(d.IOMMUGroup != nil, "iommu_group", topo.SourceSysfs, "iommu_group")
	add(d.IOMMUType != "", "iommu_type", topo.SourceSysfs, "iommu_group/type")
	add(r.pci.links[i] != 0, "link", topo.SourceSysfs, linkWhere)
	add(d.LocalCPUs != "", cpus.Name, cpus.Source, cpus.Where)
	add(d.NUMA != nil, "numa_node", topo.SourceSysfs, "numa_node")
	add(true, "parent", topo.SourceSysfs, "")
	add(d.PF != "", "pf", topo.SourceSysfs, "physfn")
	add(d.Revision != "", "revision", topo.SourceSysfs, "revision")
	add(d.Role != "", "role", topo.SourceConfig, "config")
	add(d.SRIOV != nil, "sriov", topo.SourceSysfs, "sriov_totalvfs sriov_numvfs")
	add(d.SubDevice != "", "subsystem_device", topo.SourceSysfs, from[3])
	add(d.SubVendor != "", "subsystem_vendor", topo.SourceSysfs, from[2])
	add(d.Vendor != "", "vendor", topo.SourceSysfs, from[0])
	return facts
}

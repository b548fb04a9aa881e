package hwlocxml

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
)

// place is where an I/O object hangs.
type place struct {
	numa   *int    // of the nearest object with CPUs: nil where it has several nodes
	bridge topo.ID // the host bridge above, "" if none
	parent topo.ID // the PCI bridge above, "" if none
	pci    int     // index of the PCI function that OS devices belong to, -1 if none
}

// object walks all objects and takes those of I/O.
func (d *decoder) object(e *document.Element, at place) {
	switch kind(e) {
	case "Bridge":
		if strings.HasPrefix(e.Get("bridge_type"), "0-") {
			at = d.hostBridge(e, at)
		} else {
			at = d.function(e, at)
		}
	case "PCIDev":
		at = d.function(e, at)
	case "OSDev":
		d.osDevice(e, at)
	case "Misc":
		return
	default:
		at = place{numa: d.locality(e, at.numa), pci: -1}
	}
	for _, c := range e.All("object") {
		d.object(c, at)
	}
}

// locality is the one NUMA node with CPUs of an object; an object that does not
// say has its parent's.
func (d *decoder) locality(e *document.Element, parent *int) *int {
	if _, ok := e.Attr("nodeset"); !ok {
		if kind(e) == "Machine" && len(d.cpuNodes) == 1 {
			for n := range d.cpuNodes {
				return &n
			}
		}
		return parent
	}
	var one *int
	for n := range d.set(e, "nodeset").All() {
		if !d.cpuNodes[n] {
			continue
		}
		if one != nil {
			return nil
		}
		one = &n
	}
	return one
}

// busRange reads the domain and the first bus of "0000:[46-54]".
func busRange(text string) (domain uint32, bus uint8, ok bool) {
	dom, buses, found := strings.Cut(text, ":[")
	first, _, _ := strings.Cut(buses, "-")
	v, err1 := strconv.ParseUint(dom, 16, 32)
	b, err2 := strconv.ParseUint(first, 16, 8)
	return uint32(v), uint8(b), found && err1 == nil && err2 == nil
}

func (d *decoder) hostBridge(e *document.Element, at place) place {
	domain, bus, ok := busRange(e.Get("bridge_pci"))
	hb := topo.HostBridge{Domain: domain, Bus: bus, NUMA: at.numa}
	name := fmt.Sprintf("%04x:%02x", domain, bus)
	if !ok {
		hb.Synthetic, name = true, "hwloc:"+e.Path()
		d.Warn(topo.CodeMalformed, topo.HostBridgeID(name), fmt.Sprintf("bridge_pci %.40q has no domain and bus", e.Get("bridge_pci")), e.Path())
	}
	at.bridge, at.parent, at.pci = d.addBridge(hb, name, e), "", -1
	return at
}

// addBridge adds a host bridge once.
func (d *decoder) addBridge(hb topo.HostBridge, name string, e *document.Element) topo.ID {
	hb.ID, hb.Evidence = topo.HostBridgeID(name), e.Path()
	if d.bridges[hb.ID] {
		return hb.ID
	}
	d.bridges[hb.ID] = true
	hb.Facts.Set("bus", topo.SourceHwloc, "bridge_pci")
	if hb.NUMA != nil {
		hb.Facts.Set("numa_node", topo.SourceHwloc, "nodeset above")
	} else {
		d.Warn(topo.CodeNUMAUnknown, hb.ID, "hangs from an object with several NUMA nodes", e.Path())
	}
	d.HostBridges = append(d.HostBridges, hb)
	return hb.ID
}

// function adds a PCI function, a bridge or not, and gives the place below it.
func (d *decoder) function(e *document.Element, at place) place {
	bdf, err := topo.ParseBDF(e.Get("pci_busid"))
	if err != nil {
		d.Warn(topo.CodeMalformed, "", fmt.Sprintf("pci_busid %.40q is no PCI address: what is below hangs from the level above", e.Get("pci_busid")), e.Path())
		return at
	}
	id := topo.PCIID(bdf)
	if d.functions[bdf] {
		d.Warn(topo.CodeConflict, id, "a second object with this address: left out", e.Path())
		return place{numa: at.numa, bridge: at.bridge, parent: id, pci: -1}
	}
	d.functions[bdf] = true
	if at.bridge == "" {
		at.bridge = d.lostBridge(bdf, at, e)
	}
	p := topo.PCIDevice{Node: topo.Node{ID: id, Evidence: e.Path()}, BDF: bdf, Parent: cmp.Or(at.parent, at.bridge), NUMA: at.numa,
		VendorName: info(e, "PCIVendor"), DeviceName: info(e, "PCIDevice")}
	p.Facts.Set("bdf", topo.SourceHwloc, "pci_busid")
	if at.numa != nil {
		p.Facts.Set("numa_node", topo.SourceHwloc, "nodeset above")
	}
	d.pciType(&p, e)
	d.link(&p, id, e)
	d.PCIDevices = append(d.PCIDevices, p)
	index := len(d.PCIDevices) - 1
	d.functionNodes(e, index)
	return place{numa: at.numa, bridge: at.bridge, parent: id, pci: index}
}

// lostBridge stands for a host bridge that the file left out: hwloc drops
// bridges that it finds uninteresting. Functions of one bus share it.
func (d *decoder) lostBridge(bdf topo.BDF, at place, e *document.Element) topo.ID {
	name := fmt.Sprintf("%04x:%02x", bdf.Domain, bdf.Bus)
	id := topo.HostBridgeID(name)
	if !d.bridges[id] {
		d.Warn(topo.CodeLossyImport, id, "the file has no bridge above this bus: one is invented", e.Path())
	}
	return d.addBridge(topo.HostBridge{Domain: bdf.Domain, Bus: bdf.Bus, NUMA: at.numa, Synthetic: true}, name, e)
}

// pciType reads "0302 [10de:2330] [10de:16c1] a1": class, vendor and device,
// subsystem, revision; version 3 adds the programming interface.
func (d *decoder) pciType(p *topo.PCIDevice, e *document.Element) {
	text := e.Get("pci_type")
	f := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" []:", r) })
	if len(f) < 5 || len(f[0]) != 4 {
		d.Warn(topo.CodeMalformed, topo.ID("pci:"+e.Get("pci_busid")), fmt.Sprintf("pci_type %.60q: want class, ids and revision", text), e.Path())
		return
	}
	if strings.Trim(strings.Join(f[:5], ""), "0") == "" {
		return // its configuration space could not be read
	}
	progIF := "00"
	if len(f) > 6 && len(f[6]) == 2 {
		progIF = f[6]
	}
	for _, a := range []struct {
		dst    *topo.HexID
		text   string
		digits int
		fact   string
	}{
		{&p.Class, f[0] + progIF, 6, "class"}, {&p.Vendor, f[1], 4, "vendor"}, {&p.Device, f[2], 4, "device"},
		{&p.SubVendor, f[3], 4, "subsystem_vendor"}, {&p.SubDevice, f[4], 4, "subsystem_device"},
	} {
		if v, err := topo.ParseHexID(a.text, a.digits); err == nil && len(v) == a.digits+2 {
			*a.dst = v
			p.Facts.Set(a.fact, topo.SourceHwloc, "pci_type")
		}
	}
	if len(f) > 5 {
		if v, err := topo.ParseHexID(f[5], 2); err == nil && len(v) == 4 {
			p.Revision = v
		}
	}
}

// link reads pci_link_speed, in GB/s of the whole link; 0 is unknown. Speed and
// width are known only where one pair gives that product.
func (d *decoder) link(p *topo.PCIDevice, id topo.ID, e *document.Element) {
	gbs, err := strconv.ParseFloat(e.Get("pci_link_speed"), 64)
	if err != nil || !(gbs > 0 && gbs < 10_000) {
		return
	}
	p.Link = &topo.PCILink{}
	p.Facts.Set("link", topo.SourceHwloc, "pci_link_speed")
	if speed, width, ok := invert(gbs); ok {
		p.Link.SpeedMTs, p.Link.Width = &speed, &width
		return
	}
	p.Link.RawSpeed = fmt.Sprintf("%.6f GB/s", gbs)
	d.raw[id] = topo.Rate(gbs * float64(topo.GBPerSec))
}

// invert finds the only speed and width of a rate in GB/s; ok is false where
// several have it (15.75 is Gen3 x16, Gen4 x8 and Gen5 x4).
func invert(gbs float64) (speedMTs, width int, ok bool) {
	for _, s := range []int{2500, 5000, 8000, 16000, 32000, 64000, 128000} {
		for _, w := range []int{1, 2, 4, 8, 16} {
			if diff := float64(topo.PCIeRate(s, w))/float64(topo.GBPerSec) - gbs; diff > 2e-6 || diff < -2e-6 {
				continue
			}
			if ok {
				return 0, 0, false
			}
			speedMTs, width, ok = s, w, true
		}
	}
	return speedMTs, width, ok
}

// fillRates gives PCIe links the rate that hwloc states where Derive could not
// know one, the lower of both ends; it says whether it changed anything. A GPU's is what runs
// just now, which an idle GPU lowers: it says nothing.
func (d *decoder) fillRates() bool {
	if len(d.raw) == 0 {
		return false
	}
	x := topo.NewIndex(d.Topology)
	changed := false
	for i := range d.Links {
		l := &d.Links[i]
		below := x.PCIDevice(l.B)
		if l.Kind != topo.LinkPCIe || below == nil || below.Implausible || leadsToGPU(x, l) {
			continue
		}
		rate := d.raw[l.B]
		if above := x.PCIDevice(l.A); above != nil && !above.Implausible && (above.Role == topo.RoleRootPort || above.Role == topo.RoleDownstream) {
			if r := d.raw[l.A]; r > 0 && (rate == 0 || r < rate) {
				rate = r
			}
		}
		if rate == 0 || l.BytesPerSec != nil && *l.BytesPerSec <= rate {
			continue
		}
		l.BytesPerSec, l.Basis, l.Note = &rate, topo.BasisRead, "hwloc gives the rate without speed and width"
		changed = true
	}
	return changed
}

// leadsToGPU says whether one of the functions at the lower end of a link is a GPU.
func leadsToGPU(x *topo.Index, l *topo.Link) bool {
	return slices.ContainsFunc(x.Children(l.A), func(f *topo.PCIDevice) bool {
		return x.LinkAbove(f.ID) == l && len(x.On(f.ID).GPUs) > 0
	})
}

package ncclxml

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/internal/gpulink"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/text"
)

// function is a PCI function that elements hang from.
type function struct {
	id  topo.ID
	bdf topo.BDF
}

// pci adds a pci element and all below it. parent is nil directly below the CPU.
//
// As in NCCL, an address that comes again is another function at another place: machines are
// described whose switches all have one address. Only the NICs of one address are one card.
// Source: NCCL 2.30 and RCCL src/graph/topo.cc, ncclTopoAddPci.
func (d *decoder) pci(e *document.Element, c *cpu, parent *function) {
	bdf, err := topo.ParseBDF(e.Get("busid"))
	if err != nil {
		d.Warn(topo.CodeMalformed, "", fmt.Sprintf("busid %.40q is no PCI address: what is below hangs from the level above", e.Get("busid")), e.Path())
		d.below(e, c, parent)
		return
	}
	if first := d.cards[bdf]; first != nil && len(e.All("nic")) > 0 {
		d.Warn(topo.CodeConflict, first.id, "a second NIC with this busid: taken for the first one's", e.Path())
		d.below(e, c, first)
		return
	}
	at := &function{topo.PCIID(bdf), bdf}
	d.pcis[bdf]++
	if n := d.pcis[bdf]; n > 1 {
		at.id = topo.RepeatedPCIID(bdf, n)
		d.Warn(topo.CodeConflict, at.id, fmt.Sprintf("another element with the busid of %s: told apart by their places", topo.PCIID(bdf)), e.Path())
	}
	if len(e.All("nic")) > 0 {
		d.cards[bdf] = at
	}
	p := topo.PCIDevice{Node: topo.Node{ID: at.id, Evidence: e.Path()}, BDF: bdf, Parent: c.bridge, NUMA: c.numa, Role: topo.RoleEndpoint}
	if parent != nil {
		p.Parent = parent.id
	}
	p.Facts.Set("bdf", topo.SourceNCCL, "busid")
	p.Facts.Set("parent", topo.SourceNCCL, "")
	if c.numa != nil {
		p.Facts.Set("numa_node", topo.SourceNCCL, "numaid of the cpu")
	}
	d.hexIDs(&p, e)
	p.Link = d.link(&p, e)
	switch class := p.Class.Uint() >> 8; {
	case len(e.All("pci")) > 0, class == 0x0604:
		p.Role = topo.RoleUpstream
	case len(e.All("gpu")) > 0:
		for _, g := range e.All("gpu") { // one, or one for each part that NCCL uses on its own (mlopart)
			d.gpu(g, &p, c)
		}
	case len(e.All("nic")) > 0:
	case isGPU(&p):
		d.gpu(nil, &p, c)
	case class>>8 == 0x02:
		d.unnamedNIC(e, &p)
	case class == 0x0680 && p.Vendor == gpulink.VendorNVIDIA:
		d.AddNVSwitch(&p, "class")
	case class == 0:
		d.bare++
	}
	d.PCIDevices = append(d.PCIDevices, p)
	for _, link := range e.All("pcilink") {
		d.Warn(topo.CodeLossyImport, at.id, fmt.Sprintf("a link between switches to %.40q is left out: classes follow the tree alone", link.Get("target")), link.Path())
	}
	d.below(e, c, at)
}

// below adds the functions and named NICs below a cpu element, or below a pci element at a function.
func (d *decoder) below(e *document.Element, c *cpu, at *function) {
	for _, child := range e.Children {
		switch child.Name {
		case "pci":
			d.pci(child, c, at)
		case "nic":
			d.nic(child, c, at)
		}
	}
}

// isGPU says whether a function is a GPU. Where the file names no vendor, the
// class alone decides: display controllers (0x03) and processing accelerators
// (0x12, MI300).
func isGPU(p *topo.PCIDevice) bool {
	if p.Vendor != "" {
		return p.Accelerator()
	}
	base := p.Class.Uint() >> 16
	return base == 0x03 || base == 0x12
}

// hexIDs fills class, vendor and the other numbers.
func (d *decoder) hexIDs(p *topo.PCIDevice, e *document.Element) {
	for _, a := range []struct {
		attr, fact string
		digits     int
		dst        *topo.HexID
	}{
		{"class", "class", 6, &p.Class},
		{"vendor", "vendor", 4, &p.Vendor},
		{"device", "device", 4, &p.Device},
		{"subsystem_vendor", "subsystem_vendor", 4, &p.SubVendor},
		{"subsystem_device", "subsystem_device", 4, &p.SubDevice},
	} {
		text := e.Get(a.attr)
		if text == "" {
			continue
		}
		v, err := topo.ParseHexID(text, a.digits)
		if err != nil || len(v) != a.digits+2 {
			d.Warn(topo.CodeMalformed, p.ID, fmt.Sprintf("%s %.40q is no number of %d hexadecimal digits", a.attr, text, a.digits), e.Path())
			continue
		}
		*a.dst = v
		p.Facts.Set(a.fact, topo.SourceNCCL, "")
	}
}

// link reads link_speed and link_width: the maximum that the function and the
// port above both can do. Empty and 0 are unknown.
func (d *decoder) link(p *topo.PCIDevice, e *document.Element) *topo.PCILink {
	var l topo.PCILink
	if word := e.Get("link_speed"); word != "" {
		speed, ok := parseSpeed(word)
		if ok {
			l.MaxSpeedMTs = &speed
		} else {
			l.RawMaxSpeed = text.Clip(word, maxName)
			d.Warn(topo.CodeMalformed, p.ID, fmt.Sprintf("link_speed %.40q is no speed in GT/s", word), e.Path())
		}
	}
	if text := e.Get("link_width"); text != "" {
		width, err := strconv.Atoi(text)
		switch {
		case err != nil || width < 0 || width > 32:
			d.Warn(topo.CodeMalformed, p.ID, fmt.Sprintf("link_width %.40q is no count of lanes", text), e.Path())
		case width > 0:
			l.MaxWidth = &width
		}
	}
	if l == (topo.PCILink{}) {
		return nil
	}
	p.Facts.Set("link", topo.SourceNCCL, "link_speed, link_width")
	return &l
}

// parseSpeed reads "32.0 GT/s PCIe" or "16 GT/s" as mega transfers per second.
func parseSpeed(text string) (int, bool) {
	number, unit, _ := strings.Cut(strings.TrimSpace(text), " ")
	if unit = strings.TrimSpace(strings.TrimSuffix(unit, "PCIe")); unit != "GT/s" {
		return 0, false
	}
	gts, err := strconv.ParseFloat(number, 64)
	if err != nil || !(gts > 0 && gts <= 1024) {
		return 0, false
	}
	return int(gts*1000 + 0.5), true
}

const maxName = 64 // bytes of a name that a file gives

package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

var functionFields = []field[topo.PCIDevice]{
	{attr: "numa_node", get: func(s *side, d *topo.PCIDevice) value { return s.numa(d.NUMA) },
		follows: func(c *comparer, p *pair[topo.PCIDevice]) bool { return c.tells(p.n.ID, "numa_node") }},
	{attr: "local_cpus", get: func(_ *side, d *topo.PCIDevice) value { return word(d.LocalCPUs) },
		follows: func(c *comparer, p *pair[topo.PCIDevice]) bool {
			return c.numaCPUs() || c.tells(p.n.ID, "numa_node") || p.old.NUMA != nil && p.new.NUMA != nil && *p.old.NUMA != *p.new.NUMA ||
				p.old.NUMA == nil || p.new.NUMA == nil
		}},
	{attr: "class", get: func(_ *side, d *topo.PCIDevice) value { return word(string(d.Class)) }},
	{attr: "vendor", get: func(_ *side, d *topo.PCIDevice) value { return word(string(d.Vendor)) }},
	{attr: "device", get: func(_ *side, d *topo.PCIDevice) value { return word(string(d.Device)) }},
	{attr: "subsystem_vendor", get: func(s *side, d *topo.PCIDevice) value { return wordOrNone(string(d.SubVendor), s.reads(d)) }},
	{attr: "subsystem_device", get: func(s *side, d *topo.PCIDevice) value { return wordOrNone(string(d.SubDevice), s.reads(d)) }},
	{attr: "revision", get: func(_ *side, d *topo.PCIDevice) value { return word(string(d.Revision)) }},
	{attr: "pf", get: func(s *side, d *topo.PCIDevice) value {
		v := wordOrNone(d.PF.Name(), !s.imported)
		v.key = string(s.rename(d.PF))
		return v
	}},
	{attr: "total_vfs", get: func(s *side, d *topo.PCIDevice) value {
		if d.SRIOV == nil {
			return wordOrNone("", s.reads(d))
		}
		return number(d.SRIOV.TotalVFs)
	}},
	{attr: "num_vfs", get: func(s *side, d *topo.PCIDevice) value {
		if d.SRIOV == nil || d.SRIOV.NumVFs == nil {
			return value{}
		}
		return number(d.SRIOV.NumVFs)
	}},
	{attr: "driver", get: func(s *side, d *topo.PCIDevice) value { return wordOrNone(d.Driver, s.reads(d)) }},
	{attr: "iommu_type", get: func(s *side, d *topo.PCIDevice) value { return wordOrNone(d.IOMMUType, s.reads(d)) }},
	{attr: "acs", get: func(s *side, d *topo.PCIDevice) value { return s.acs(d) }},
}

// reads says whether a side tells all that there is of a function, so that what
// is absent is not there.
func (s *side) reads(d *topo.PCIDevice) bool {
	if s.imported {
		return false
	}
	for _, w := range s.warned[d.ID] {
		if w.Partial() {
			return false
		}
	}
	return true
}

// readsFunction is reads for the function of a device.
func (s *side) readsFunction(pci topo.ID) bool { return s.pci[pci] != nil && s.reads(s.pci[pci]) }

// numa is a NUMA node. On a host whose kernel states none for some devices an
// absent one says just that.
func (s *side) numa(p *int) value {
	if p == nil && s.noNUMA {
		return value{known: true, key: "-1", text: "none (-1)"}
	}
	return number(p)
}

// acs is what a port redirects. Ports without the capability and ports whose
// configuration space was not read far enough look alike, but for the length
// that the host's shortest reading had.
func (s *side) acs(d *topo.PCIDevice) value {
	const acsBegins = 256 // an extended capability
	switch {
	case d.ACS == nil && s.t.Host.ConfigBytes != nil && *s.t.Host.ConfigBytes > acsBegins:
		return none()
	case d.ACS == nil:
		return value{}
	}
	var on []string
	for _, b := range []struct {
		name string
		set  bool
	}{{"request redirect", d.ACS.RequestRedirect}, {"completion redirect", d.ACS.CompletionRedir}, {"upstream forwarding", d.ACS.UpstreamForward}} {
		if b.set {
			on = append(on, b.name)
		}
	}
	text := "no redirect"
	if len(on) > 0 {
		text = strings.Join(on, ", ")
	}
	return value{known: true, key: string(d.ACS.Control) + text, text: fmt.Sprintf("%s (%s)", text, d.ACS.Control), data: string(d.ACS.Control)}
}

// functions compares PCI functions. A function is called by what stands for it
// on both sides.
func (c *comparer) functions() {
	for i := range c.old.t.PCIDevices {
		o := &c.old.t.PCIDevices[i]
		m := c.m.to[o.ID]
		if m == nil {
			continue
		}
		n := c.new.pci[m.New]
		face := c.face(o, n)
		list := functionFields
		if m.Replaced { // that it is another one is told already
			list = placeFields
		}
		if silent := c.vanished(o, n); silent != nil {
			node := c.node(face.kind, face.o, face.n, m, face.name, "")
			c.omitFor("presence", node, silent, silent.silence(face.of(silent), nil, ""))
			continue
		}
		fields(c, pair[topo.PCIDevice]{face.kind, o, n, face.o, face.n, m, face.name}, list)
		for _, f := range list {
			// Also by the function's own name.
			c.told[[2]string{string(n.ID), f.attr}] = c.tells(face.n.ID, f.attr)
			c.unsaid[[2]string{string(n.ID), f.attr}] = c.unsaid[[2]string{string(face.n.ID), f.attr}]
		}
	}
	c.bridges()
}

// vanished gives the side on which a function went away while it was read, so
// that hardly anything is known of it; nil if that is neither or both.
func (c *comparer) vanished(o, n *topo.PCIDevice) *side {
	gone := func(w *topo.Warning) bool { return w.Code == topo.CodeVanished }
	older, newer := slices.ContainsFunc(c.old.warned[o.ID], gone), slices.ContainsFunc(c.new.warned[n.ID], gone)
	switch {
	case older == newer:
		return nil
	case older:
		return c.old
	}
	return c.new
}

// of is the face on one side.
func (f *faces) of(s *side) *topo.Node {
	if s.word == "old" {
		return f.o
	}
	return f.n
}

// placeFields are those attributes of a function that belong to its slot.
var placeFields = functionFields[:1]

// faces is what stands for a function on both sides.
type faces struct {
	kind topo.Kind
	name string
	o, n *topo.Node
}

// face finds what stands for a function on both sides: a device of the same
// kind, the switch, or the function itself.
func (c *comparer) face(o, n *topo.PCIDevice) faces {
	for _, kind := range deviceKinds {
		x, ok1 := c.old.deviceOf(o.ID, kind)
		if y, ok2 := c.new.deviceOf(n.ID, kind); ok1 && ok2 {
			return faceOf(x, y, o, n)
		}
	}
	if c.old.switches[o.ID] != nil && c.new.switches[n.ID] != nil && len(c.old.devices[o.ID])+len(c.new.devices[n.ID]) == 0 {
		return faceOf(c.old.face(o), c.new.face(n), o, n)
	}
	return faceOf(c.old.plain(o), c.new.plain(n), o, n)
}

// faceOf names a function by two devices; the function's own facts are kept,
// because its attributes were read there.
func faceOf(x, y device, o, n *topo.PCIDevice) faces {
	a, b := o.Node, n.Node
	a.ID, b.ID = x.id, y.id
	return faces{y.kind, y.name, &a, &b}
}

// bridges compares the NUMA nodes of root buses where no function below tells.
func (c *comparer) bridges() {
	below := map[topo.ID]bool{}
	for i := range c.new.t.PCIDevices {
		d := &c.new.t.PCIDevices[i]
		if m := c.m.from[d.ID]; m != nil && c.tells(d.ID, "numa_node") {
			was, _ := c.old.steps(c.old.pci[m.Old])
			is, _ := c.new.steps(d)
			below[is], below[c.old.rename(was)] = true, true
		}
	}
	synthetic := func(s *side, h *topo.HostBridge) value {
		if h.Synthetic {
			return value{}
		}
		return s.numa(h.NUMA)
	}
	each(c, topo.KindHostBridge, c.old.t.HostBridges, c.new.t.HostBridges,
		func(h *topo.HostBridge) (*topo.Node, string) { return &h.Node, "root bus " + h.ID.Name() },
		[]field[topo.HostBridge]{{attr: "numa_node", get: synthetic,
			follows: func(_ *comparer, p *pair[topo.HostBridge]) bool {
				return below[p.n.ID] || p.old.Synthetic || p.new.Synthetic
			}}})
}

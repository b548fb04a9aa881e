package diff

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// side is one topology with what the comparison looks up in it.
type side struct {
	t        *topo.Topology
	word     string // "old" or "new"
	imported bool   // of another tool's file, which leaves much out
	// rename gives for a node's ID one that is the same on both sides if the node
	// is: the new side's.
	rename func(topo.ID) topo.ID

	nodes    map[topo.ID]bool    // devices and functions
	function map[topo.ID]topo.ID // of devices and switches
	pci      map[topo.ID]*topo.PCIDevice
	switches map[topo.ID]*topo.Switch // by upstream port
	devices  map[topo.ID][]device     // by PCI function, in the order of importance
	all      []device                 // the most important kind first, each in its order
	netdevs  map[string]*topo.Netdev
	warned   map[topo.ID][]*topo.Warning
	links    map[topo.ID]*topo.Link // PCIe links, by the function below
	gpuLinks map[topo.ID]bool       // functions below whose link is a GPU
	// noNUMA says that the kernel states no NUMA node for some devices (-1),
	// so that an absent one means just that.
	noNUMA bool
}

// device is a node that stands for a PCI function: what people call it by.
type device struct {
	kind   topo.Kind
	id     topo.ID
	name   string
	node   *topo.Node
	pci    topo.ID
	bdf    *topo.BDF
	model  string // what the node itself says that it is
	unique string // what it is, "" where that is not known
	why    string // "UUID": what unique is
}

func newSide(t *topo.Topology, word string) *side {
	s := &side{t: t, word: word, imported: strings.HasPrefix(t.Origin, "import:"), rename: func(id topo.ID) topo.ID { return id },
		nodes: map[topo.ID]bool{}, function: map[topo.ID]topo.ID{}, pci: map[topo.ID]*topo.PCIDevice{}, switches: map[topo.ID]*topo.Switch{}, devices: map[topo.ID][]device{},
		netdevs: map[string]*topo.Netdev{}, warned: map[topo.ID][]*topo.Warning{}, links: map[topo.ID]*topo.Link{}, gpuLinks: map[topo.ID]bool{}}
	for i := range t.PCIDevices {
		s.pci[t.PCIDevices[i].ID] = &t.PCIDevices[i]
		s.nodes[t.PCIDevices[i].ID] = true
	}
	for i := range t.Switches {
		s.switches[t.Switches[i].Upstream] = &t.Switches[i]
		s.function[t.Switches[i].ID] = t.Switches[i].Upstream
	}
	for i := range t.Netdevs {
		s.netdevs[t.Netdevs[i].Name] = &t.Netdevs[i]
	}
	for i := range t.Warnings {
		w := &t.Warnings[i]
		s.warned[w.Subject] = append(s.warned[w.Subject], w)
		s.noNUMA = s.noNUMA || w.Code == topo.CodeNUMAUnknown
	}
	s.all = s.list()
	for _, d := range s.all {
		s.nodes[d.id], s.function[d.id] = true, d.pci
		if d.pci != "" {
			s.devices[d.pci] = append(s.devices[d.pci], d)
		}
	}
	s.indexLinks()
	return s
}

// indexLinks finds the PCIe link above each function that heads one, and marks
// those that a GPU hangs from.
func (s *side) indexLinks() {
	for i := range s.t.Links {
		if l := &s.t.Links[i]; l.Kind == topo.LinkPCIe {
			s.links[l.B] = l
		}
	}
	below := map[topo.ID]bool{} // ports with a GPU on their bus
	for i := range s.t.GPUs {
		s.gpuLinks[s.t.GPUs[i].PCI] = true
		if d := s.pci[s.t.GPUs[i].PCI]; d != nil {
			below[d.Parent] = true
		}
	}
	for id := range s.links {
		if d := s.pci[id]; d != nil && below[d.Parent] && s.pci[d.Parent] != nil {
			s.gpuLinks[id] = true
		}
	}
}

// list lists the devices, the most important kind first, each in its order.
func (s *side) list() []device {
	var out []device
	t := s.t
	for i := range t.GPUs {
		g := &t.GPUs[i]
		unique, why := gpuIdentity(g)
		out = append(out, device{topo.KindGPU, g.ID, string(g.ID), &g.Node, s.known(g.PCI), g.BDF, cmp.Or(g.Model, g.Vendor), unique, why})
	}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		unique, why := rdmaIdentity(r)
		out = append(out, device{topo.KindRDMA, r.ID, r.Name, &r.Node, s.known(r.PCI), r.BDF, cmp.Or(r.HCAType, r.Driver), unique, why})
	}
	for i := range t.Netdevs {
		n := &t.Netdevs[i]
		unique, why := netdevIdentity(n)
		out = append(out, device{topo.KindNetdev, n.ID, n.Name, &n.Node, s.known(n.PCI), n.BDF, cmp.Or(n.LinkKind, n.Type), unique, why})
	}
	for i := range t.NVMes {
		n := &t.NVMes[i]
		unique, why := nvmeIdentity(n)
		out = append(out, device{topo.KindNVMe, n.ID, n.Name, &n.Node, s.known(n.PCI), n.BDF, n.Model, unique, why})
	}
	for i := range t.NVSwitches {
		n := &t.NVSwitches[i]
		out = append(out, device{topo.KindNVSwitch, n.ID, n.ID.Name(), &n.Node, s.known(n.PCI), n.BDF, "", "", ""})
	}
	return out
}

// known is a function's ID, "" where a document names one that it does not hold.
func (s *side) known(pci topo.ID) topo.ID {
	if s.pci[pci] == nil {
		return ""
	}
	return pci
}

// deviceKinds are the kinds of device that a function can have.
var deviceKinds = []topo.Kind{topo.KindGPU, topo.KindRDMA, topo.KindNetdev, topo.KindNVMe, topo.KindNVSwitch}

// deviceOf gives the function's first device of a kind; ok is false where it has none.
func (s *side) deviceOf(fn topo.ID, kind topo.Kind) (device, bool) {
	for _, d := range s.devices[fn] {
		if d.kind == kind {
			return d, true
		}
	}
	return device{}, false
}

// face is what stands for a function: its first device, the switch whose
// upstream port it is, or the function itself.
func (s *side) face(fn *topo.PCIDevice) device {
	if list := s.devices[fn.ID]; len(list) > 0 {
		return list[0]
	}
	if sw := s.switches[fn.ID]; sw != nil {
		return device{kind: topo.KindSwitch, id: sw.ID, name: "switch " + fn.BDF.String(), node: &fn.Node, pci: fn.ID, bdf: &fn.BDF}
	}
	return s.plain(fn)
}

// plain is a function as itself.
func (s *side) plain(fn *topo.PCIDevice) device {
	return device{kind: topo.KindPCI, id: fn.ID, name: fn.BDF.String(), node: &fn.Node, pci: fn.ID, bdf: &fn.BDF}
}

// modelOf says in words what a function is, "" where that is not known.
func (s *side) modelOf(fn *topo.PCIDevice) string {
	if fn == nil {
		return ""
	}
	name := strings.TrimSpace(fn.VendorName + " " + fn.DeviceName)
	if fn.DeviceName != "" || fn.Vendor == "" && fn.Device == "" {
		return name
	}
	id := strings.TrimPrefix(string(fn.Vendor), "0x") + ":" + strings.TrimPrefix(string(fn.Device), "0x")
	return strings.TrimSpace(name + " " + id)
}

// steps is a function's way down from its host bridge: the device and function
// numbers, which do not change when bus numbers do. bridge is the host bridge,
// "" for an orphan.
func (s *side) steps(fn *topo.PCIDevice) (bridge topo.ID, way string) {
	var parts []string
	for range maxDepth {
		parts = append(parts, strconv.Itoa(int(fn.BDF.Device))+"."+strconv.Itoa(int(fn.BDF.Func)))
		up := s.pci[fn.Parent]
		if up == nil {
			bridge = fn.Parent
			break
		}
		fn = up
	}
	slices.Reverse(parts)
	return bridge, strings.Join(parts, "/")
}

// maxDepth bounds climbs of the PCI tree: a hostile document could hold a cycle.
const maxDepth = 64

// byAddress orders functions by address.
func byAddress(a, b *topo.PCIDevice) int {
	return cmp.Or(a.BDF.Compare(b.BDF), topo.NaturalCompare(string(a.ID), string(b.ID)))
}

// evidence is where a node's attribute was read.
func evidence(n *topo.Node, attr string) string {
	f, ok := n.Facts.Get(attr)
	where, _, _ := strings.Cut(f.Where, " ") // the first of several files
	switch {
	case !ok || where == "" || f.Source == topo.SourceDerived || strings.ContainsAny(where, "{*"):
		return n.Evidence
	case strings.HasPrefix(where, "/"):
		return where
	case f.Source == topo.SourceNVML || f.Source == topo.SourceNetlink || f.Source == topo.SourceGHW || f.Source == topo.SourceRDMAMap:
		return string(f.Source) + " " + where
	case n.Evidence == "":
		return where
	}
	return strings.TrimSuffix(n.Evidence, "/") + "/" + where
}

package diff

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// side is one topology as the comparison sees it: its nodes, all in one form.
type side struct {
	t        *topo.Topology
	index    *topo.Index
	word     string // "old" or "new"
	imported bool   // another tool's file, which leaves much out

	nodes     map[topo.ID]*node
	host      *node
	devices   []*node // the most important kind first, each in its order
	functions []*node // by address
	bridges   []*node
	numa      []*node
	packages  []*node
	ports     []*node

	warned map[topo.ID][]*topo.Warning
	// statesNoNUMA says that the kernel states for some devices that they belong to no
	// NUMA node (-1), so that an absent one means just that.
	statesNoNUMA bool
}

// node is a node of any kind.
type node struct {
	*topo.Node
	side    *side
	kind    topo.Kind
	name    string         // what people call it
	value   any            // *topo.GPU, ...
	encoded map[string]any // the value as a document writes it

	function *node   // the PCI function that it stands on, itself for a function
	devices  []*node // of a function, the most important kind first
	address  *topo.BDF
	model    string // what the device itself says that it is
	unique   string // what identifies the device, "" where that is not known
	why      string // what unique is: "UUID"

	match *Match
	other *node // the same node on the other side
}

// deviceKinds are the kinds of device that a function can have, by importance.
var deviceKinds = []topo.Kind{topo.KindGPU, topo.KindRDMA, topo.KindNetdev, topo.KindNVMe, topo.KindNVSwitch}

func newSide(t *topo.Topology, word string) *side {
	s := &side{t: t, index: topo.NewIndex(t), word: word, imported: strings.HasPrefix(t.Origin, "import:"),
		nodes: map[topo.ID]*node{}, warned: map[topo.ID][]*topo.Warning{}}
	for i := range t.Warnings {
		w := &t.Warnings[i]
		s.warned[w.Subject] = append(s.warned[w.Subject], w)
		s.statesNoNUMA = s.statesNoNUMA || w.Code == topo.CodeNUMAUnknown
	}
	s.host = s.add(nil, node{kind: KindHost, name: string(KindHost), value: &t.Host, Node: &topo.Node{ID: topo.ID(KindHost), Facts: t.Host.Facts}})
	for i := range t.NUMANodes {
		n := &t.NUMANodes[i]
		s.add(&s.numa, node{kind: topo.KindNUMA, name: string(n.ID), value: n, Node: &n.Node})
	}
	for i := range t.Packages {
		p := &t.Packages[i]
		s.add(&s.packages, node{kind: topo.KindPackage, name: string(p.ID), value: p, Node: &p.Node})
	}
	for i := range t.HostBridges {
		h := &t.HostBridges[i]
		s.add(&s.bridges, node{kind: topo.KindHostBridge, name: "root bus " + h.ID.Name(), value: h, Node: &h.Node})
	}
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		n := s.add(&s.functions, node{kind: topo.KindPCI, name: d.BDF.String(), value: d, address: &d.BDF, Node: &d.Node})
		n.function = n
	}
	slices.SortFunc(s.functions, func(a, b *node) int {
		return cmp.Or(a.address.Compare(*b.address), topo.NaturalCompare(string(a.ID), string(b.ID)))
	})
	s.addDevices()
	count := map[topo.ID]int{}
	for i := range t.Ports {
		count[t.Ports[i].RDMA]++
	}
	for i := range t.Ports {
		p := &t.Ports[i]
		name := p.RDMA.Name()
		if count[p.RDMA] > 1 {
			name += "/" + strconv.Itoa(p.Number)
		}
		s.add(&s.ports, node{kind: topo.KindPort, name: name, value: p, Node: &p.Node})
	}
	return s
}

func (s *side) addDevices() {
	t := s.t
	for i := range t.GPUs {
		g := &t.GPUs[i]
		n := node{kind: topo.KindGPU, name: string(g.ID), value: g, address: g.BDF, model: cmp.Or(g.Model, g.Vendor), Node: &g.Node}
		n.unique, n.why = gpuIdentity(g)
		s.addDevice(n, g.PCI)
	}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		n := node{kind: topo.KindRDMA, name: r.Name, value: r, address: r.BDF, model: cmp.Or(r.HCAType, r.Driver), Node: &r.Node}
		n.unique, n.why = rdmaIdentity(r)
		s.addDevice(n, r.PCI)
	}
	for i := range t.Netdevs {
		d := &t.Netdevs[i]
		n := node{kind: topo.KindNetdev, name: d.Name, value: d, address: d.BDF, model: cmp.Or(d.LinkKind, d.Type), Node: &d.Node}
		n.unique, n.why = netdevIdentity(d)
		s.addDevice(n, d.PCI)
	}
	for i := range t.NVMes {
		d := &t.NVMes[i]
		n := node{kind: topo.KindNVMe, name: d.Name, value: d, address: d.BDF, model: d.Model, Node: &d.Node}
		n.unique, n.why = nvmeIdentity(d)
		s.addDevice(n, d.PCI)
	}
	for i := range t.NVSwitches {
		d := &t.NVSwitches[i]
		s.addDevice(node{kind: topo.KindNVSwitch, name: d.ID.Name(), value: d, address: d.BDF, Node: &d.Node}, d.PCI)
	}
}

func (s *side) add(list *[]*node, n node) *node {
	n.side = s
	s.nodes[n.ID] = &n
	if list != nil {
		*list = append(*list, &n)
	}
	return &n
}

// addDevice adds a device. A document may name a function that it does not hold.
func (s *side) addDevice(n node, function topo.ID) {
	added := s.add(&s.devices, n)
	if fn := s.nodes[function]; fn != nil && fn.kind == topo.KindPCI {
		added.function = fn
		fn.devices = append(fn.devices, added)
	}
}

// attribute is what a document says of a node at a path of keys: "bond.mode"; nil where
// it says nothing.
func (n *node) attribute(path string) any {
	if n.encoded == nil {
		data, err := json.Marshal(n.value)
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		if err != nil || d.Decode(&n.encoded) != nil {
			n.encoded = map[string]any{} // no document holds what cannot be written
		}
	}
	var x any = n.encoded
	for key := range strings.SplitSeq(path, ".") {
		object, _ := x.(map[string]any)
		x = object[key]
	}
	if x == "" {
		return nil
	}
	return x
}

// words are an attribute that is a list of words.
func (n *node) words(path string) []string {
	list, _ := n.attribute(path).([]any)
	out := make([]string, len(list))
	for i, x := range list {
		out[i], _ = x.(string)
	}
	return out
}

// pci is the function that a node is or stands on; nil where that is not known.
func (n *node) pci() *topo.PCIDevice {
	if n.function == nil {
		return nil
	}
	d, _ := n.function.value.(*topo.PCIDevice)
	return d
}

// device is a function's first device of a kind, nil where it has none.
func (n *node) device(kind topo.Kind) *node {
	for _, d := range n.devices {
		if d.kind == kind {
			return d
		}
	}
	return nil
}

// upstreamOf is the switch whose upstream port a function is, nil where it is none.
func (n *node) upstreamOf() *topo.Switch {
	if sw := n.side.index.SwitchOf(n.ID); sw != nil && sw.Upstream == n.ID {
		return sw
	}
	return nil
}

// parent is the function or host bridge above a function.
func (n *node) parent() *node { return n.side.nodes[n.pci().Parent] }

// way is a function's way down from its host bridge: the device and function numbers,
// which do not change when bus numbers do. bridge is the host bridge, "" for an orphan.
func (n *node) way() (bridge topo.ID, way string) {
	var steps []string
	for d := range n.side.index.Climb(n.ID) {
		steps = append(steps, strconv.Itoa(int(d.BDF.Device))+"."+strconv.Itoa(int(d.BDF.Func)))
		bridge = d.Parent
	}
	if n.side.index.PCIDevice(bridge) != nil {
		bridge = "" // too deep: a circle
	}
	slices.Reverse(steps)
	return bridge, strings.Join(steps, "/")
}

// rename gives for a node's ID one that is the same on both sides if the node is: the
// new side's. Of a node that only this side has it is a name that the other side does not
// use; what is no node keeps its name.
func (s *side) rename(id topo.ID) topo.ID {
	n := s.nodes[id]
	switch {
	case n == nil:
		return id
	case n.match != nil:
		return n.match.New
	}
	return topo.ID(s.word) + " " + id
}

// makeOf says in words what a device is: of GPUs and drives what they say themselves,
// of others the name of the PCI function.
func (n *node) makeOf() string {
	function := ""
	if d := n.pci(); d != nil {
		function = strings.TrimSpace(d.VendorName + " " + d.DeviceName)
		if d.DeviceName == "" && d.Vendor+d.Device != "" {
			function = strings.TrimSpace(function + " " + strings.TrimPrefix(string(d.Vendor), "0x") + ":" + strings.TrimPrefix(string(d.Device), "0x"))
		}
	}
	if n.kind == topo.KindGPU || n.kind == topo.KindNVMe {
		return cmp.Or(n.model, function)
	}
	return cmp.Or(function, n.model)
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

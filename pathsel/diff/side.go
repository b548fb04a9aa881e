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
	links     topo.GPULinks

	warned map[topo.ID][]*topo.Warning
	// statesNoNUMA says that the kernel reports NUMA node -1 for some devices, so that a missing NUMA node means -1.
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
		nodes: map[topo.ID]*node{}, warned: map[topo.ID][]*topo.Warning{}, links: t.GPULinks()}
	for i := range t.Warnings {
		w := &t.Warnings[i]
		s.warned[w.Subject] = append(s.warned[w.Subject], w)
		s.statesNoNUMA = s.statesNoNUMA || w.Code == topo.CodeNUMAUnknown
	}
	s.host = s.add(nil, KindHost, &topo.Node{ID: topo.ID(KindHost), Facts: t.Host.Facts}, &t.Host)
	addAll(s, &s.numa, topo.KindNUMA, t.NUMANodes, func(n *topo.NUMANode) *topo.Node { return &n.Node })
	addAll(s, &s.packages, topo.KindPackage, t.Packages, func(p *topo.Package) *topo.Node { return &p.Node })
	addAll(s, &s.bridges, topo.KindHostBridge, t.HostBridges, func(h *topo.HostBridge) *topo.Node { return &h.Node })
	addAll(s, &s.functions, topo.KindPCI, t.PCIDevices, func(d *topo.PCIDevice) *topo.Node { return &d.Node })
	slices.SortFunc(s.functions, func(a, b *node) int {
		return cmp.Or(a.address.Compare(*b.address), topo.NaturalCompare(string(a.ID), string(b.ID)))
	})
	addAll(s, &s.devices, topo.KindGPU, t.GPUs, func(g *topo.GPU) *topo.Node { return &g.Node })
	addAll(s, &s.devices, topo.KindRDMA, t.RDMADevices, func(r *topo.RDMADevice) *topo.Node { return &r.Node })
	addAll(s, &s.devices, topo.KindNetdev, t.Netdevs, func(n *topo.Netdev) *topo.Node { return &n.Node })
	addAll(s, &s.devices, topo.KindNVMe, t.NVMes, func(n *topo.NVMe) *topo.Node { return &n.Node })
	addAll(s, &s.devices, topo.KindNVSwitch, t.NVSwitches, func(n *topo.NVSwitch) *topo.Node { return &n.Node })
	addAll(s, &s.ports, topo.KindPort, t.Ports, func(p *topo.Port) *topo.Node { return &p.Node })
	return s
}

func addAll[T any](s *side, list *[]*node, kind topo.Kind, values []T, common func(*T) *topo.Node) {
	for i := range values {
		s.add(list, kind, common(&values[i]), &values[i])
	}
}

// add takes in a node. What it stands on was taken in before.
func (s *side) add(list *[]*node, kind topo.Kind, common *topo.Node, value any) *node {
	n := &node{Node: common, side: s, kind: kind, name: string(common.ID), value: value}
	n.unique, n.why = identify(value)
	function := topo.ID("")
	switch v := value.(type) {
	case *topo.HostBridge:
		n.name = "root bus " + v.ID.Name()
	case *topo.PCIDevice:
		n.name, n.address, n.function = v.BDF.String(), &v.BDF, n
	case *topo.GPU:
		n.address, n.model, function = v.BDF, cmp.Or(v.Model, v.Vendor), v.PCI
	case *topo.RDMADevice:
		n.name, n.address, n.model, function = v.Name, v.BDF, cmp.Or(v.HCAType, v.Driver), v.PCI
	case *topo.Netdev:
		n.name, n.address, n.model, function = v.Name, v.BDF, cmp.Or(v.LinkKind, v.Type), v.PCI
	case *topo.NVMe:
		n.name, n.address, n.model, function = v.Name, v.BDF, v.Model, v.PCI
	case *topo.NVSwitch:
		n.name, n.address, function = v.ID.Name(), v.BDF, v.PCI
	case *topo.Port:
		n.name = v.RDMA.Name()
		if len(s.index.Ports(v.RDMA)) > 1 {
			n.name += "/" + strconv.Itoa(v.Number)
		}
	}
	// A document may name a function that it does not hold.
	if fn := s.nodes[function]; fn != nil && fn.kind == topo.KindPCI {
		n.function = fn
		fn.devices = append(fn.devices, n)
	}
	s.nodes[n.ID] = n
	if list != nil {
		*list = append(*list, n)
	}
	return n
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

// rename translates the ID of a node so that the same node has the same ID on both sides: that of the new side. A node
// that only this side has gets a name that the other side does not use. Anything else keeps its name.
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

// makeOf says in words what a device is. GPUs and drives say it themselves; other devices have the name of their PCI
// function.
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
	case !ok || where == "" || f.Source == topo.SourceDerived || f.Source == topo.SourceRemap || strings.ContainsAny(where, "{*"):
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

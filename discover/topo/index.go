package topo

import (
	"iter"
	"slices"
)

// Index finds the nodes of a topology without searching its lists: by ID, and by what they sit on,
// hang from or belong to. It is a snapshot with pointers into the topology's lists, valid until
// somebody adds to them, sorts them or calls Derive. Making one takes a pass over the nodes and
// links. It does not change and may be used by many goroutines.
//
// A look-up returns nil for what the topology does not have. Lists are in the topology's order and
// belong to the Index: callers must not change them. If two nodes have one ID, which happens in no
// document, the first is found.
type Index struct {
	nodes     map[ID]any // pointers to the nodes
	devices   map[ID]*Devices
	children  map[ID][]*PCIDevice
	vfs       map[ID][]*PCIDevice
	first     map[slot]*PCIDevice
	switches  map[ID]*Switch
	cards     map[ID]*NIC
	ports     map[ID][]*Port
	netdevs   map[string]*Netdev
	numaNodes map[int]*NUMANode
	gpus      map[BDF]*GPU
	links     map[LinkID]*Link
	above     map[ID]*Link // PCIe links by the node at the lower end
	axis      map[ID]int
	derived   *Derived
	allLinks  []Link // as Derived.Limit counts them
}

// Devices are the nodes that stand on one PCI function.
type Devices struct {
	GPUs        []*GPU
	RDMADevices []*RDMADevice
	Netdevs     []*Netdev
	NVMes       []*NVMe
	NVSwitches  []*NVSwitch
}

// slot is a place for a card on the bus below a bridge.
type slot struct {
	parent ID
	at     BDF    // of function 0
	repeat string // of another slot at the same address
}

// NewIndex makes the index of a topology as it is now, derived or not.
func NewIndex(t *Topology) *Index {
	x := &Index{
		nodes: make(map[ID]any, len(t.PCIDevices)+len(t.Ports)+len(t.Netdevs)), devices: map[ID]*Devices{},
		children: make(map[ID][]*PCIDevice, len(t.PCIDevices)), vfs: map[ID][]*PCIDevice{}, first: make(map[slot]*PCIDevice, len(t.PCIDevices)),
		switches: map[ID]*Switch{}, cards: map[ID]*NIC{}, ports: map[ID][]*Port{}, netdevs: make(map[string]*Netdev, len(t.Netdevs)),
		numaNodes: map[int]*NUMANode{}, gpus: map[BDF]*GPU{},
		links: make(map[LinkID]*Link, len(t.Links)), above: map[ID]*Link{}, axis: map[ID]int{}, derived: t.Derived, allLinks: t.Links,
	}
	eachNode(x, t.Packages, func(*Package) {})
	eachNode(x, t.NUMANodes, func(n *NUMANode) { addFirst(x.numaNodes, n.Index, n) })
	eachNode(x, t.HostBridges, func(*HostBridge) {})
	eachNode(x, t.PCIDevices, x.addFunction)
	eachNode(x, t.GPUs, func(g *GPU) {
		d := x.devicesOn(g.PCI)
		d.GPUs = append(d.GPUs, g)
		if g.BDF != nil {
			addFirst(x.gpus, *g.BDF, g)
		}
	})
	eachNode(x, t.RDMADevices, func(r *RDMADevice) {
		d := x.devicesOn(r.PCI)
		d.RDMADevices = append(d.RDMADevices, r)
	})
	eachNode(x, t.Ports, func(p *Port) { x.ports[p.RDMA] = append(x.ports[p.RDMA], p) })
	eachNode(x, t.Netdevs, func(n *Netdev) {
		d := x.devicesOn(n.PCI)
		d.Netdevs = append(d.Netdevs, n)
		addFirst(x.netdevs, n.Name, n)
	})
	eachNode(x, t.NVMes, func(n *NVMe) {
		d := x.devicesOn(n.PCI)
		d.NVMes = append(d.NVMes, n)
	})
	eachNode(x, t.NVSwitches, func(n *NVSwitch) {
		d := x.devicesOn(n.PCI)
		d.NVSwitches = append(d.NVSwitches, n)
	})
	eachNode(x, t.Switches, func(s *Switch) {
		addFirst(x.switches, s.Upstream, s)
		for _, port := range s.Downstream {
			addFirst(x.switches, port, s)
		}
	})
	eachNode(x, t.NICs, func(n *NIC) {
		for _, function := range n.Functions {
			addFirst(x.cards, function, n)
		}
	})
	for i := range t.Links {
		l := &t.Links[i]
		x.links[l.ID] = l
		if l.Kind == LinkPCIe {
			x.above[l.B] = l
		}
	}
	if t.Derived != nil {
		for i, id := range t.Derived.Axis {
			x.axis[id] = i
		}
	}
	return x
}

// eachNode enters the nodes of one kind.
func eachNode[T any](x *Index, list []T, enter func(*T)) {
	for i := range list {
		n := &list[i]
		addFirst(x.nodes, any(n).(noder).common().ID, any(n))
		enter(n)
	}
}

func addFirst[K comparable, V any](m map[K]V, key K, v V) {
	if _, ok := m[key]; !ok {
		m[key] = v
	}
}

func (x *Index) addFunction(d *PCIDevice) {
	x.children[d.Parent] = append(x.children[d.Parent], d)
	addFirst(x.first, slotOf(d), d)
	if d.PF != "" && d.PF != d.ID {
		x.vfs[d.PF] = append(x.vfs[d.PF], d)
	}
}

func slotOf(d *PCIDevice) slot {
	s := slot{d.Parent, d.BDF, d.repeat()}
	s.at.Func = 0
	return s
}

func (x *Index) devicesOn(function ID) *Devices {
	d := x.devices[function]
	if d == nil {
		d = &Devices{}
		x.devices[function] = d
	}
	return d
}

// Node returns a pointer to the node with this ID (a *GPU, for example), for a type switch; nil if
// there is none.
func (x *Index) Node(id ID) any { return x.nodes[id] }

// node is the node of an ID if it is of type T.
func node[T any](x *Index, id ID) *T {
	n, _ := x.nodes[id].(*T)
	return n
}

// NUMANode returns the NUMA node with this ID, or nil.
func (x *Index) NUMANode(id ID) *NUMANode { return node[NUMANode](x, id) }

// PCIDevice returns the PCI function with this ID, or nil.
func (x *Index) PCIDevice(id ID) *PCIDevice { return node[PCIDevice](x, id) }

// Switch returns the PCIe switch with this ID, or nil.
func (x *Index) Switch(id ID) *Switch { return node[Switch](x, id) }

// GPU returns the GPU with this ID, or nil.
func (x *Index) GPU(id ID) *GPU { return node[GPU](x, id) }

// RDMADevice returns the RDMA device with this ID, or nil.
func (x *Index) RDMADevice(id ID) *RDMADevice { return node[RDMADevice](x, id) }

// Port returns the port of an RDMA device with this ID, or nil.
func (x *Index) Port(id ID) *Port { return node[Port](x, id) }

// Netdev returns the network interface with this ID, or nil.
func (x *Index) Netdev(id ID) *Netdev { return node[Netdev](x, id) }

// NVMe returns the NVMe controller with this ID, or nil.
func (x *Index) NVMe(id ID) *NVMe { return node[NVMe](x, id) }

// NVSwitch returns the NVSwitch with this ID, or nil.
func (x *Index) NVSwitch(id ID) *NVSwitch { return node[NVSwitch](x, id) }

// GPUAt returns the GPU at a PCI address, or nil.
func (x *Index) GPUAt(at BDF) *GPU { return x.gpus[at] }

// NUMANodeAt returns the NUMA node with this number, or nil.
func (x *Index) NUMANodeAt(index int) *NUMANode { return x.numaNodes[index] }

// NetdevNamed returns the network interface of this name, or nil.
func (x *Index) NetdevNamed(name string) *Netdev { return x.netdevs[name] }

// Ports are the ports of an RDMA device.
func (x *Index) Ports(rdma ID) []*Port { return x.ports[rdma] }

// On returns the devices of a PCI function; those of "" have no function.
func (x *Index) On(function ID) Devices {
	if d := x.devices[function]; d != nil {
		return *d
	}
	return Devices{}
}

// NICOf returns the card that a PCI function is part of, or nil.
func (x *Index) NICOf(function ID) *NIC { return x.cards[function] }

// VFs lists the virtual functions of a physical function.
func (x *Index) VFs(pf ID) []*PCIDevice { return x.vfs[pf] }

// SwitchOf returns the PCIe switch that a function is an upstream or downstream port of, or nil.
func (x *Index) SwitchOf(port ID) *Switch { return x.switches[port] }

// Children are the PCI functions directly below a host bridge or a bridge.
func (x *Index) Children(bridge ID) []*PCIDevice { return x.children[bridge] }

// Below visits every PCI function below a host bridge or a bridge, each before those
// below it and each once.
func (x *Index) Below(bridge ID) iter.Seq[*PCIDevice] {
	return func(yield func(*PCIDevice) bool) {
		seen := map[ID]bool{bridge: true} // parents may form a circle
		var visit func(ID) bool
		visit = func(id ID) bool {
			for _, d := range x.children[id] {
				if seen[d.ID] {
					continue
				}
				seen[d.ID] = true
				if !yield(d) || !visit(d.ID) {
					return false
				}
			}
			return true
		}
		visit(bridge)
	}
}

// Climb visits a PCI function and the bridges above it, nearest first. It ends at a host bridge,
// at a parent that the topology does not have, or at a depth that no real host reaches.
func (x *Index) Climb(function ID) iter.Seq[*PCIDevice] {
	return func(yield func(*PCIDevice) bool) {
		d := x.PCIDevice(function)
		for depth := 0; d != nil && depth < maxDepth && yield(d); depth++ {
			d = x.PCIDevice(d.Parent)
		}
	}
}

// Crossing are the ports of the switch that two functions share, one above each of them; root is true
// where they meet in no switch, and the ports are root ports. ok is false for functions of one port,
// and where the ports are not known.
func (x *Index) Crossing(a, b ID) (ports [2]*PCIDevice, root, ok bool) {
	up, down := slices.Collect(x.Climb(a)), slices.Collect(x.Climb(b))
	i, j := len(up), len(down)
	for i > 0 && j > 0 && up[i-1] == down[j-1] {
		i, j = i-1, j-1
	}
	if i == 0 || j == 0 {
		return ports, false, false // one is above the other
	}
	ports, root = [2]*PCIDevice{up[i-1], down[j-1]}, i == len(up)
	for _, d := range ports {
		if !d.IsBridge() || d.Role == RoleBridge || root && d.Role != RoleRootPort {
			return ports, root, false
		}
	}
	return ports, root, true
}

// Link returns the link with this ID as the topology has it, or nil (Graph.Link applies measured rates).
func (x *Index) Link(id LinkID) *Link { return x.links[id] }

// LinkAbove returns the PCIe link that a function hangs from, which the functions of one bus
// share; nil inside a chip.
func (x *Index) LinkAbove(function ID) *Link {
	d := x.PCIDevice(function)
	if d == nil {
		return nil
	}
	return x.above[x.linkHead(d).ID]
}

// linkHead is the first of the functions that share a function's link: of those that
// hang from one port. On a bus without a port above (root bus, conventional bridge)
// each slot has a link of its own.
func (x *Index) linkHead(d *PCIDevice) *PCIDevice {
	if up := x.PCIDevice(d.Parent); up != nil && (up.Role == RoleRootPort || up.Role == RoleDownstream) {
		return x.children[d.Parent][0]
	}
	return x.first[slotOf(d)]
}

// Place returns the index of a node in Derived.Axis; ok is false if it is not there.
func (x *Index) Place(id ID) (place int, ok bool) {
	place, ok = x.axis[id]
	return place, ok
}

// Relation returns what Derived says about two nodes; ok is false if one of them is not in its Axis.
func (x *Index) Relation(a, b ID) (r Relation, ok bool) {
	i, okI := x.axis[a]
	j, okJ := x.axis[b]
	if !okI || !okJ {
		return Relation{}, false
	}
	r = x.derived.At(i, j)
	if at := x.derived.Limit[i][j]; at != nil {
		r.Limit = x.allLinks[*at].ID
	}
	return r, true
}

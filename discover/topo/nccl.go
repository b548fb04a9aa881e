package topo

// ncclTree is the host as NCCL sees it: each PCIe switch is one node, and
// two-level Broadcom switches are flattened into one.
// Source: NCCL 2.30 src/graph/{topo.cc,xml.cc,paths.cc}.
type ncclTree struct {
	g *Graph
	// above lists, per vertex, the NCCL nodes from the device to the root.
	above [][]int
}

func newNCCLTree(g *Graph) *ncclTree {
	return &ncclTree{g: g, above: make([][]int, len(g.nodes))}
}

// nodesAbove are the switches above a function, nearest first, with flattened
// switches replaced by the one that they belong to.
func (n *ncclTree) nodesAbove(v int) []int {
	if n.above[v] != nil {
		return n.above[v]
	}
	out := []int{}
	for _, u := range n.g.climb(n.g.nodes[v].parent, nil) {
		d := n.g.nodes[u].dev
		if d == nil || d.Role != RoleUpstream && d.Role != RoleBridge {
			continue
		}
		if last := len(out) - 1; last >= 0 && flattened(d, n.g.nodes[out[last]].dev) {
			out[last] = u
			continue
		}
		out = append(out, u)
	}
	n.above[v] = out
	return out
}

// flattened says whether NCCL merges a switch with the one above it: both
// Broadcom of one generation, told by their subsystem numbers.
func flattened(above, below *PCIDevice) bool {
	gen := broadcomGen(above, 0)
	return gen != 0 && gen == broadcomGen(below, 1)
}

// broadcomGen is 4 or 5 for a Broadcom switch of the given level of a
// two-level chip, 0 for anything else. Both levels of the older one carry the
// same numbers. Source: NCCL 2.30 src/graph/topo.cc, getBcmGen.
func broadcomGen(d *PCIDevice, level uint32) int {
	if d.Vendor.Uint() != 0x1000 || d.SubVendor.Uint() != 0x1000 {
		return 0
	}
	switch sub := d.SubDevice.Uint() >> 12; d.Device.Uint() {
	case 0xc010:
		if sub == 0xa {
			return 4
		}
	case 0xc030:
		if sub == level {
			return 5
		}
	}
	return 0
}

// class is NCCL's path type for a pair; "" where NCCL would not know either.
func (n *ncclTree) class(a, b endpoint, r route, class Class) NCCLClass {
	g := n.g
	switch {
	case a.id == b.id:
		return ncclLoc
	case r.direct:
		return ncclOf(class)
	case a.gpu && b.gpu && g.peers.common(a.id, b.id):
		return ncclNVB
	case a.cpu || b.cpu || a.v < 0 || b.v < 0:
		return ncclOf(class)
	}
	if c := n.pciClass(a.v, b.v); c != "" {
		return c
	}
	x, y := n.numa(a), n.numa(b)
	switch {
	case optional(x) != optional(y): // an unknown node is one of its own
		return ncclSYS
	case a.gpu != b.gpu && (g.hasLocalC2C(a) || g.hasLocalC2C(b)):
		return ncclP2C
	}
	return ncclPHB
}

// numa is the NUMA node that NCCL puts a device in: that of the switch nearest
// to the root, if it is below one.
func (n *ncclTree) numa(e endpoint) *int {
	if above := n.nodesAbove(e.v); len(above) > 0 {
		return n.g.nodes[above[len(above)-1]].dev.NUMA
	}
	return e.numa
}

// pciClass is PIX or PXB for functions below a common switch, PIX for those of
// one slot, "" otherwise.
func (n *ncclTree) pciClass(a, b int) NCCLClass {
	x, y := n.nodesAbove(a), n.nodesAbove(b)
	for i, u := range x {
		for j, w := range y {
			if u != w {
				continue
			}
			if i == 0 && j == 0 {
				return ncclPIX
			}
			return ncclPXB
		}
	}
	if x, y := n.g.nodes[a].dev, n.g.nodes[b].dev; x.BDF.Slot() == y.BDF.Slot() && x.repeat() == y.repeat() {
		return ncclPIX
	}
	return ""
}

// peerSets holds, for each device with direct links, the set of its peers: one
// bit for each, so that asking for a common one is cheap for any number.
type peerSets struct {
	index map[ID]int
	sets  [][]uint64
}

// join makes two devices peers of each other.
func (p *peerSets) join(a, b ID) {
	i, j := p.at(a), p.at(b)
	p.add(i, j)
	p.add(j, i)
}

func (p *peerSets) at(id ID) int {
	i, ok := p.index[id]
	if !ok {
		i = len(p.sets)
		p.index[id] = i
		p.sets = append(p.sets, nil)
	}
	return i
}

func (p *peerSets) add(i, j int) {
	for j/64 >= len(p.sets[i]) {
		p.sets[i] = append(p.sets[i], 0)
	}
	p.sets[i][j/64] |= 1 << (j % 64)
}

// common says whether some device is a peer of both.
func (p *peerSets) common(a, b ID) bool {
	i, okI := p.index[a]
	j, okJ := p.index[b]
	if !okI || !okJ {
		return false
	}
	x, y := p.sets[i], p.sets[j]
	for w := range min(len(x), len(y)) {
		if x[w]&y[w] != 0 {
			return true
		}
	}
	return false
}

// hasLocalC2C says whether a GPU has a C2C link to the NUMA node it hangs from.
func (g *Graph) hasLocalC2C(e endpoint) bool {
	l, ok := g.c2c[e.id]
	return ok && e.gpu && e.numa != nil && g.links[l].B == NUMAID(*e.numa)
}

// ncclOf translates a class where NCCL's follows from it alone.
func ncclOf(c Class) NCCLClass {
	switch c.Kind {
	case ClassSelf:
		return ncclLoc
	case ClassNV, ClassXGMI:
		return ncclNVL
	case ClassC2C:
		return ncclC2C
	case ClassPIX:
		return ncclPIX
	case ClassPXB:
		return ncclPXB
	case ClassPHB, ClassNODE:
		return ncclPHB
	case ClassSYS:
		return ncclSYS
	}
	return ""
}

package hwlocxml

import (
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/bitmap"
)

// container is an object with CPUs that others are put into.
type container struct {
	*object
	cpus  bitmap.Set
	nodes bitmap.Set // NUMA nodes attached to it or below
}

// layout is the tree of packages, NUMA nodes and CPUs. hwloc wants the sets of
// siblings to be disjoint, so each CPU belongs to the first that claims it.
type layout struct {
	t       *topo.Topology
	machine *container
	below   []*container         // packages and groups below the machine
	ofNode  map[int]*container   // where the devices of a NUMA node go
	inside  map[*container][]int // NUMA nodes within one package
	near    bitmap.Set           // NUMA nodes of the machine itself: near to all that is in it
	used    bitmap.Set
}

// layOut makes the machine's object with all below.
func layOut(t *topo.Topology) *object {
	l := &layout{t: t, machine: &container{object: &object{}}, ofNode: map[int]*container{}, inside: map[*container][]int{}}
	cpus := make([]bitmap.Set, len(t.NUMANodes))
	for i := range t.NUMANodes {
		if n := &t.NUMANodes[i]; !n.MemoryOnly {
			cpus[i] = l.claim(n.CPUs)
		}
	}
	for i := range t.NUMANodes {
		if !t.NUMANodes[i].MemoryOnly && cpus[i].Len() == 0 {
			cpus[i] = l.invent()
		}
	}
	l.packages(cpus)
	for i := range t.NUMANodes {
		if n := &t.NUMANodes[i]; l.spans(n, cpus[i]) {
			l.ofNode[n.Index] = l.machine
			l.near.Add(n.Index)
		}
	}
	for i := range t.NUMANodes {
		l.numaNode(&t.NUMANodes[i], cpus[i])
	}
	if l.used.Len() == 0 {
		l.invent()
	}
	if len(t.NUMANodes) == 0 {
		l.inventNode()
	}
	l.finish()
	l.io()
	l.keepMachine()
	return l.machine.object
}

// claim takes the CPUs of a list that nobody has yet.
func (l *layout) claim(list string) bitmap.Set {
	s, err := bitmap.ParseList(list)
	if err != nil {
		return nil
	}
	s = s.Minus(l.used)
	l.used = l.used.Union(s)
	return s
}

// invent takes a CPU that nobody has, for an object that hwloc cannot have
// without one.
func (l *layout) invent() bitmap.Set {
	n := 0
	for l.used.Has(n) {
		n++
	}
	var s bitmap.Set
	s.Add(n)
	l.used.Add(n)
	return s
}

// packages adds an object for each package: the CPUs of its NUMA nodes, or
// those of its own that no node has claimed.
func (l *layout) packages(cpus []bitmap.Set) {
	for i := range l.t.Packages {
		p := &l.t.Packages[i]
		c := &container{object: &object{}}
		for j := range l.t.NUMANodes {
			if n := &l.t.NUMANodes[j]; n.Package != nil && *n.Package == p.Index && !n.MemoryOnly {
				c.cpus = c.cpus.Union(cpus[j])
				l.inside[c] = append(l.inside[c], n.Index)
				l.ofNode[n.Index] = c
			}
		}
		if all, err := bitmap.ParseList(p.CPUs); err == nil && c.cpus.Len() == 0 {
			for _, b := range l.below {
				all = all.Minus(b.cpus)
			}
			for j := range cpus {
				if n := l.t.NUMANodes[j]; n.Package != nil {
					all = all.Minus(cpus[j])
				}
			}
			c.cpus = all
		}
		if c.cpus.Len() == 0 {
			c.cpus = l.invent()
		}
		l.used = l.used.Union(c.cpus)
		c.attrs = []attr{{"type", "Package"}, {"os_index", strconv.Itoa(p.Index)}}
		c.say("CPUModel", p.Model)
		c.say("CPUVendor", l.t.Host.CPUVendor)
		c.keep(infoNode, p)
		l.below = append(l.below, c)
	}
}

// numaNode attaches a NUMA node: to its package where it is the only one there,
// to a group of its own otherwise, to the machine where it has no CPUs or
// spans packages.
func (l *layout) numaNode(n *topo.NUMANode, cpus bitmap.Set) {
	o := &object{attrs: []attr{{"type", "NUMANode"}, {"os_index", strconv.Itoa(n.Index)}}}
	if n.MemoryBytes != nil {
		o.attrs = append(o.attrs, attr{"local_memory", strconv.FormatInt(*n.MemoryBytes, 10)})
	}
	o.keep(infoNode, n)
	home := l.ofNode[n.Index]
	if home == nil || len(l.inside[home]) > 1 {
		group := &container{object: &object{attrs: []attr{{"type", "Group"}}}, cpus: cpus}
		if home == nil {
			l.below = append(l.below, group)
		} else {
			home.children = append(home.children, group.object)
			home.nodes.Add(n.Index)
		}
		l.setsOf(group, n.Index)
		home = group
	}
	l.ofNode[n.Index] = home
	home.nodes.Add(n.Index)
	set := home.cpus
	if home == l.machine {
		set = cpus
	}
	o.attrs = append(o.attrs, sets(set, single(n.Index))...)
	home.children = append([]*object{o}, home.children...)
}

// spans says whether a NUMA node belongs to the machine: it has no CPUs, or
// those of packages that it is not in.
func (l *layout) spans(n *topo.NUMANode, cpus bitmap.Set) bool {
	if n.MemoryOnly {
		return true
	}
	for _, b := range l.below {
		if l.ofNode[n.Index] == nil && b.cpus.Minus(cpus).Len() < b.cpus.Len() {
			return true
		}
	}
	return false
}

func single(n int) bitmap.Set {
	var s bitmap.Set
	s.Add(n)
	return s
}

// setsOf finishes a group inside a package: its sets and its CPUs.
func (l *layout) setsOf(group *container, index int) {
	nodes := single(index).Union(l.near)
	group.attrs = append(group.attrs, sets(group.cpus, nodes)...)
	group.children = append(group.children, units(group.cpus, nodes)...)
}

// inventNode gives a machine without NUMA nodes the one that hwloc wants.
func (l *layout) inventNode() {
	l.near = single(0)
	o := &object{attrs: append([]attr{{"type", "NUMANode"}, {"os_index", "0"}}, sets(l.used, l.near)...)}
	o.say(infoInvented, "1")
	l.machine.children = append(l.machine.children, o)
}

// sets are the four attributes that say which CPUs and NUMA nodes are near.
func sets(cpus, nodes bitmap.Set) []attr {
	c, n := cpus.Hex("0x"), nodes.Hex("0x")
	return []attr{{"cpuset", c}, {"complete_cpuset", c}, {"nodeset", n}, {"complete_nodeset", n}}
}

// units are the CPUs' own objects.
func units(cpus, nodes bitmap.Set) []*object {
	var out []*object
	for _, n := range cpus.Members() {
		out = append(out, &object{attrs: append([]attr{{"type", "PU"}, {"os_index", strconv.Itoa(n)}}, sets(single(n), nodes)...)})
	}
	return out
}

// finish gives machine and packages their sets, their CPUs and their order.
func (l *layout) finish() {
	m := l.machine
	var placed bitmap.Set
	m.nodes = l.near
	for _, b := range l.below {
		placed = placed.Union(b.cpus)
		b.nodes = b.nodes.Union(l.near)
		m.nodes = m.nodes.Union(b.nodes)
		m.children = append(m.children, b.object)
		if b.attrs[0].value == "Group" {
			continue
		}
		b.attrs = append(b.attrs, sets(b.cpus, b.nodes)...)
		if len(l.inside[b]) <= 1 {
			b.children = append(b.children, units(b.cpus, b.nodes)...)
		}
	}
	m.cpus = l.used
	m.children = append(m.children, units(m.cpus.Minus(placed), l.near)...)
	m.attrs = append([]attr{{"type", "Machine"}, {"os_index", "0"}}, sets(m.cpus, m.nodes)...)
	m.attrs = append(m.attrs, attr{"allowed_cpuset", m.cpus.Hex("0x")}, attr{"allowed_nodeset", m.nodes.Hex("0x")})
}

// keepMachine writes what is known of the host and has no object.
func (l *layout) keepMachine() {
	h, m := &l.t.Host, l.machine
	m.say("HostName", h.Name)
	m.say("OSRelease", h.Kernel)
	m.say("Architecture", h.Arch)
	m.say("DMISysVendor", h.Vendor)
	m.say("DMIProductName", h.Product)
	m.say("Backend", "topoctl")
	m.keep(infoHost, h)
	for i := range l.t.Links {
		switch k := l.t.Links[i].Kind; k {
		case topo.LinkNVLink, topo.LinkXGMI, topo.LinkC2C:
			m.keep(infoLink, &l.t.Links[i])
		}
	}
	if l.t.Asserted != nil {
		m.keep(infoAsserted, l.t.Asserted)
	}
}

package hwlocxml

import (
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
)

// container is an object with CPUs that others are put into.
type container struct {
	*object
	cpus  cpuset.Set
	nodes cpuset.Set // NUMA nodes attached to it or below
}

// layout is the tree of packages, NUMA nodes and CPUs. hwloc wants the sets of
// siblings to be disjoint, so each CPU belongs to the first that claims it.
type layout struct {
	t       *topo.Topology
	machine *container
	below   []*container         // packages and groups below the machine
	ofNode  map[int]*container   // where the devices of a NUMA node go
	inside  map[*container][]int // NUMA nodes within one package
	near    cpuset.Set           // NUMA nodes of the machine itself: near to all that is in it
	used    cpuset.Set
}

// layOut makes the machine's object with all below.
func layOut(t *topo.Topology) *object {
	l := &layout{t: t, machine: &container{object: &object{}}, ofNode: map[int]*container{}, inside: map[*container][]int{}}
	cpus := make([]cpuset.Set, len(t.NUMANodes))
	for i := range t.NUMANodes {
		if n := &t.NUMANodes[i]; !n.MemoryOnly {
			cpus[i] = l.claim(n.CPUs)
		}
	}
	for i := range t.NUMANodes {
		if !t.NUMANodes[i].MemoryOnly && cpus[i].IsEmpty() {
			cpus[i] = l.invent()
		}
	}
	l.packages(cpus)
	for i := range t.NUMANodes {
		if n := &t.NUMANodes[i]; l.spans(n, cpus[i]) {
			l.ofNode[n.Index] = l.machine
			l.near = l.near.Union(cpuset.Of(n.Index))
		}
	}
	for i := range t.NUMANodes {
		l.numaNode(&t.NUMANodes[i], cpus[i])
	}
	if l.used.IsEmpty() {
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
func (l *layout) claim(list string) cpuset.Set {
	s, err := cpuset.Parse(list)
	if err != nil {
		return cpuset.Set{}
	}
	s = s.Minus(l.used)
	l.used = l.used.Union(s)
	return s
}

// invent takes a CPU that nobody has, for an object that hwloc cannot have
// without one.
func (l *layout) invent() cpuset.Set {
	n := 0
	for l.used.Contains(n) {
		n++
	}
	s := cpuset.Of(n)
	l.used = l.used.Union(s)
	return s
}

// packages adds an object for each package: the CPUs of its NUMA nodes, or
// those of its own that no node has claimed.
func (l *layout) packages(cpus []cpuset.Set) {
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
		if all, err := cpuset.Parse(p.CPUs); err == nil && c.cpus.IsEmpty() {
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
		if c.cpus.IsEmpty() {
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
func (l *layout) numaNode(n *topo.NUMANode, cpus cpuset.Set) {
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
			home.nodes = home.nodes.Union(cpuset.Of(n.Index))
		}
		l.setsOf(group, n.Index)
		home = group
	}
	l.ofNode[n.Index] = home
	home.nodes = home.nodes.Union(cpuset.Of(n.Index))
	set := home.cpus
	if home == l.machine {
		set = cpus
	}
	o.attrs = append(o.attrs, sets(set, cpuset.Of(n.Index))...)
	home.children = append([]*object{o}, home.children...)
}

// spans says whether a NUMA node belongs to the machine: it has no CPUs, or
// those of packages that it is not in.
func (l *layout) spans(n *topo.NUMANode, cpus cpuset.Set) bool {
	if n.MemoryOnly {
		return true
	}
	for _, b := range l.below {
		if l.ofNode[n.Index] == nil && b.cpus.Overlaps(cpus) {
			return true
		}
	}
	return false
}

// setsOf finishes a group inside a package: its sets and its CPUs.
func (l *layout) setsOf(group *container, index int) {
	nodes := cpuset.Of(index).Union(l.near)
	group.attrs = append(group.attrs, sets(group.cpus, nodes)...)
	group.children = append(group.children, units(group.cpus, nodes)...)
}

// inventNode gives a machine without NUMA nodes the one that hwloc wants.
func (l *layout) inventNode() {
	l.near = cpuset.Of(0)
	o := &object{attrs: append([]attr{{"type", "NUMANode"}, {"os_index", "0"}}, sets(l.used, l.near)...)}
	o.say(infoInvented, "1")
	l.machine.children = append(l.machine.children, o)
}

// sets are the four attributes that say which CPUs and NUMA nodes are near.
func sets(cpus, nodes cpuset.Set) []attr {
	c, n := cpus.HwlocMask(), nodes.HwlocMask()
	return []attr{{"cpuset", c}, {"complete_cpuset", c}, {"nodeset", n}, {"complete_nodeset", n}}
}

// units are the CPUs' own objects.
func units(cpus, nodes cpuset.Set) []*object {
	var out []*object
	for n := range cpus.All() {
		out = append(out, &object{attrs: append([]attr{{"type", "PU"}, {"os_index", strconv.Itoa(n)}}, sets(cpuset.Of(n), nodes)...)})
	}
	return out
}

// finish gives machine and packages their sets, their CPUs and their order.
func (l *layout) finish() {
	m := l.machine
	var placed cpuset.Set
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
	m.attrs = append(m.attrs, attr{"allowed_cpuset", m.cpus.HwlocMask()}, attr{"allowed_nodeset", m.nodes.HwlocMask()})
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

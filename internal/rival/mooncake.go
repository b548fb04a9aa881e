package rival

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

const mooncakeRule = "a NIC at random among the preferred ones, for each transfer: those on the memory's NUMA node, " +
	"for a GPU the nearest by sysfs path among those (Mooncake 3b5a594, topology.cpp)"

// mooncakeNIC is an RDMA device as Mooncake lists it.
type mooncakeNIC struct {
	name string
	nic  topo.ID
	fn   *topo.PCIDevice
	numa int
}

// mooncakeHost is what Mooncake's discovery finds on a host.
type mooncakeHost struct {
	v        *view
	nics     []mooncakeNIC
	distance map[topo.ID]int // of each NIC to the view's GPU; -1 where it has none
	rebuilt  bool            // a path is not the kernel's
}

func (v *view) mooncakeHost() *mooncakeHost {
	m := &mooncakeHost{v: v}
	for i := range v.t.RDMADevices {
		r := &v.t.RDMADevices[i]
		if reason := v.mooncakeRefuses(r); reason == "" {
			fn := v.index.PCIDevice(r.PCI)
			m.nics = append(m.nics, mooncakeNIC{r.Name, r.ID, fn, fileNUMA(fn)})
		}
	}
	slices.SortFunc(m.nics, func(a, b mooncakeNIC) int { return topo.NaturalCompare(a.name, b.name) })
	return m
}

// mooncakeRefuses says why Mooncake's discovery leaves a device out, "" where
// it does not. What the origin does not say counts as fulfilled.
func (v *view) mooncakeRefuses(r *topo.RDMADevice) string {
	switch r.Uverbs {
	case "rw", "unknown", "":
	default:
		return "its uverbs file cannot be read and written"
	}
	for _, p := range v.rdmaPorts() {
		port := v.index.Port(p.ID) // nil from an importer that knows devices only
		if p.NIC == r.ID && v.active(&p) && (port == nil || port.GIDTable == nil || *port.GIDTable > 0) {
			return ""
		}
	}
	return "no ACTIVE port with a GID table"
}

// nearest finds the NICs that a GPU prefers: of those on its NUMA node, or of
// all where none is, the ones at the smallest distance.
func (m *mooncakeHost) nearest(g *topo.GPU) map[topo.ID]bool {
	fn := m.v.index.PCIDevice(g.PCI)
	numa := fileNUMA(fn)
	var candidates []mooncakeNIC
	for _, n := range m.nics {
		if numa >= 0 && n.numa == numa {
			candidates = append(candidates, n)
		}
	}
	if len(candidates) == 0 {
		candidates = m.nics
	}
	m.distance = map[topo.ID]int{}
	best := -1
	for _, n := range candidates {
		d := -1
		if n.fn != nil && fn != nil {
			a, exactA := m.v.realpath(fn)
			b, exactB := m.v.realpath(n.fn)
			d = pathDistance(a, b)
			m.rebuilt = m.rebuilt || !exactA || !exactB
		}
		m.distance[n.nic] = d
		if d >= 0 && (best < 0 || d < best) {
			best = d
		}
	}
	near := map[topo.ID]bool{}
	for nic, d := range m.distance {
		near[nic] = d >= 0 && d == best
	}
	return near
}

// pathDistance counts the slashes that two paths have left after the
// characters that they share. It is Mooncake's distance: the depth below the
// first difference decides, not the kind of bridge.
func pathDistance(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return strings.Count(a[i:], "/") + strings.Count(b[i:], "/")
}

// mooncake applies the rule to the view's location.
func (v *view) mooncake(c *Choice) {
	m := v.mooncakeHost()
	preferred := map[topo.ID]bool{}
	if v.gpu != nil {
		preferred = m.nearest(v.gpu)
	} else {
		for _, n := range m.nics {
			preferred[n.nic] = n.numa == v.node
		}
	}
	some := 0
	for _, yes := range preferred {
		if yes {
			some++
		}
	}
	pool := some
	if some == 0 {
		pool = len(m.nics)
	}
	for _, p := range v.rdmaPorts() {
		switch i := slices.IndexFunc(m.nics, func(n mooncakeNIC) bool { return n.nic == p.NIC }); {
		case i < 0:
			v.reject(c, &p, CodeFiltered, "left out by its discovery: %s", v.mooncakeRefuses(v.index.RDMADevice(p.NIC)))
		case p.Number > 1:
			v.reject(c, &p, CodeFiltered, "only the first port of a NIC is used (MC_IB_PORT)")
		case some == 0:
			v.choose(c, &p, 1/float64(pool), CodeNoneNear, "no NIC is preferred, so any of %d", pool)
		case preferred[p.NIC]:
			code, text := m.why(p.NIC, true)
			v.choose(c, &p, 1/float64(pool), code, "%s", text)
		default:
			code, text := m.why(p.NIC, false)
			v.reject(c, &p, code, "%s", text)
		}
	}
	v.mooncakeNotes(c, m)
}

// why explains what makes a NIC preferred or not.
func (m *mooncakeHost) why(nic topo.ID, preferred bool) (pathsel.Code, string) {
	i := slices.IndexFunc(m.nics, func(n mooncakeNIC) bool { return n.nic == nic })
	d, compared := m.distance[nic]
	switch {
	case m.v.gpu != nil && preferred:
		return CodeNearest, fmt.Sprintf("path distance %d, the smallest of %d", d, len(m.distance))
	case compared && d >= 0:
		return CodeFarther, fmt.Sprintf("path distance %d, tried after the preferred ones", d)
	case compared:
		return CodeFarther, "no PCI path, tried after the preferred ones"
	case preferred:
		return CodeSameNUMA, fmt.Sprintf("its numa_node is %d", m.nics[i].numa)
	}
	return CodeOtherNUMA, fmt.Sprintf("its numa_node is %d, tried after the preferred ones", m.nics[i].numa)
}

func (v *view) mooncakeNotes(c *Choice, m *mooncakeHost) {
	if len(m.nics) == 0 {
		c.note(CodeFiltered, "it accepts no RDMA device here and would run over TCP")
		return
	}
	if m.rebuilt {
		c.note(CodeGuess, "sysfs paths are rebuilt from the PCI tree, which may lack bridges")
	}
	if slices.ContainsFunc(m.nics, func(n mooncakeNIC) bool { return v.index.RDMADevice(n.nic).Uverbs == "unknown" }) {
		c.note(CodeTakenAsYes, "whether the uverbs files can be opened is not known; taken as yes")
	}
}

package judge

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
)

// atom is the smallest thing that can be at fault: a directed link, or for latency, which uses both
// directions, a link.
type atom struct {
	link *probe.Link // for latency that of the direction that was seen first
	keys []probe.LinkKey
}

// part is a possible suspect: a direction, a link, a device or one direction of a device.
type part struct {
	kind      string
	key       string
	direction string // of a device: "" both
	atoms     []int  // ascending; those that measured pairs cross
	component string // equal for all parts of one link and for all of one device
}

// faultSpace is where faults are searched: the links that measured pairs cross, and the devices that these
// belong to. Directions and links are identified by Link's fields, never by their keys.
type faultSpace struct {
	atoms   []atom
	parts   []part
	partsOf [][]int32 // by atom
	paths   [][]int   // atoms by result, none twice
	results []probe.Result
}

// kindDirection and kindLink are the kinds of suspects that are no device.
const (
	kindDirection = "direction"
	kindLink      = "link"
)

// newFaultSpace collects the links of the results that use selects. both makes one atom of both directions
// of a link.
func newFaultSpace(c *judgement, use func(i int) bool, both bool) *faultSpace {
	g := &faultSpace{paths: make([][]int, len(c.r.Results)), results: c.r.Results}
	atomOf := make(map[probe.LinkKey]int)
	ofLink := make(map[string][]int) // the atoms of a component
	for i := range c.r.Results {
		if !use(i) {
			continue
		}
		for _, key := range c.r.Results[i].Path {
			a, ok := atomOf[key]
			if !ok {
				l := c.links[key]
				if l == nil { // the report does not describe it
					l = &probe.Link{Key: key, Link: topo.LinkID(key), Name: string(key)}
				}
				if same := ofLink[component(l)]; both && len(same) > 0 {
					a = same[0]
					g.atoms[a].keys = append(g.atoms[a].keys, key)
				} else {
					a = len(g.atoms)
					g.atoms = append(g.atoms, atom{link: l, keys: []probe.LinkKey{key}})
					ofLink[component(l)] = append(same, a)
				}
				atomOf[key] = a
			}
			if !slices.Contains(g.paths[i], a) {
				g.paths[i] = append(g.paths[i], a)
			}
		}
	}
	g.addParts(c, ofLink, both)
	return g
}

// addParts lists what may be at fault, the most specific first.
func (g *faultSpace) addParts(c *judgement, ofLink map[string][]int, both bool) {
	ofDevice := make(map[string][]int)
	for a := range g.atoms {
		l := g.atoms[a].link
		kind := kindDirection
		if both || l.Direction == "both" {
			kind = kindLink
		}
		g.parts = append(g.parts, part{kind: kind, key: string(l.Key), atoms: []int{a}, component: component(l)})
		if directions := ofLink[component(l)]; len(directions) > 1 && directions[0] == a {
			g.parts = append(g.parts, part{kind: kindLink, key: string(l.Key), atoms: directions, component: component(l)})
		}
		for _, key := range l.On {
			if have := ofDevice[key]; len(have) == 0 || have[len(have)-1] != a {
				ofDevice[key] = append(have, a)
			}
		}
	}
	for _, d := range c.r.Devices {
		g.addDevice(d, ofDevice[d.Key])
	}
	slices.SortStableFunc(g.parts, func(p, q part) int { return cmp.Compare(kindRank(p.kind), kindRank(q.kind)) })
	g.partsOf = make([][]int32, len(g.atoms))
	for p := range g.parts {
		for _, a := range g.parts[p].atoms {
			g.partsOf[a] = append(g.partsOf[a], int32(p))
		}
	}
}

// component is the same for both directions of a link.
func component(l *probe.Link) string { return "link\x00" + l.Host + "\x00" + string(l.Link) }

// addDevice adds a device, and its directions if pairs cross it in more than one.
func (g *faultSpace) addDevice(d probe.Device, atoms []int) {
	if len(atoms) == 0 {
		return
	}
	thing := "device\x00" + d.Key
	for _, direction := range []string{"down", "up"} {
		var some []int
		for _, a := range atoms {
			if dir := g.atoms[a].link.Direction; dir == direction || dir == "both" {
				some = append(some, a)
			}
		}
		if len(some) > 0 && len(some) < len(atoms) {
			g.parts = append(g.parts, part{kind: d.Kind, key: d.Key, direction: direction, atoms: some, component: thing})
		}
	}
	g.parts = append(g.parts, part{kind: d.Kind, key: d.Key, atoms: atoms, component: thing})
}

// kindRank orders suspects: the smaller part comes first.
func kindRank(kind string) int {
	order := []string{kindDirection, kindLink, "nic", "gpu", "numa", "switch", "host", "leaf", "spine"}
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return len(order)
}

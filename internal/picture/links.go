package picture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
)

// peers are the links between GPUs, and from GPUs to their CPU. Those that
// join many GPUs alike (NVSwitches, a mesh of every two) become one bar; the
// others are rows in the GPUs' boxes.
type peers struct {
	bars  []*node
	edges []edge // those that are rows
	rows  map[topo.ID][]row
	tips  map[topo.ID][]string

	index map[topo.ID]int // GPU numbers
}

// bundle is what links that share a line of text have in common.
type bundle struct {
	kind  topo.LinkKind
	links int // bonded in each
	rate  string
	state wireState
}

func compareBundles(a, b bundle) int {
	return cmp.Or(strings.Compare(string(a.kind), string(b.kind)), b.links-a.links, strings.Compare(a.rate, b.rate), int(a.state)-int(b.state))
}

var linkNames = map[topo.LinkKind]string{topo.LinkNVLink: "NVLink", topo.LinkXGMI: "xGMI", topo.LinkC2C: "C2C"}

func (u bundle) name() string {
	name := linkNames[u.kind]
	if u.links > 0 {
		name += " x" + strconv.Itoa(u.links)
	}
	return name
}

// each is the rate as a sentence has it.
func (u bundle) each(what string) string {
	switch {
	case u.state == wireUnknown:
		return "unknown rate"
	case what == "":
		return u.rate
	}
	return u.rate + " per " + what
}

// edge is a link between two GPUs.
type edge struct {
	a, z topo.ID
	bundle
}

func newPeers(b *builder) *peers {
	p := &peers{rows: map[topo.ID][]row{}, tips: map[topo.ID][]string{}, index: map[topo.ID]int{}}
	for i := range b.T.GPUs {
		p.index[b.T.GPUs[i].ID] = b.T.GPUs[i].Index
	}
	fabric := map[bundle][]topo.ID{}
	var edges []edge
	for i := range b.T.Links {
		l := &b.T.Links[i]
		if linkNames[l.Kind] == "" {
			continue
		}
		u := bundle{l.Kind, l.Count, b.linkRate(l), stateOf(l)}
		gpu, to := l.A, l.B
		if _, ok := p.index[gpu]; !ok {
			gpu, to = to, gpu
		}
		_, isGPU := p.index[to]
		switch _, ok := p.index[gpu]; {
		case !ok || gpu == to:
		case isGPU:
			edges = append(edges, edge{gpu, to, u})
			p.add(gpu, l)
			p.add(to, l)
		case to == topo.FabricID:
			fabric[u] = append(fabric[u], gpu)
			p.add(gpu, l)
		default:
			p.other(gpu, to, u, l)
		}
	}
	if len(edges)+len(fabric) == 0 {
		edges = p.stated(b)
	}
	p.fabrics(fabric)
	p.meshes(edges)
	return p
}

// add describes a link in the tooltip of a GPU.
func (p *peers) add(gpu topo.ID, l *topo.Link) {
	if note := clean(l.Note); note != "" && !slices.Contains(p.tips[gpu], note) && len(p.tips[gpu]) < 16 {
		p.tips[gpu] = append(p.tips[gpu], note)
	}
}

// other adds a link from a GPU to something else: the CPU.
func (p *peers) other(gpu, to topo.ID, u bundle, l *topo.Link) {
	name := u.name()
	if u.kind != topo.LinkC2C {
		name += " to " + clean(string(to))
	}
	p.rows[gpu] = append(p.rows[gpu], row{left: name, right: u.rate})
	if l.Note != "" {
		p.tips[gpu] = append(p.tips[gpu], clean(l.Note))
	}
}

// stated are the links that follow from classes which the origin states.
func (p *peers) stated(b *builder) []edge {
	d := b.T.Derived
	if b.T.Asserted == nil || d == nil {
		return nil
	}
	var out []edge
	for i, a := range d.Axis {
		for j := i + 1; j < len(d.Axis); j++ {
			_, okA := p.index[a]
			_, okZ := p.index[d.Axis[j]]
			if !okA || !okZ {
				continue
			}
			switch class := d.At(i, j).Class; class.Kind {
			case topo.ClassNV:
				out = append(out, edge{a, d.Axis[j], bundle{topo.LinkNVLink, class.Links, "?", wireUnknown}})
			case topo.ClassXGMI:
				out = append(out, edge{a, d.Axis[j], bundle{topo.LinkXGMI, 0, "?", wireUnknown}})
			}
		}
	}
	return out
}

// fabrics makes the bar of the NVSwitches.
func (p *peers) fabrics(fabric map[bundle][]topo.ID) {
	if len(fabric) == 0 {
		return
	}
	n := &node{look: lookBar, id: topo.FabricID, tip: []string{"Every GPU reaches every other through the NVSwitches at its own rate"}}
	for _, u := range slices.SortedFunc(maps.Keys(fabric), compareBundles) {
		gpus := p.numbers(fabric[u])
		n.joins = append(n.joins, fabric[u]...)
		to := "each of " + strconv.Itoa(len(gpus)) + " GPUs"
		if len(gpus) == 1 {
			to = "GPU" + strconv.Itoa(gpus[0])
		} else if len(fabric) > 1 {
			to = text.Plural(len(gpus), "GPU") + " (" + ranges(gpus) + ")"
		}
		n.rows = append(n.rows, row{left: fmt.Sprintf("%s to %s through NVSwitches · %s", u.name(), to, u.each("GPU")), style: rowStrong})
	}
	n.rows = atMost(n.rows, "kind")
	p.bars = append(p.bars, n)
}

// numbers are the indices of GPUs, each once.
func (p *peers) numbers(gpus []topo.ID) []int {
	out := make([]int, len(gpus))
	for i, id := range gpus {
		out[i] = p.index[id]
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// meshes turns the links between GPUs into bars where every two of a group are
// joined alike, else into rows at the GPUs.
func (p *peers) meshes(edges []edge) {
	slices.SortStableFunc(edges, func(x, y edge) int {
		a, b, c, d := p.index[x.a], p.index[x.z], p.index[y.a], p.index[y.z]
		return cmp.Or(min(a, b)-min(c, d), max(a, b)-max(c, d))
	})
	for _, kind := range []topo.LinkKind{topo.LinkNVLink, topo.LinkXGMI} {
		joined := map[topo.ID]topo.ID{} // each GPU to another one of its group, the last to none
		last := func(id topo.ID) topo.ID {
			for joined[id] != "" {
				id = joined[id]
			}
			return id
		}
		var list []edge
		for _, e := range edges {
			if e.kind != kind {
				continue
			}
			list = append(list, e)
			if a, z := last(e.a), last(e.z); a != z {
				joined[a] = z
			}
		}
		for _, g := range group.By(list, func(e edge) topo.ID { return last(e.a) }) {
			if !p.mesh(g) {
				p.partial(g)
			}
		}
	}
}

// mesh makes a bar of three and more GPUs of which every two are joined alike.
func (p *peers) mesh(edges []edge) bool {
	var ids []topo.ID
	for _, e := range edges {
		if e.bundle != edges[0].bundle {
			return false
		}
		ids = append(ids, e.a, e.z)
	}
	gpus := p.numbers(ids)
	if n := len(gpus); n < 3 || len(edges) != n*(n-1)/2 {
		return false
	}
	slices.SortFunc(ids, func(a, z topo.ID) int { return topo.NaturalCompare(string(a), string(z)) })
	u := edges[0].bundle
	p.bars = append(p.bars, &node{look: lookBar, id: topo.ID("mesh:" + string(ids[0])), joins: slices.Compact(ids),
		tip:  []string{fmt.Sprintf("%s of GPUs %s", text.Plural(len(edges), "link"), ranges(gpus))},
		rows: []row{{left: fmt.Sprintf("%s between every two of GPUs %s · %s", u.name(), ranges(gpus), u.each("pair")), style: rowStrong}}})
	return true
}

// partial writes the peers of each GPU into its box, alike ones in one row.
func (p *peers) partial(edges []edge) {
	at := map[topo.ID]map[bundle][]int{}
	note := func(gpu, peer topo.ID, u bundle) {
		if at[gpu] == nil {
			at[gpu] = map[bundle][]int{}
		}
		at[gpu][u] = append(at[gpu][u], p.index[peer])
	}
	for _, e := range edges {
		note(e.a, e.z, e.bundle)
		note(e.z, e.a, e.bundle)
	}
	p.edges = append(p.edges, edges...)
	for gpu, byBundle := range at { // each GPU has rows of its own: the order is no matter
		for _, u := range slices.SortedFunc(maps.Keys(byBundle), compareBundles) {
			p.rows[gpu] = append(p.rows[gpu], row{left: u.name() + ": GPU " + ranges(byBundle[u]), right: u.rate})
		}
	}
}

// socketName names the links between a host's sockets.
func socketName(h *topo.Host) string {
	switch {
	case h.CPUVendor == "AuthenticAMD":
		return "xGMI"
	case h.CPUVendor == "GenuineIntel" && h.CPUModelID != nil && *h.CPUModelID >= 0x55:
		return "UPI"
	case h.CPUVendor == "GenuineIntel":
		return "QPI/UPI"
	}
	return "CPU link"
}

// sockets makes the bar of the links between NUMA nodes of different places, which counts those that
// are alike; none where there are no such links.
func (b *builder) sockets(places []*node) []*node {
	place := map[topo.ID]int{}
	for i, p := range places {
		p.walk(func(n *node) {
			if n.look.container() {
				place[n.id] = i
			}
		})
	}
	across, within := map[bundle]int{}, map[bundle]int{}
	name := socketName(&b.T.Host)
	var notes []string
	for i := range b.T.Links {
		l := &b.T.Links[i]
		x, okX := place[l.A]
		y, okY := place[l.B]
		if l.Kind != topo.LinkSocket || !okX || !okY {
			continue
		}
		u := bundle{l.Kind, 0, b.linkRate(l), stateOf(l)}
		if x == y {
			within[u]++
			continue
		}
		across[u]++
		if !b.packageKnown(l.A) || !b.packageKnown(l.B) {
			name = "NUMA link"
		}
		if note := clean(l.Note); note != "" && !slices.Contains(notes, note) && len(notes) < 8 {
			notes = append(notes, note)
		}
	}
	if len(across) == 0 {
		return nil
	}
	n := &node{look: lookBar, id: "sockets", tip: notes}
	for _, p := range places {
		n.joins = append(n.joins, p.id)
	}
	for _, u := range slices.SortedFunc(maps.Keys(across), compareBundles) {
		between := text.Plural(across[u], "pair") + " of NUMA nodes"
		if len(places) == 2 && across[u] == 1 && len(across) == 1 {
			a, _, _ := strings.Cut(places[0].rows[0].left, " · ")
			z, _, _ := strings.Cut(places[1].rows[0].left, " · ")
			between = a + " and " + z
		}
		n.rows = append(n.rows, row{left: fmt.Sprintf("%s between %s · %s", name, between, u.each("")), style: rowStrong})
	}
	for _, u := range slices.SortedFunc(maps.Keys(within), compareBundles) {
		n.rows = append(n.rows, row{left: fmt.Sprintf("within a socket, between %s of NUMA nodes · %s", text.Plural(within[u], "pair"), u.each(""))})
	}
	n.rows = atMost(n.rows, "kind")
	return []*node{n}
}

// packageKnown says whether it is known which socket a NUMA node is of.
func (b *builder) packageKnown(id topo.ID) bool {
	n, ok := b.Node(id).(*topo.NUMANode)
	return ok && n.Package != nil
}

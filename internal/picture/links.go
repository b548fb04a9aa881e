package picture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// peers are the links of GPUs that are not PCIe: those through NVSwitches are one bar, those to other GPUs and to the CPU
// rows in the GPUs' boxes.
type peers struct {
	bars  []*node
	edges []edge // between two GPUs
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
	links := b.T.GPULinks().Links
	for _, l := range b.T.Links {
		if l.Kind == topo.LinkC2C {
			links = append(links, l)
		}
	}
	fabric, others := map[bundle][]topo.ID{}, map[topo.ID]map[bundle][]int{} // others: by GPU the numbers of its peers
	for i := range links {
		l := &links[i]
		u := bundle{l.Kind, l.Count, b.linkRate(l), stateOf(l)}
		for _, ends := range [2][2]topo.ID{{l.A, l.B}, {l.B, l.A}} {
			gpu, to := ends[0], ends[1]
			peer, isGPU := p.index[to]
			if _, ok := p.index[gpu]; !ok || gpu == to {
				continue
			}
			if note := clean(l.Note); note != "" && !slices.Contains(p.tips[gpu], note) && len(p.tips[gpu]) < 16 {
				p.tips[gpu] = append(p.tips[gpu], note)
			}
			switch {
			case isGPU:
				if others[gpu] == nil {
					others[gpu] = map[bundle][]int{}
				}
				others[gpu][u] = append(others[gpu][u], peer)
				if gpu == l.A {
					p.edges = append(p.edges, edge{l.A, l.B, u})
				}
			case to == topo.FabricID:
				fabric[u] = append(fabric[u], gpu)
			case u.kind == topo.LinkC2C:
				p.rows[gpu] = append(p.rows[gpu], row{left: u.name(), right: u.rate})
			default:
				p.rows[gpu] = append(p.rows[gpu], row{left: u.name() + " to " + clean(string(to)), right: u.rate})
			}
		}
	}
	for gpu, byBundle := range others { // each GPU has rows of its own: the order is no matter
		for _, u := range slices.SortedFunc(maps.Keys(byBundle), compareBundles) {
			p.rows[gpu] = append(p.rows[gpu], row{left: u.name() + ": GPU " + ranges(byBundle[u]), right: u.rate})
		}
	}
	p.fabrics(fabric)
	return p
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
	across := map[bundle]int{}
	name := socketName(&b.T.Host)
	var notes []string
	for i := range b.T.Links {
		l := &b.T.Links[i]
		x, okX := place[l.A]
		y, okY := place[l.B]
		if l.Kind != topo.LinkSocket || !okX || !okY || x == y {
			continue
		}
		across[bundle{l.Kind, 0, b.linkRate(l), stateOf(l)}]++
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
	n.rows = atMost(n.rows, "kind")
	return []*node{n}
}

// packageKnown says whether it is known which socket a NUMA node is of.
func (b *builder) packageKnown(id topo.ID) bool {
	n, ok := b.Node(id).(*topo.NUMANode)
	return ok && n.Package != nil
}

package diagram

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/text"
)

// socketName is what the links between a host's sockets are called.
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

// sockets tells of the links between NUMA nodes: a line where there are two
// places, else a bar that counts those that are alike.
func (b *builder) sockets(places []*node) (*wire, []*node) {
	place := map[topo.ID]int{}
	for i, p := range places {
		p.walk(func(n *node) {
			if n.look.container() {
				place[n.id] = i
			}
		})
	}
	across, within := map[bundle]int{}, map[bundle]int{}
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
		if note := clean(l.Note); note != "" && !slices.Contains(notes, note) && len(notes) < 8 {
			notes = append(notes, note)
		}
	}
	name := socketName(&b.T.Host)
	if len(places) == 2 && len(across) > 0 {
		return joint(name, across, notes), nil
	}
	if len(across) == 0 {
		return nil, nil
	}
	n := &node{look: lookBar, id: "sockets", tip: notes}
	for _, u := range slices.SortedFunc(maps.Keys(across), compareBundles) {
		n.rows = append(n.rows, row{left: fmt.Sprintf("%s between %s of NUMA nodes · %s", name, text.Plural(across[u], "pair"), u.each("")), style: rowStrong})
	}
	for _, u := range slices.SortedFunc(maps.Keys(within), compareBundles) {
		n.rows = append(n.rows, row{left: fmt.Sprintf("within a socket, between %s of NUMA nodes · %s", text.Plural(within[u], "pair"), u.each(""))})
	}
	n.rows = atMost(n.rows, "kind")
	return nil, []*node{n}
}

// joint is the line between two places. Pairs of their NUMA nodes with
// different rates are told as a range.
func joint(name string, across map[bundle]int, notes []string) *wire {
	kinds := slices.SortedFunc(maps.Keys(across), func(a, b bundle) int {
		return cmp.Or(int(a.state)-int(b.state), compareBundles(a, b))
	})
	var rates []string
	pairs := 0
	for _, u := range kinds {
		rates = append(rates, u.rate)
		pairs += across[u]
	}
	w := &wire{labels: []string{name, strings.Join(rates, " / ")}, state: kinds[len(kinds)-1].state, tip: notes}
	if len(kinds) > 3 {
		w.labels[1] = "rates differ"
	}
	if pairs > 1 {
		w.tip = append(w.tip, text.Plural(pairs, "pair")+" of NUMA nodes, one on each side")
	}
	return w
}

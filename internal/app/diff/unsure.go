package diff

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// choiceRestsOn are the attributes that decide about ports.
var choiceRestsOn = []string{"presence", "slot", "state", "pcie_width", "pcie_speed", "pcie_max_width", "pcie_max_speed",
	"bytes_per_sec", "link_layer", "numa_node", "uverbs", "gid_index", "gids", "lid", "type", "addresses", "routes"}

// restsOn finds what only one side tells of some ports, so that a choice among
// them may differ for no other reason; nil if there is nothing.
func (c *comparer) restsOn(r *rivals, olds, news []topo.ID) *omission {
	involved := map[[2]string]bool{}
	note := func(side string, h *pathsel.Host, ids []topo.ID) {
		for _, id := range ids {
			if p, ok := h.Port(id); ok {
				for _, node := range []topo.ID{p.ID, p.NIC, topo.NetdevID(p.Netdev)} {
					involved[[2]string{side, string(node)}] = true
				}
			}
		}
	}
	note("old", r.old, olds)
	note("new", r.new, news)
	for _, id := range olds {
		note("new", r.new, []topo.ID{r.toPort[id]})
	}
	for i := range c.missing {
		m := &c.missing[i]
		if slices.Contains(choiceRestsOn, m.attr) && (involved[[2]string{"old", m.node.Old}] || involved[[2]string{"new", m.node.New}]) {
			return m
		}
	}
	for i := range c.missing {
		if m := &c.missing[i]; m.attr == "presence" && m.node.Kind == topo.KindGPU {
			return m // roles are judged by where the GPUs are
		}
	}
	return nil
}

// unsure notes a choice that may differ only because one side tells less.
func (c *comparer) unsure(ch Choice, node Node, why *omission) {
	attr := ch.Choice
	if attr == ChoiceTransport {
		attr += "_choice"
	}
	c.omitFor(attr, node, why.side, fmt.Sprintf("%s instead of %s, but that rests on the %s of %s, which it does not tell",
		orNone(names(ch.NewNames)), orNone(names(ch.OldNames)), wordsOf(why.attr), why.node.Name))
}

// usablePorts lists the ports that a choice can fall on.
func usablePorts(h *pathsel.Host) []topo.ID {
	var out []topo.ID
	for _, p := range h.Ports() {
		if p.Usable {
			out = append(out, p.ID)
		}
	}
	return out
}

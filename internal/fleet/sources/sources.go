// Package sources makes networks (fleet.Network) from the sources that tell how a fabric is cabled: the text of
// ibnetdiscover, LLDP reports of hosts and switches, probe reports, and fabric files. It also makes a topoctl.fabric/v1
// document of a fleet that was joined with them.
package sources

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
)

// The sources of cables.
const (
	KnownByIBNet = "ibnetdiscover"
	KnownByLLDP  = "lldp"
	KnownByProbe = "probe report"
)

// FromSubnet is an InfiniBand subnet. Reduction engines of switches are no hosts and left out.
func FromSubnet(s *Subnet, source string) *fleet.Network {
	n := &fleet.Network{Source: source}
	ids := make([]string, len(s.Nodes)) // of switches
	leaves := leavesOf(s)
	for i := range s.Nodes {
		node := &s.Nodes[i]
		if node.Kind == Switch {
			ids[i] = fmt.Sprintf("sw:%016x", uint64(node.GUID))
			n.Switches = append(n.Switches, fleet.Switch{ID: ids[i], Name: node.Name(), Kind: "ib", Description: node.Model()})
			if leaves[i] {
				n.Switches[len(n.Switches)-1].Tier = new(int)
			}
		}
	}
	for i := range s.Links {
		l := &s.Links[i]
		a, b := l.A, l.B // switches come first in a subnet
		if ids[b.Node] != "" {
			n.Links = append(n.Links, fleet.Link{A: ids[a.Node], APort: strconv.Itoa(a.Port), B: ids[b.Node], BPort: strconv.Itoa(b.Port), BytesPerSec: rateOf(l), Count: 1, Known: KnownByIBNet})
			continue
		}
		node := &s.Nodes[b.Node]
		if node.Kind != Adapter || node.Aggregation() {
			continue
		}
		c := fleet.Cable{GUID: hex(node.PortGUIDs[b.Port]), NodeGUID: hex(node.GUID), Description: node.Description, Known: KnownByIBNet}
		if c.Leaf = ids[a.Node]; c.Leaf != "" { // else two adapters back to back
			c.LeafPort = strconv.Itoa(a.Port)
		}
		n.Cables = append(n.Cables, c)
	}
	n.SetTiers()
	return n
}

func hex(g GUID) string {
	if g == 0 {
		return ""
	}
	return fmt.Sprintf("0x%016x", uint64(g))
}

func rateOf(l *Link) *topo.Rate {
	bytes, ok := l.BytesPerSec()
	if !ok {
		return nil
	}
	rate := topo.Rate(bytes)
	return &rate
}

// leavesOf says which switches have hosts.
func leavesOf(s *Subnet) []bool {
	neighbors, adapters := make([][]int, len(s.Nodes)), make([]int, len(s.Nodes))
	for i := range s.Links {
		a, b := s.Links[i].A.Node, s.Links[i].B.Node
		for _, x := range [2][2]int{{a, b}, {b, a}} {
			switch far := &s.Nodes[x[1]]; {
			case s.Nodes[x[0]].Kind != Switch:
			case far.Kind == Switch:
				neighbors[x[0]] = append(neighbors[x[0]], x[1])
			case far.Kind == Adapter && !far.Aggregation():
				adapters[x[0]]++
			}
		}
	}
	leaves := make([]bool, len(s.Nodes))
	for i := range s.Nodes {
		leaves[i] = adapters[i] > 0 && !aside(i, neighbors, adapters)
	}
	return leaves
}

// aside says whether the few adapters of a switch are management's, attached to a spine: nearly all its ports lead to
// switches, and these have adapters themselves.
func aside(i int, neighbors [][]int, adapters []int) bool {
	below := map[int]bool{}
	links := 0
	for _, j := range neighbors[i] {
		if adapters[j] > 0 {
			below[j] = true
			links++
		}
	}
	return len(below) >= 2 && 2*links > len(neighbors[i]) && 4*adapters[i] <= links
}

// Merge puts networks together. Of a cable or a link that several know the first counts; conflicts
// are those on which they disagree.
func Merge(list ...*fleet.Network) (n *fleet.Network, conflicts []string) {
	n = &fleet.Network{}
	var names []string
	switches := map[string]int{}
	cables := map[string]int{}
	linked := map[string]string{} // by pair of switches: the source that told of them
	for _, x := range list {
		names = append(names, x.Source)
		n.RailOnly = n.RailOnly || x.RailOnly
		for _, s := range x.Switches {
			i, ok := switches[s.ID]
			if !ok {
				switches[s.ID] = len(n.Switches)
				n.Switches = append(n.Switches, s)
				continue
			}
			have := &n.Switches[i]
			have.Name, have.Kind, have.Description = cmp.Or(have.Name, s.Name), cmp.Or(have.Kind, s.Kind), cmp.Or(have.Description, s.Description)
			if have.UnjoinedPorts = max(have.UnjoinedPorts, s.UnjoinedPorts); have.Tier == nil {
				have.Tier = s.Tier
			}
		}
		for _, c := range x.Cables {
			i, ok := -1, false
			for _, key := range keysOf(&c) {
				if i, ok = cables[key]; ok {
					break
				}
			}
			if !ok {
				i = len(n.Cables)
				n.Cables = append(n.Cables, c)
			} else if have := &n.Cables[i]; have.Leaf != c.Leaf && have.Leaf != "" && c.Leaf != "" {
				conflicts = append(conflicts, fmt.Sprintf("%s is on %s by %s, on %s by %s: the first counts", nameOf(&c), have.Leaf, have.Known, c.Leaf, c.Known))
			} else {
				fill(have, &c)
			}
			for _, key := range keysOf(&c) {
				if _, ok := cables[key]; !ok {
					cables[key] = i
				}
			}
		}
		for _, l := range x.Links {
			key := min(l.A, l.B) + "\x00" + max(l.A, l.B)
			if by, ok := linked[key]; ok && by != x.Source { // another source told of these links
				continue
			}
			linked[key] = x.Source
			n.Links = append(n.Links, l)
		}
	}
	n.Source = strings.Join(slices.Compact(names), " and ")
	n.SetTiers()
	return n, conflicts
}

// fill takes from another source what the first does not tell of a cable.
func fill(have, c *fleet.Cable) {
	if have.Leaf == "" {
		have.Leaf, have.Known = c.Leaf, c.Known
	}
	have.LeafPort = cmp.Or(have.LeafPort, c.LeafPort)
	have.Host, have.Port = cmp.Or(have.Host, c.Host), cmp.Or(have.Port, c.Port)
	have.GUID, have.NodeGUID, have.MAC = cmp.Or(have.GUID, c.GUID), cmp.Or(have.NodeGUID, c.NodeGUID), cmp.Or(have.MAC, c.MAC)
	have.Description = cmp.Or(have.Description, c.Description)
	if have.Rail == nil {
		have.Rail = c.Rail
	}
	if have.Plane == nil {
		have.Plane = c.Plane
	}
}

// keysOf are what tells a cable's port from others.
func keysOf(c *fleet.Cable) []string {
	var out []string
	for kind, id := range map[string]string{"guid ": c.GUID, "mac ": strings.ToLower(c.MAC)} {
		if id != "" {
			out = append(out, kind+id)
		}
	}
	if c.Host != "" {
		out = append(out, "port "+c.Host+"\x00"+c.Port)
	}
	slices.Sort(out)
	return out
}

// nameOf is a cable's port as a message names it, by what identifies it.
func nameOf(c *fleet.Cable) string {
	switch {
	case c.Host != "":
		return c.Host + "/" + c.Port
	case cmp.Or(c.GUID, c.NodeGUID) != "":
		return "adapter " + cmp.Or(c.GUID, c.NodeGUID)
	}
	return "interface " + c.MAC
}

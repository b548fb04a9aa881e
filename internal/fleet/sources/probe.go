package sources

import (
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/probe"
)

// FromProbe is what a report of "topoctl probe fabric" says of the network: the leaves of the ports that it
// measured, as its own fabric file had them, and the uplinks that it knew of.
func FromProbe(r *probe.Report, source string) *fleet.Network {
	n := &fleet.Network{Source: source}
	seen := map[string]bool{}
	at := map[string]int{}
	enter := func(name string) int {
		i, ok := at[name]
		if !ok {
			i = len(n.Switches)
			at[name] = i
			n.Switches = append(n.Switches, fleet.Switch{ID: name})
		}
		return i
	}
	linked := map[topo.LinkID]bool{}
	for i := range r.Links {
		l := &r.Links[i]
		switch {
		case l.Host != "":
			port, wire := strings.CutPrefix(string(l.Link), "port:")
			for _, on := range l.On {
				if leaf, ok := strings.CutPrefix(on, "leaf:"); ok && wire && !seen[l.Host+"\x00"+port] {
					seen[l.Host+"\x00"+port] = true
					n.Switches[enter(leaf)].Tier = new(int)
					n.Cables = append(n.Cables, fleet.Cable{Host: l.Host, Port: port, Leaf: leaf, Known: KnownByProbe})
				}
			}
		case l.Kind == probe.LinkUplink && !linked[l.Link]:
			leaf, spine := "", ""
			for _, on := range l.On {
				if name, ok := strings.CutPrefix(on, "leaf:"); ok {
					leaf = name
				}
				if name, ok := strings.CutPrefix(on, "spine:"); ok {
					spine = name
				}
			}
			if leaf == "" || spine == "" { // all uplinks of a leaf together
				continue
			}
			linked[l.Link] = true
			enter(leaf)
			enter(spine)
			// Parallel links are one in a report, with the rate of all.
			n.Links = append(n.Links, fleet.Link{A: leaf, B: spine, Count: 1, Known: KnownByProbe, BytesPerSec: l.BytesPerSec})
		}
	}
	n.SetTiers()
	return n
}

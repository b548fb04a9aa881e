package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Where describes a link: of a host, or of the fabric.
type Where struct {
	Host   int         // -1: of the fabric
	LinkID topo.LinkID // of a host
	Up     bool        // from B to A: towards the root, in from the wire; of the fabric from a leaf to a spine
	Port   topo.ID     // of a port's own wire
	Leaf   int         // of the fabric, and of a wire that is cabled; -1: none
	Spine  int         // of the fabric
	Number int         // of parallel uplinks
}

// Where describes a link.
func (c *Cluster) Where(l Link) Where {
	if n := c.fabric.Leaves * c.fabric.Spines * c.stride; int(l) < 2*n {
		w := Where{Host: -1, Up: l < c.down}
		at := int(l)
		if !w.Up {
			at -= n
		}
		w.Number = at % c.stride
		at /= c.stride
		w.Leaf, w.Spine = at/c.fabric.Spines, at%c.fabric.Spines
		return w
	}
	h := c.hostOf(l)
	k := c.hosts[h].kind
	at := l - c.hosts[h].base
	w := Where{Host: h, LinkID: k.lines[at].id, Up: at%2 == 1, Leaf: -1, Spine: -1}
	if p := k.lines[at].port; p >= 0 {
		w.Port = k.ports[p].ID
		if i, ok := c.leafOf[h][w.Port]; ok {
			w.Leaf = c.fabric.Cables[i].Leaf
		}
	}
	return w
}

// hostOf finds the host that a link belongs to.
func (c *Cluster) hostOf(l Link) int {
	at, _ := slices.BinarySearchFunc(c.hostsByLink, l, func(h int, l Link) int { return cmp.Compare(c.hosts[h].base, l+1) })
	return c.hostsByLink[at-1]
}

// Name describes a link in words, "n3 pcie:0000:18:00.0 up" or "leaf2 > spine0".
func (c *Cluster) Name(l Link) string {
	if l == NoLink {
		return "none"
	}
	w := c.Where(l)
	if w.Host < 0 {
		a, b := leafName(w.Leaf), fmt.Sprintf("spine%d", w.Spine)
		if !w.Up {
			a, b = b, a
		}
		if c.stride > 1 {
			return fmt.Sprintf("%s > %s #%d", a, b, w.Number)
		}
		return a + " > " + b
	}
	way := "down"
	if w.Up {
		way = "up"
	}
	if w.Port != "" {
		way = "out"
		if w.Up {
			way = "in"
		}
	}
	return fmt.Sprintf("%s %s %s", c.names[w.Host], w.LinkID, way)
}

// HostLink gives the directions of a link of a host: down (out of a port) and up.
func (c *Cluster) HostLink(host int, id topo.LinkID) ([]Link, error) {
	if err := c.checkHosts(host); err != nil {
		return nil, err
	}
	at, ok := c.hosts[host].kind.at[id]
	if !ok {
		return nil, pkgerr.Errorf("sim", "host %q has no link %q", c.names[host], id)
	}
	base := c.firstLink(host)
	return []Link{base + Link(at), base + Link(at) + 1}, nil
}

// HostLinks gives every link of a host, both directions.
func (c *Cluster) HostLinks(host int) ([]Link, error) {
	if err := c.checkHosts(host); err != nil {
		return nil, err
	}
	base := c.firstLink(host)
	out := make([]Link, len(c.hosts[host].kind.lines))
	for i := range out {
		out[i] = base + Link(i)
	}
	return out, nil
}

// Cable gives the directions of a port's own wire, to the leaf and from it.
func (c *Cluster) Cable(host int, port topo.ID) ([]Link, error) {
	if err := c.checkHosts(host); err != nil {
		return nil, err
	}
	k := c.hosts[host].kind
	i, ok := k.portAt[port]
	if !ok {
		return nil, pkgerr.Errorf("sim", "host %q has no port %q", c.names[host], port)
	}
	base := c.firstLink(host) + Link(k.wires[i][0]&^1)
	return []Link{base, base + 1}, nil
}

// NIC gives the links of a port's NIC: its wire and the PCIe link above it, both
// directions.
func (c *Cluster) NIC(host int, port topo.ID) ([]Link, error) {
	if _, err := c.Cable(host, port); err != nil {
		return nil, err
	}
	k := c.hosts[host].kind
	base := c.firstLink(host)
	var out []Link
	for _, l := range k.own[k.portAt[port]] {
		out = append(out, base+Link(l), base+Link(l)+1)
	}
	return out, nil
}

// Uplinks gives the links between a leaf and a spine: all that go up, then all
// that come down.
func (c *Cluster) Uplinks(leaf, spine int) ([]Link, error) {
	f := c.fabric
	if leaf < 0 || leaf >= f.Leaves || spine < 0 || spine >= f.Spines {
		return nil, pkgerr.Errorf("sim", "no link of leaf %d and spine %d: there are %d and %d", leaf, spine, f.Leaves, f.Spines)
	}
	var out []Link
	for _, first := range []Link{c.up, c.down} {
		for i := range c.parallels(leaf, spine) {
			out = append(out, c.between(first, leaf, spine)+Link(i))
		}
	}
	return out, nil
}

package sources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/fleet"
)

// Heard is what one host or switch hears of its neighbours.
type Heard struct {
	Host   string // as the fleet calls it, or the switch's own name
	Report *LLDPReport
}

// FromLLDP is what hosts and switches hear. A report is a host's where the fleet has a host of its name, else
// a switch's, which needs "lldpcli show chassis" beside it to be known as the one that hosts hear.
// left says what could not be used.
func FromLLDP(list []Heard, f *fleet.Fleet, source string) (n *fleet.Network, left []string) {
	x := lldpReader{n: &fleet.Network{Source: source}, hosts: map[string]bool{}, macs: map[string]string{}, switches: map[string]int{}, links: map[string]bool{}}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		x.hosts[h.Host] = true
		for k := range h.Ports {
			if mac := strings.ToLower(h.Ports[k].MAC); mac != "" {
				x.macs[mac] = h.Host + "/" + h.Ports[k].Port
			}
		}
	}
	for _, heard := range list {
		if x.hosts[heard.Host] {
			x.host(heard)
		}
	}
	for _, heard := range list {
		if !x.hosts[heard.Host] {
			x.switchSays(heard)
		}
	}
	x.n.SetTiers()
	return x.n, x.left
}

type lldpReader struct {
	n        *fleet.Network
	hosts    map[string]bool
	macs     map[string]string // of hosts' ports, to their names
	switches map[string]int
	links    map[string]bool
	left     []string
}

func (x *lldpReader) leave(format string, args ...any) {
	x.left = append(x.left, fmt.Sprintf(format, args...))
}

// host takes over what a host hears on its interfaces.
func (x *lldpReader) host(heard Heard) {
	on := map[string][]*Neighbor{}
	var order []string
	for i := range heard.Report.Neighbors {
		nb := &heard.Report.Neighbors[i]
		if on[nb.Interface] == nil {
			order = append(order, nb.Interface)
		}
		on[nb.Interface] = append(on[nb.Interface], nb)
	}
	for _, name := range order {
		list := slices.DeleteFunc(on[name], func(nb *Neighbor) bool {
			other, ours := x.macs[strings.ToLower(nb.Chassis.ID)]
			if !ours {
				other, ours = x.macs[strings.ToLower(nb.PortID)]
			}
			if ours {
				x.leave("%s/%s hears %s: a host, no switch", heard.Host, name, other)
			}
			return ours
		})
		switch {
		case len(list) == 0:
		case slices.ContainsFunc(list, func(nb *Neighbor) bool { return nb.Chassis.ID != list[0].Chassis.ID }):
			x.leave("%s/%s hears several neighbours, so a cable is not known: something between passes LLDP on", heard.Host, name)
		default:
			nb := list[0]
			x.n.Cables = append(x.n.Cables, fleet.Cable{Host: heard.Host, Port: name, Leaf: x.leaf(&nb.Chassis), LeafPort: nb.Port(), Known: KnownByLLDP})
		}
	}
}

// leaf enters a switch that a host hears.
func (x *lldpReader) leaf(c *Chassis) string {
	id := x.chassis(c)
	x.n.Switches[x.switches[id]].Tier = new(int)
	return id
}

// chassis enters a switch.
func (x *lldpReader) chassis(c *Chassis) string {
	id := "sw:" + strings.ToLower(strings.ReplaceAll(c.ID, ":", ""))
	i, ok := x.switches[id]
	if !ok {
		i = len(x.n.Switches)
		x.switches[id] = i
		x.n.Switches = append(x.n.Switches, fleet.Switch{ID: id, Name: c.Name, Kind: "ethernet", Description: c.Description})
	}
	s := &x.n.Switches[i]
	s.Name, s.Description = cmp.Or(s.Name, c.Name), cmp.Or(s.Description, c.Description)
	return id
}

// switchSays takes over the links of a switch to other switches; those to hosts are known from the hosts.
func (x *lldpReader) switchSays(heard Heard) {
	local := heard.Report.Local
	if local == nil {
		x.leave("%s: the fleet has no such host, and without \"lldpcli -f json show chassis\" it is not known which switch it is", heard.Host)
		return
	}
	a := x.chassis(local)
	for i := range heard.Report.Neighbors {
		nb := &heard.Report.Neighbors[i]
		if _, host := x.macs[strings.ToLower(nb.PortID)]; host || !nb.Chassis.Forwards() || x.hosts[nb.Chassis.Name] {
			continue
		}
		b := x.chassis(&nb.Chassis)
		l := fleet.Link{A: a, APort: nb.Interface, B: b, BPort: nb.Port(), Count: 1, Known: KnownByLLDP}
		ends := []string{a + "\x00" + l.APort, b + "\x00" + l.BPort} // the other switch may tell of it too
		slices.Sort(ends)
		key := strings.Join(ends, "\x00")
		if !x.links[key] {
			x.links[key] = true
			x.n.Links = append(x.n.Links, l)
		}
	}
}

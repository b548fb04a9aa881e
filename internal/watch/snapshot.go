package watch

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/counters"
	"github.com/topoctl/topoctl/internal/picture"
)

// snapshot is what a watch looks up in a topology.
type snapshot struct {
	ports []*port // those that others follow first
	byID  map[topo.ID]*port
	pcie  []*pcieLink
	ends  map[topo.ID]bool // the functions that report the state of one of these
	// sample is what the topology says of ports and links, as counters say it.
	sample counters.Sample
}

// port is a port of an RDMA device or an interface, as the topology has it.
type port struct {
	id     topo.ID
	rdma   bool
	leader topo.ID // whose events cover this one: a netdev's RDMA port, a VLAN's parent
	depth  int     // how many leaders are above
	rated  bool    // the rate is its own: neither a driver's constant nor its leader's
}

// pcieLink is a PCIe link with the functions that report its state.
type pcieLink struct {
	device topo.ID // what people know it by
	ends   []topo.ID
	idles  bool // a GPU's: its speed follows the load
}

// lanes is the state of a link; 0 is not known.
type lanes struct{ speed, width int }

func newSnapshot(t *topo.Topology) *snapshot {
	index := topo.NewIndex(t)
	x := &snapshot{byID: map[topo.ID]*port{}, ends: map[topo.ID]bool{}}
	x.addPorts(t, index)
	x.addNetdevs(t, index)
	for _, p := range x.ports {
		for at := p; at.leader != "" && x.byID[at.leader] != nil && p.depth < len(x.ports); at = x.byID[at.leader] {
			p.depth++
		}
	}
	slices.SortStableFunc(x.ports, func(a, b *port) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), topo.NaturalCompare(string(a.id), string(b.id)))
	})
	x.addLinks(t, index)
	return x
}

func (x *snapshot) add(p *port, state string, rate *topo.Rate) {
	if x.byID[p.id] == nil {
		x.byID[p.id] = p
		x.ports = append(x.ports, p)
		x.sample.Ports = append(x.sample.Ports, counters.Port{ID: p.id, State: state, BytesPerSec: rate})
	}
}

func (x *snapshot) addPorts(t *topo.Topology, index *topo.Index) {
	for i := range t.Ports {
		p := port{id: t.Ports[i].ID, rdma: true, rated: true}
		if r := index.RDMADevice(t.Ports[i].RDMA); r != nil && r.Software {
			p.rated = false
			if below := slices.Concat(t.Ports[i].Netdevs, r.Netdevs); len(below) > 0 {
				p.leader = topo.NetdevID(below[0])
			}
		}
		x.add(&p, t.Ports[i].State, t.Ports[i].BytesPerSec)
	}
}

// addNetdevs takes in the interfaces that leave the host, or this container.
func (x *snapshot) addNetdevs(t *topo.Topology, index *topo.Index) {
	hardware := rdmaPorts(t, index)
	for i := range t.Netdevs {
		n := &t.Netdevs[i]
		if n.Type == "loopback" || n.LinkKind == "bridge" || n.Virtual && n.Master != "" {
			continue // always there, or up and down as containers come and go
		}
		p := port{id: n.ID, leader: hardware[n.Name]}
		switch n.LinkKind {
		case "vlan", "macvlan", "ipvlan", "macvtap":
			if len(n.Lower) > 0 {
				p.leader = topo.NetdevID(n.Lower[0])
			}
		}
		p.rated = !n.Virtual && p.leader == ""
		x.add(&p, n.State, n.BytesPerSec)
	}
}

// rdmaPorts returns the RDMA port that is an interface's hardware, by the interface's name.
func rdmaPorts(t *topo.Topology, index *topo.Index) map[string]topo.ID {
	out := map[string]topo.ID{}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		if r.Software || r.PCI == "" {
			continue
		}
		ports := index.Ports(r.ID)
		for _, p := range ports {
			names := p.Netdevs
			if len(names) == 0 && len(ports) == 1 {
				names = r.Netdevs
			}
			for _, name := range names {
				out[name] = p.ID
			}
		}
	}
	return out
}

// addLinks finds the PCIe links of devices and of the bridges above them.
func (x *snapshot) addLinks(t *topo.Topology, index *topo.Index) {
	for i := range t.Links {
		l := &t.Links[i]
		head, up := index.PCIDevice(l.B), index.PCIDevice(l.A)
		if l.Kind != topo.LinkPCIe || head == nil || head.PF != "" {
			continue
		}
		link := &pcieLink{}
		for _, d := range index.Children(head.Parent) {
			if d.PF != "" || up == nil && d.BDF.Slot() != head.BDF.Slot() {
				continue // on a root bus each slot has a link of its own
			}
			x.addEnd(link, d)
			link.idles = link.idles || len(index.On(d.ID).GPUs) > 0 || picture.LeadsToGPU(index, d)
			if link.device == "" {
				link.device = deviceOn(index, d.ID)
			}
		}
		if up != nil && up.Role != topo.RoleUpstream {
			x.addEnd(link, up)
		}
		if head.Role == topo.RoleUpstream && link.device == "" {
			link.device = index.SwitchOf(head.ID).ID
		}
		if link.device != "" && len(link.ends) > 0 {
			x.pcie = append(x.pcie, link)
		}
	}
}

// addEnd adds a function that reports a link's state.
func (x *snapshot) addEnd(l *pcieLink, d *topo.PCIDevice) {
	if b := d.Believed(); b.SpeedMTs != nil || b.Width != nil {
		l.ends = append(l.ends, d.ID)
		x.ends[d.ID] = true
		x.sample.Links = append(x.sample.Links, counters.Link{ID: d.ID, SpeedMTs: b.SpeedMTs, Width: b.Width})
	}
}

func lanesOf(l *counters.Link) (out lanes) {
	if l.SpeedMTs != nil {
		out.speed = max(0, *l.SpeedMTs)
	}
	if l.Width != nil {
		out.width = max(0, *l.Width)
	}
	return out
}

// deviceOn is the device on a function that people know it by: the most important one.
func deviceOn(index *topo.Index, function topo.ID) topo.ID {
	switch on := index.On(function); {
	case len(on.GPUs) > 0:
		return on.GPUs[0].ID
	case len(on.RDMADevices) > 0:
		return on.RDMADevices[0].ID
	case len(on.Netdevs) > 0:
		return on.Netdevs[0].ID
	case len(on.NVMes) > 0:
		return on.NVMes[0].ID
	case len(on.NVSwitches) > 0:
		return on.NVSwitches[0].ID
	}
	return ""
}

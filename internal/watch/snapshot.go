package watch

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/picture"
)

// snapshot is what a watch looks up in a topology.
type snapshot struct {
	ports []*port // those that others follow first
	byID  map[topo.ID]*port
	pcie  map[topo.ID]pcieLink // by the function that reports the link's state
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

// pcieLink is the PCIe link above a function.
type pcieLink struct {
	device topo.ID // what people know it by
	idles  bool    // a GPU's: its speed follows the load
}

func newSnapshot(t *topo.Topology) *snapshot {
	index := topo.NewIndex(t)
	x := &snapshot{byID: map[topo.ID]*port{}, pcie: map[topo.ID]pcieLink{}}
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

// addLinks finds the PCIe links of devices and of the switches above them. Of the functions that share a link the first
// one reports it.
func (x *snapshot) addLinks(t *topo.Topology, index *topo.Index) {
	for i := range t.Links {
		l := &t.Links[i]
		head := index.PCIDevice(l.B)
		if l.Kind != topo.LinkPCIe || head == nil || head.PF != "" {
			continue
		}
		link := pcieLink{}
		for _, d := range index.Children(head.Parent) {
			if d.PF != "" || d.BDF.Slot() != head.BDF.Slot() {
				continue
			}
			link.idles = link.idles || len(index.On(d.ID).GPUs) > 0 || picture.LeadsToGPU(index, d)
			link.device = cmp.Or(link.device, deviceOn(index, d.ID))
		}
		if head.Role == topo.RoleUpstream && link.device == "" {
			link.device = index.SwitchOf(head.ID).ID
		}
		if b := head.Believed(); link.device != "" && (b.SpeedMTs != nil || b.Width != nil) {
			x.pcie[head.ID] = link
			x.sample.Links = append(x.sample.Links, counters.Link{ID: head.ID, SpeedMTs: b.SpeedMTs, Width: b.Width})
		}
	}
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

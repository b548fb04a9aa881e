package watch

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// index is what a watch looks up in a topology.
type index struct {
	ports []*port // those that others follow first
	byID  map[topo.ID]*port
	pcie  []*pcieLink
	// volatile are interfaces that come and go with containers.
	volatile map[string]bool
}

// port is a port of an RDMA device or an interface, as the topology has it.
type port struct {
	id     topo.ID
	rdma   bool
	leader topo.ID // what tells that this one went down: a netdev's RDMA port, a VLAN's parent
	depth  int     // how many leaders are above
	state  string
	rate   *topo.Rate
	rated  bool // the rate is its own: neither a driver's constant nor its leader's
}

// pcieLink is a PCIe link with the functions that report its state.
type pcieLink struct {
	face  topo.ID // what people know it by
	ends  []topo.ID
	idles bool // a GPU's: its speed follows the load
	read  map[topo.ID]lanes
}

// lanes is the state of a link; 0 is not known.
type lanes struct{ speed, width int }

func newIndex(t *topo.Topology) *index {
	x := &index{byID: map[topo.ID]*port{}, volatile: map[string]bool{}}
	x.addPorts(t)
	x.addNetdevs(t)
	for _, p := range x.ports {
		for at := p; at.leader != "" && x.byID[at.leader] != nil && p.depth < len(x.ports); at = x.byID[at.leader] {
			p.depth++
		}
	}
	slices.SortStableFunc(x.ports, func(a, b *port) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), topo.NaturalCompare(string(a.id), string(b.id)))
	})
	x.addLinks(t)
	return x
}

func (x *index) add(p *port) {
	if x.byID[p.id] == nil {
		x.byID[p.id] = p
		x.ports = append(x.ports, p)
	}
}

func (x *index) addPorts(t *topo.Topology) {
	devices := map[topo.ID]*topo.RDMADevice{}
	for i := range t.RDMADevices {
		devices[t.RDMADevices[i].ID] = &t.RDMADevices[i]
	}
	for i := range t.Ports {
		p := port{id: t.Ports[i].ID, rdma: true, state: t.Ports[i].State, rate: t.Ports[i].BytesPerSec, rated: true}
		if r := devices[t.Ports[i].RDMA]; r != nil && r.Software {
			p.rated = false
			if below := slices.Concat(t.Ports[i].Netdevs, r.Netdevs); len(below) > 0 {
				p.leader = topo.NetdevID(below[0])
			}
		}
		x.add(&p)
	}
}

// addNetdevs takes in the interfaces that leave the host, or this container.
func (x *index) addNetdevs(t *topo.Topology) {
	hardware := rdmaPorts(t)
	for i := range t.Netdevs {
		n := &t.Netdevs[i]
		x.volatile[string(n.ID)] = n.LinkKind == "veth"
		if n.Type == "loopback" || n.LinkKind == "bridge" || n.Virtual && n.Master != "" {
			continue // always there, or up and down as containers come and go
		}
		p := port{id: n.ID, state: n.State, leader: hardware[n.Name], rate: n.BytesPerSec}
		switch n.LinkKind {
		case "vlan", "macvlan", "ipvlan", "macvtap":
			if len(n.Lower) > 0 {
				p.leader = topo.NetdevID(n.Lower[0])
			}
		}
		p.rated = !n.Virtual && p.leader == ""
		x.add(&p)
	}
}

// rdmaPorts gives the RDMA port that is an interface's hardware, by the interface's name.
func rdmaPorts(t *topo.Topology) map[string]topo.ID {
	ports := map[topo.ID][]*topo.Port{}
	for i := range t.Ports {
		ports[t.Ports[i].RDMA] = append(ports[t.Ports[i].RDMA], &t.Ports[i])
	}
	out := map[string]topo.ID{}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		if r.Software || r.PCI == "" {
			continue
		}
		for _, p := range ports[r.ID] {
			names := p.Netdevs
			if len(names) == 0 && len(ports[r.ID]) == 1 {
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
func (x *index) addLinks(t *topo.Topology) {
	faces, gpus := faces(t)
	functions := map[topo.ID]*topo.PCIDevice{}
	below := map[topo.ID][]*topo.PCIDevice{}
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		functions[d.ID] = d
		below[d.Parent] = append(below[d.Parent], d)
	}
	for i := range t.Links {
		l := &t.Links[i]
		head := functions[l.B]
		if l.Kind != topo.LinkPCIe || head == nil || head.PF != "" {
			continue
		}
		link := &pcieLink{read: map[topo.ID]lanes{}}
		for _, d := range below[head.Parent] {
			if d.PF != "" || functions[l.A] == nil && d.BDF.Slot() != head.BDF.Slot() {
				continue // on a root bus each slot has a link of its own
			}
			link.end(d)
			link.idles = link.idles || gpus[d.ID] || amdGPUSwitch(d, below, gpus)
			if link.face == "" {
				link.face = faces[d.ID]
			}
		}
		if up := functions[l.A]; up != nil && up.Role != topo.RoleUpstream {
			link.end(up)
		}
		if head.Role == topo.RoleUpstream && link.face == "" {
			link.face = topo.SwitchID(head.BDF)
		}
		if link.face != "" && len(link.read) > 0 {
			x.pcie = append(x.pcie, link)
		}
	}
}

// end adds a function that reports the link's state.
func (l *pcieLink) end(d *topo.PCIDevice) {
	if b := d.Believed(); b.SpeedMTs != nil || b.Width != nil {
		l.ends = append(l.ends, d.ID)
		l.read[d.ID] = lanesOf(b.SpeedMTs, b.Width)
	}
}

func lanesOf(speed, width *int) lanes {
	value := func(p *int) int {
		if p == nil || *p < 0 {
			return 0
		}
		return *p
	}
	return lanes{value(speed), value(width)}
}

// faces names functions by the device that people know, the most important first, and says
// which are GPUs.
func faces(t *topo.Topology) (faces map[topo.ID]topo.ID, gpus map[topo.ID]bool) {
	faces, gpus = map[topo.ID]topo.ID{}, map[topo.ID]bool{}
	name := func(function, id topo.ID) {
		if function != "" && faces[function] == "" {
			faces[function] = id
		}
	}
	for i := range t.GPUs {
		name(t.GPUs[i].PCI, t.GPUs[i].ID)
		gpus[t.GPUs[i].PCI] = true
	}
	for i := range t.RDMADevices {
		name(t.RDMADevices[i].PCI, t.RDMADevices[i].ID)
	}
	for i := range t.Netdevs {
		name(t.Netdevs[i].PCI, t.Netdevs[i].ID)
	}
	for i := range t.NVMes {
		name(t.NVMes[i].PCI, t.NVMes[i].ID)
	}
	for i := range t.NVSwitches {
		name(t.NVSwitches[i].PCI, t.NVSwitches[i].ID)
	}
	return faces, gpus
}

// amdGPUSwitch knows the upstream port of the switch that AMD builds into a GPU's card: the
// link above it is the GPU's, which idling slows down.
func amdGPUSwitch(up *topo.PCIDevice, below map[topo.ID][]*topo.PCIDevice, gpus map[topo.ID]bool) bool {
	if up.Role != topo.RoleUpstream || up.Vendor != "0x1022" && up.Vendor != "0x1002" {
		return false
	}
	n := 0
	for _, down := range below[up.ID] {
		for _, d := range below[down.ID] {
			if gpus[d.ID] {
				n++
			}
		}
	}
	return n == 1
}

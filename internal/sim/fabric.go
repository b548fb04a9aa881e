package sim

import (
	"cmp"
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// Fabric describes the network between the hosts: leaf switches that ports are cabled
// to, and spines that join the leaves. Every leaf has the same links to every spine,
// except those in Unequal.
type Fabric struct {
	Leaves int
	Spines int // 0: leaves are not connected; 1 may be a core switch
	// Uplinks is how many links each leaf has to each spine; 0 is 1.
	Uplinks int
	// UplinkBytesPerSec is the rate of each of them in each direction; 0: unknown, limits
	// nothing.
	UplinkBytesPerSec topo.Rate
	// Unequal are pairs of a leaf and a spine with other links, each pair once.
	Unequal []Uplink
	Cables  []Cable
	// RailOnly says that rails are separate: pathsel is told that ports of
	// different rails do not reach each other.
	RailOnly bool
}

// Uplink is the links between a leaf and a spine.
type Uplink struct {
	Leaf, Spine int
	Links       int       // parallel ones; 0: none
	BytesPerSec topo.Rate // of each, in each direction; 0: unknown, limits nothing
}

// Cable joins a port of a host to a leaf.
type Cable struct {
	Host int
	Port topo.ID
	Leaf int
	Rail int // -1: not known
	// BytesPerSec bounds its rate; 0: by the port only.
	BytesPerSec topo.Rate
}

// One-way latencies, assumed: a write over one switch takes about 1 us and its round
// trip 2.
const (
	cableNS  = 400 // of a cable with its port
	uplinkNS = 100
	switchNS = 250
)

// Shape describes a fabric of equal hosts.
type Shape struct {
	Hosts int
	Ports []topo.ID // of each host, in the order of rails
	// PortBytesPerSec is the rate of a port, and of each uplink.
	PortBytesPerSec topo.Rate
	// HostsPerGroup share leaves: with rails a group has one leaf for each port, by
	// host it has one leaf. 0: with rails all hosts, by host 4.
	HostsPerGroup int
	Spines        int // 0: none, leaves are not joined
	// Oversubscription is the total rate of a leaf's ports divided by that of its uplinks:
	// 1 (also 0) is non-blocking, 2 is half of that.
	Oversubscription float64
}

// RailOptimized cables port i of every host of a group to leaf i of the group.
// Without spines it is rail-only.
func (s Shape) RailOptimized() (*Fabric, error) {
	per := cmp.Or(s.HostsPerGroup, s.Hosts)
	return s.build(per, per, func(host, port int) int { return host/max(per, 1)*len(s.Ports) + port })
}

// ByHost cables all ports of a host to one leaf.
func (s Shape) ByHost() (*Fabric, error) {
	per := cmp.Or(s.HostsPerGroup, 4)
	return s.build(per, per*len(s.Ports), func(host, _ int) int { return host / max(per, 1) })
}

// build makes a fabric of leaves with a number of ports each.
func (s Shape) build(group, ports int, leaf func(host, port int) int) (*Fabric, error) {
	switch {
	case s.Hosts < 1 || len(s.Ports) == 0:
		return nil, pkgerr.Errorf("sim", "fabric of %d hosts with %d ports: want at least one of each", s.Hosts, len(s.Ports))
	case group < 1 || s.Spines < 0 || s.Oversubscription < 0 || s.PortBytesPerSec < 0:
		return nil, pkgerr.New("sim", "fabric: a number below 0")
	}
	f := &Fabric{Spines: s.Spines, RailOnly: s.Spines == 0 && leaf(0, len(s.Ports)-1) != leaf(0, 0)}
	for h := range s.Hosts {
		for p, id := range s.Ports {
			l := leaf(h, p)
			f.Leaves = max(f.Leaves, l+1)
			f.Cables = append(f.Cables, Cable{Host: h, Port: id, Leaf: l, Rail: p, BytesPerSec: s.PortBytesPerSec})
		}
	}
	if s.Spines > 0 {
		want := float64(ports) / max(cmp.Or(s.Oversubscription, 1), 1e-6) // uplinks of the rate of a port
		f.Uplinks = max(1, int(want/float64(s.Spines)+0.5))
		f.UplinkBytesPerSec = topo.Rate(want * float64(s.PortBytesPerSec) / float64(s.Spines*f.Uplinks))
	}
	return f, nil
}

// File is the fabric as a fabric file would describe it, for pathsel. names are the hosts'
// names by index; unknown rails are left out.
func (f *Fabric) File(names []string) *pathsel.Fabric {
	out := &pathsel.Fabric{Schema: pathsel.SchemaFabric, RailOnly: f.RailOnly}
	at := map[int]int{}
	for _, c := range f.Cables {
		if c.Host < 0 || c.Host >= len(names) {
			continue
		}
		i, ok := at[c.Host]
		if !ok {
			i = len(out.Hosts)
			at[c.Host] = i
			out.Hosts = append(out.Hosts, pathsel.FabricHost{Host: names[c.Host]})
		}
		p := pathsel.FabricPort{Port: c.Port.Name(), Leaf: leafName(c.Leaf)}
		if c.Rail >= 0 {
			rail := c.Rail
			p.Rail = &rail
		}
		out.Hosts[i].Ports = append(out.Hosts[i].Ports, p)
	}
	out.Uplinks = f.uplinks()
	return out
}

// uplinks are the links between leaves and spines as a fabric file lists them.
func (f *Fabric) uplinks() []pathsel.FabricUplink {
	other := f.unequal()
	var out []pathsel.FabricUplink
	for leaf := range f.Leaves {
		for spine := range f.Spines {
			u := f.uplink(other, leaf, spine)
			if u.Links == 0 {
				continue
			}
			var rate *topo.Rate
			if u.BytesPerSec > 0 {
				rate = &u.BytesPerSec
			}
			out = append(out, pathsel.FabricUplink{Leaf: leafName(leaf), Spine: fmt.Sprintf("spine%d", spine), Count: u.Links, BytesPerSec: rate})
		}
	}
	return out
}

// unequal are those of Unequal by leaf and spine.
func (f *Fabric) unequal() map[[2]int]Uplink {
	out := make(map[[2]int]Uplink, len(f.Unequal))
	for _, u := range f.Unequal {
		out[[2]int{u.Leaf, u.Spine}] = u
	}
	return out
}

// uplink is what joins a leaf and a spine, other being unequal's.
func (f *Fabric) uplink(other map[[2]int]Uplink, leaf, spine int) Uplink {
	if u, ok := other[[2]int{leaf, spine}]; ok {
		return u
	}
	return Uplink{leaf, spine, max(f.Uplinks, 1), f.UplinkBytesPerSec}
}

// maxLinks is how many parallel links a leaf and a spine have at most.
func (f *Fabric) maxLinks() int {
	most := max(f.Uplinks, 1)
	for _, u := range f.Unequal {
		most = max(most, u.Links)
	}
	return most
}

func leafName(i int) string { return fmt.Sprintf("leaf%d", i) }

// check checks a fabric for a number of hosts.
func (f *Fabric) check(hosts int) error {
	const most = 1 << 20
	if f.Leaves < 0 || f.Spines < 0 || f.Uplinks < 0 || f.UplinkBytesPerSec < 0 {
		return pkgerr.New("sim", "fabric: a number below 0")
	}
	if links := f.maxLinks(); f.Leaves > most || f.Spines > most || links > most || f.Leaves*f.Spines > most || f.Leaves*f.Spines*links > most {
		return pkgerr.Errorf("sim", "fabric of %d leaves and %d spines with %d links each: more than %d uplinks", f.Leaves, f.Spines, links, most)
	}
	seen := map[[2]int]bool{}
	for _, u := range f.Unequal {
		at := [2]int{u.Leaf, u.Spine}
		if u.Leaf < 0 || u.Leaf >= f.Leaves || u.Spine < 0 || u.Spine >= f.Spines || u.Links < 0 || u.BytesPerSec < 0 || seen[at] {
			return pkgerr.Errorf("sim", "fabric: %d links of %d bytes/s from leaf %d to spine %d: want each of %d leaves and %d spines once, and nothing below 0",
				u.Links, u.BytesPerSec, u.Leaf, u.Spine, f.Leaves, f.Spines)
		}
		seen[at] = true
	}
	for _, c := range f.Cables {
		switch {
		case c.Host < 0 || c.Host >= hosts:
			return pkgerr.Errorf("sim", "fabric: cable of host %d: there are %d", c.Host, hosts)
		case c.Leaf < 0 || c.Leaf >= f.Leaves:
			return pkgerr.Errorf("sim", "fabric: port %q of host %d is on leaf %d: there are %d", c.Port, c.Host, c.Leaf, f.Leaves)
		case c.BytesPerSec < 0:
			return pkgerr.Errorf("sim", "fabric: port %q of host %d: a rate below 0", c.Port, c.Host)
		}
	}
	return nil
}

// hash mixes numbers deterministically, as a switch hashes addresses and ports.
func hash(seed uint64, values ...uint64) uint64 {
	h := seed ^ 0x9e3779b97f4a7c15
	for _, v := range values {
		h ^= v
		h ^= h >> 30
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 27
		h *= 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

package sim

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// Fabric describes the network between the hosts: leaf switches that ports are cabled
// to, and spines that join the leaves.
type Fabric struct {
	Leaves  int
	Spines  int      // 0: leaves are not connected; 1 may be a core switch
	Uplinks []Uplink // a leaf and a spine that are not listed are not joined
	Cables  []Cable
	// RailOnly says that rails are separate: pathsel is told that ports of
	// different rails do not reach each other.
	RailOnly bool
}

// Uplink is the parallel links between a leaf and a spine, at least one.
type Uplink struct {
	Leaf, Spine int
	Links       int
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
	for _, u := range f.Uplinks {
		var rate *topo.Rate
		if u.BytesPerSec > 0 {
			rate = &u.BytesPerSec
		}
		out.Uplinks = append(out.Uplinks, pathsel.FabricUplink{Leaf: leafName(u.Leaf), Spine: fmt.Sprintf("spine%d", u.Spine), Count: u.Links, BytesPerSec: rate})
	}
	return out
}

// equal says whether every leaf has the same links to every spine.
func (f *Fabric) equal() bool {
	return len(f.Uplinks) == f.Leaves*f.Spines && !slices.ContainsFunc(f.Uplinks, func(u Uplink) bool {
		return u.Links != f.Uplinks[0].Links || u.BytesPerSec != f.Uplinks[0].BytesPerSec
	})
}

func leafName(i int) string { return fmt.Sprintf("leaf%d", i) }

// check checks a fabric for a number of hosts.
func (f *Fabric) check(hosts int) error {
	const most = 1 << 20
	if f.Leaves < 0 || f.Spines < 0 {
		return pkgerr.New("sim", "fabric: a number below 0")
	}
	seen, links := map[[2]int]bool{}, 0
	for _, u := range f.Uplinks {
		at := [2]int{u.Leaf, u.Spine}
		if u.Leaf < 0 || u.Leaf >= f.Leaves || u.Spine < 0 || u.Spine >= f.Spines || u.Links < 1 || u.BytesPerSec < 0 || seen[at] {
			return pkgerr.Errorf("sim", "fabric: %d links of %d bytes/s from leaf %d to spine %d: want each of %d leaves and %d spines once, a link at least and no rate below 0",
				u.Links, u.BytesPerSec, u.Leaf, u.Spine, f.Leaves, f.Spines)
		}
		seen[at] = true
		if links += min(u.Links, most+1); links > most {
			return pkgerr.Errorf("sim", "fabric: more than %d uplinks", most)
		}
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

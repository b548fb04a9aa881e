package sim

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// Spec describes a cluster.
type Spec struct {
	Hosts  []HostSpec
	Fabric *Fabric // nil: hosts are not connected
	Seed   uint64
}

// HostSpec is one host: a unique name and its kind.
type HostSpec struct {
	Name string
	Kind *Kind
}

// Cluster is hosts and a fabric with one virtual clock.
type Cluster struct {
	*Net
	hosts  []host
	names  []string
	fabric *Fabric
	file   *pathsel.Fabric
	seed   uint64
	joined map[[2]int]bundle // by leaf and spine
	equal  bool              // every leaf and spine alike
	leafOf []map[topo.ID]int // the cable of each port, by host

	portListeners []func(host, port int, up bool)
	pairs         map[[2]int]*pathsel.Pair
}

// bundle is the parallel links that join a leaf and a spine, the first of each direction.
type bundle struct {
	up, down Link
	links    int
}

type host struct {
	kind *Kind
	base Link // of its links, NoLink until something crosses one
}

// New builds a cluster. Links of hosts are created when they are first needed.
func New(s Spec) (*Cluster, error) {
	if len(s.Hosts) == 0 {
		return nil, pkgerr.New("sim", "no hosts")
	}
	f := s.Fabric
	if f == nil {
		f = &Fabric{}
	}
	if err := f.check(len(s.Hosts)); err != nil {
		return nil, err
	}
	c := &Cluster{Net: NewNet(), fabric: f, seed: s.Seed, joined: map[[2]int]bundle{}, equal: f.equal(),
		leafOf: make([]map[topo.ID]int, len(s.Hosts)), pairs: map[[2]int]*pathsel.Pair{}}
	seen := map[string]bool{}
	for i, h := range s.Hosts {
		switch {
		case h.Kind == nil:
			return nil, pkgerr.Errorf("sim", "host %d %q has no kind", i, h.Name)
		case h.Name == "" || seen[h.Name]:
			return nil, pkgerr.Errorf("sim", "host %d: %q: want a name of its own", i, h.Name)
		}
		seen[h.Name] = true
		c.names = append(c.names, h.Name)
		c.hosts = append(c.hosts, host{h.Kind, NoLink})
	}
	for i, x := range f.Cables {
		if _, ok := c.hosts[x.Host].kind.portAt[x.Port]; !ok {
			return nil, pkgerr.Errorf("sim", "fabric: host %q has no port %q", c.names[x.Host], x.Port)
		}
		if c.leafOf[x.Host] == nil {
			c.leafOf[x.Host] = map[topo.ID]int{}
		}
		if _, twice := c.leafOf[x.Host][x.Port]; twice {
			return nil, pkgerr.Errorf("sim", "fabric: port %q of host %q is cabled twice", x.Port, c.names[x.Host])
		}
		c.leafOf[x.Host][x.Port] = i
	}
	c.file = f.File(c.names)
	c.addUplinks()
	return c, nil
}

func (c *Cluster) addUplinks() {
	for _, u := range c.fabric.Uplinks {
		b := bundle{Link(c.Links()), Link(c.Links() + u.Links), u.Links}
		for range 2 * u.Links {
			c.AddLink(cmp.Or(u.BytesPerSec, -1), uplinkNS+switchNS)
		}
		c.joined[[2]int{u.Leaf, u.Spine}] = b
	}
}

// Names are the hosts' names, by index.
func (c *Cluster) Names() []string { return c.names }

// Kind is the kind of a host.
func (c *Cluster) Kind(host int) *Kind { return c.hosts[host].kind }

// File describes the cluster as a fabric file does.
func (c *Cluster) File() *pathsel.Fabric { return c.file }

// Pair is pathsel's view of two hosts, or of one with itself.
func (c *Cluster) Pair(local, remote int) (*pathsel.Pair, error) {
	key := [2]int{local, remote}
	if p := c.pairs[key]; p != nil {
		return p, nil
	}
	if !c.hasHost(local) || !c.hasHost(remote) {
		return nil, c.checkHosts(local, remote)
	}
	there := c.hosts[remote].kind.there
	if local == remote {
		there = c.hosts[local].kind.here
	}
	p, err := pathsel.Connect(c.hosts[local].kind.here, there, pathsel.PairOptions{Fabric: c.file, LocalName: c.names[local], RemoteName: c.names[remote]})
	if err != nil {
		return nil, pkgerr.Errorf("sim", "%w", err)
	}
	c.pairs[key] = p
	return p, nil
}

func (c *Cluster) hasHost(host int) bool { return host >= 0 && host < len(c.hosts) }

func (c *Cluster) checkHosts(hosts ...int) error {
	for _, h := range hosts {
		if !c.hasHost(h) {
			return pkgerr.Errorf("sim", "no host %d: there are %d", h, len(c.hosts))
		}
	}
	return nil
}

// firstLink is the first link of a host, whose links it creates if they do not exist yet.
func (c *Cluster) firstLink(h int) Link {
	x := &c.hosts[h]
	if x.base != NoLink {
		return x.base
	}
	k := x.kind
	x.base = Link(c.Links())
	for i := range k.lines {
		c.AddLink(k.lines[i], 0)
	}
	for i := range k.ports {
		c.applyCable(h, i)
	}
	return x.base
}

// applyCable sets rate and latency of a port's wire by its cable. A virtual function uses
// the cable of its physical function.
func (c *Cluster) applyCable(h, port int) {
	k := c.hosts[h].kind
	own := k.wires[port][0] &^ 1
	at, ok := c.leafOf[h][k.ports[port].ID]
	if !ok {
		return
	}
	most := c.fabric.Cables[at].BytesPerSec
	for way := range int32(2) {
		l := c.hosts[h].base + Link(own+way)
		if most > 0 {
			c.capacities[l] = min(c.capacities[l], capacity(most))
		}
		c.links[l].latency = cableNS
		if way == 1 { // the leaf sends it
			c.links[l].latency += switchNS
		}
	}
}

// End is one end of a flow: memory at a location of a host and the port that it is
// reached by. Without a port the flow stays within the host; without a location
// it begins and ends at the port.
type End struct {
	Host     int
	Location pathsel.Location
	Port     topo.ID
}

// Path lists the links that data crosses from one end to the other. The spine is drawn by
// a hash of the ports and the entropy, as a switch hashes a connection's addresses: equal
// arguments give equal paths.
func (c *Cluster) Path(from, to End, entropy uint64) ([]Link, error) {
	if err := c.checkHosts(from.Host, to.Host); err != nil {
		return nil, err
	}
	if (from.Port == "") != (to.Port == "") {
		return nil, pkgerr.Errorf("sim", "%s to %s: want a port at both ends or at neither", c.endName(from), c.endName(to))
	}
	if from.Port == "" {
		return c.inside(from, to)
	}
	out, in := c.hosts[from.Host].kind.toWire(from.Location, from.Port), c.hosts[to.Host].kind.toWire(to.Location, to.Port)
	if err := errors.Join(out.err, in.err); err != nil {
		return nil, fmt.Errorf("%w (%s to %s)", err, c.endName(from), c.endName(to))
	}
	loop := from.Host == to.Host && from.Port == to.Port
	var path []Link
	base := c.firstLink(from.Host)
	for _, l := range trim(out.lines, c.hosts[from.Host].kind, from.Port, loop) {
		path = append(path, base+Link(l))
	}
	if !loop {
		var err error
		if path, err = c.across(path, from, to, entropy); err != nil {
			return nil, err
		}
	}
	base = c.firstLink(to.Host)
	lines := trim(in.lines, c.hosts[to.Host].kind, to.Port, loop)
	for i := len(lines) - 1; i >= 0; i-- {
		path = append(path, base+Link(lines[i]^1))
	}
	return path, nil
}

// trim removes the wires for a port that talks to itself.
func trim(lines []int32, k *Kind, port topo.ID, loop bool) []int32 {
	if loop {
		return lines[:len(lines)-len(k.wires[k.portAt[port]])]
	}
	return lines
}

// inside is the way between two memories of one host.
func (c *Cluster) inside(from, to End) ([]Link, error) {
	if from.Host != to.Host {
		return nil, pkgerr.Errorf("sim", "%s to %s: two hosts, and no ports are named", c.endName(from), c.endName(to))
	}
	w := c.hosts[from.Host].kind.within(from.Location.Node(), to.Location.Node())
	if w.err != nil {
		return nil, fmt.Errorf("%w (host %q)", w.err, c.names[from.Host])
	}
	base, path := c.firstLink(from.Host), make([]Link, 0, len(w.lines))
	for _, l := range w.lines {
		path = append(path, base+Link(l))
	}
	return path, nil
}

// cable is the cable of a port: -1 is none.
func (c *Cluster) cable(e End) int {
	k := c.hosts[e.Host].kind
	for id := e.Port; id != ""; id = k.ports[k.portAt[id]].PF {
		if i, ok := c.leafOf[e.Host][id]; ok {
			return i
		}
	}
	return -1
}

// across adds the links between leaves.
func (c *Cluster) across(path []Link, from, to End, entropy uint64) ([]Link, error) {
	a, b := c.cable(from), c.cable(to)
	if a < 0 || b < 0 {
		return nil, pkgerr.Errorf("sim", "%s to %s: a port is not cabled", c.endName(from), c.endName(to))
	}
	f := c.fabric
	src, dst := f.Cables[a].Leaf, f.Cables[b].Leaf
	if src == dst {
		return path, nil
	}
	if f.Spines == 0 {
		return nil, pkgerr.Errorf("sim", "%s to %s: %s and %s are not connected", c.endName(from), c.endName(to), leafName(src), leafName(dst))
	}
	key := []uint64{uint64(a), uint64(b), entropy}
	spine, joined := c.spine(src, dst, hash(c.seed, append(key, 1)...))
	if !joined {
		return nil, pkgerr.Errorf("sim", "%s to %s: no spine connects %s and %s", c.endName(from), c.endName(to), leafName(src), leafName(dst))
	}
	up, down := c.joined[[2]int{src, spine}], c.joined[[2]int{dst, spine}]
	return append(path, up.up+Link(hash(c.seed, append(key, 2)...)%uint64(up.links)), down.down+Link(hash(c.seed, append(key, 3)...)%uint64(down.links))), nil
}

// spine draws one that joins two leaves, if there is any. Where their links are unequal, a spine
// is weighted by the number of links that the first leaf has to it, as with ECMP.
func (c *Cluster) spine(src, dst int, h uint64) (int, bool) {
	if c.equal {
		return int(h % uint64(c.fabric.Spines)), true
	}
	var joining []int
	for s := range c.fabric.Spines {
		for range c.joined[[2]int{src, s}].links * min(c.joined[[2]int{dst, s}].links, 1) {
			joining = append(joining, s)
		}
	}
	if joining == nil {
		return 0, false
	}
	return joining[h%uint64(len(joining))], true
}

func (c *Cluster) endName(e End) string {
	var b strings.Builder
	if c.hasHost(e.Host) {
		b.WriteString(c.names[e.Host])
	} else {
		fmt.Fprintf(&b, "host %d", e.Host)
	}
	for _, s := range []string{string(e.Location), e.Port.Name()} {
		if s != "" {
			b.WriteString(" " + s)
		}
	}
	return b.String()
}

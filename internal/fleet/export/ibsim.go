package export

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/sources"
	"github.com/topoctl/topoctl/internal/text"
)

// simNode is a node of ibsim's network.
type simNode struct {
	letter string // "S" of a switch, "H" of an adapter
	guid   string
	name   string
	ports  []simPort
}

// simPort is a cable seen from one of its ends.
type simPort struct {
	port    int
	far     *simNode
	farPort int
}

func newSimNode(letter string, guid sources.GUID, name string) *simNode {
	return &simNode{letter: letter, guid: fmt.Sprintf("%016x", uint64(guid)), name: plainName(name)}
}

// plug adds a cable to both of its ends.
func plug(a *simNode, aPort int, b *simNode, bPort int) {
	a.ports = append(a.ports, simPort{aPort, b, bPort})
	b.ports = append(b.ports, simPort{bPort, a, aPort})
}

// Ibsim writes the InfiniBand fabric as ibsim reads it: the text of ibnetdiscover. The simulator keeps
// GUIDs and names; it has no rates, and gives the port of an adapter the GUID after its node's.
func Ibsim(f *fleet.Fleet) Output {
	s := simWriter{switches: map[string]*simNode{}}
	for i := range f.Switches {
		sw := &f.Switches[i]
		guid, ok := sources.ParseGUID(strings.TrimPrefix(sw.ID, "sw:"))
		if !ok || sw.Kind == "ethernet" {
			s.left = append(s.left, "switch "+cmp.Or(sw.Name, sw.ID)+" (no GUID)")
			continue
		}
		s.switches[sw.ID] = newSimNode("S", guid, cmp.Or(sw.Name, sw.ID))
		s.nodes = append(s.nodes, s.switches[sw.ID])
	}
	for i := range f.Links {
		s.link(&f.Links[i])
	}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		for k := range h.Ports {
			s.cable(h, &h.Ports[k])
		}
	}
	var out bytes.Buffer
	for _, n := range s.nodes {
		n.write(&out)
	}
	o := Output{Data: out.Bytes(), Notes: []string{"ibsim has no rates: every link is 4x SDR there"}}
	if len(s.left) > 0 {
		o.Notes = append(o.Notes, "left out: "+text.List(s.left, 8))
	}
	return o
}

type simWriter struct {
	switches map[string]*simNode
	nodes    []*simNode // the switches, then the adapters
	left     []string   // what has no place
}

// link adds the cable between two switches, if the numbers of its ports are known.
func (s *simWriter) link(l *fleet.Link) {
	a, b := s.switches[l.A], s.switches[l.B]
	aPort, bPort := portNumber(l.APort), portNumber(l.BPort)
	if a == nil || b == nil || aPort == 0 || bPort == 0 || l.Count > 1 || l.Down {
		s.left = append(s.left, fmt.Sprintf("the link from %s to %s (it needs one port number at either end)", l.A, l.B))
		return
	}
	plug(a, aPort, b, bPort)
}

// cable adds the cable of a host's port.
func (s *simWriter) cable(h *fleet.Host, p *fleet.Port) {
	if p.Leaf == "" {
		return
	}
	leaf, leafPort := s.switches[p.Leaf], portNumber(p.LeafPort)
	guid, ok := sources.ParseGUID(cmp.Or(p.NodeGUID, p.GUID))
	number := 1
	if _, n, ok := strings.Cut(p.Port, "/"); ok {
		number = portNumber(n)
	}
	if leaf == nil || leafPort == 0 || !ok || number == 0 {
		s.left = append(s.left, fmt.Sprintf("the cable of %s/%s (it needs GUIDs and the number of the switch's port)", h.Host, p.Port))
		return
	}
	n := newSimNode("H", guid, h.Host+" "+cmp.Or(p.Device, p.Port))
	if i := slices.IndexFunc(s.nodes, func(o *simNode) bool { return o.letter == "H" && o.guid == n.guid }); i >= 0 {
		n = s.nodes[i]
	} else {
		s.nodes = append(s.nodes, n)
	}
	plug(n, number, leaf, leafPort)
}

// write writes the node. A GUID line makes ibsim keep the GUID instead of making one up.
func (n *simNode) write(out *bytes.Buffer) {
	slices.SortFunc(n.ports, func(a, b simPort) int { return cmp.Compare(a.port, b.port) })
	most := 1
	for _, p := range n.ports {
		most = max(most, p.port)
	}
	word, guid, tail := "Hca", "caguid=0x"+n.guid, ""
	if n.letter == "S" {
		word, guid, tail = "Switch", "switchguid=0x"+n.guid+"("+n.guid+")", " base port 0 lid 0 lmc 0"
	}
	fmt.Fprintf(out, "vendid=0x2c9\ndevid=0x0\nsysimgguid=0x%s\n%s\n%s\t%d \"%s-%s\"\t\t# \"%s\"%s\n", n.guid, guid, word, most, n.letter, n.guid, n.name, tail)
	for _, p := range n.ports {
		fmt.Fprintf(out, "[%d]\t\"%s-%s\"[%d]\t\t# \"%s\" lid 0 4xSDR\n", p.port, p.far.letter, p.far.guid, p.farPort, p.far.name)
	}
	out.WriteString("\n")
}

// plainName is a name as it can stand in quotes: printable ASCII, at most the 64 bytes of a NodeDescription.
func plainName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return '_'
		}
		return r
	}, name)
	return name[:min(len(name), 63)]
}

// portNumber is the number of a port, 0 where it has another name.
func portNumber(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 254 {
		return 0
	}
	return n
}

// rate is a rate, 0 where it is not known.
func rate(r *topo.Rate) topo.Rate {
	if r == nil {
		return 0
	}
	return *r
}

package sources

// This file and parse.go read what ibnetdiscover prints of an InfiniBand subnet: its text, also with -f and
// -g, and the list of ports that -p prints.
//
// Nodes and ports are told apart by their GUIDs. Descriptions are kept as they are: whoever runs a
// host can write anything there, so nothing is joined by them.
// Source: rdma-core 44 and 56, infiniband-diags/ibnetdiscover.c and libibnetdisc.

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is what a node is.
type Kind string

// The kinds of nodes.
const (
	Switch  Kind = "switch"
	Adapter Kind = "adapter" // a channel adapter: a host's, a gateway's or a switch's own
	Router  Kind = "router"
)

// GUID names a node or a port for good; 0, which the architecture does not allow, is not known.
type GUID uint64

// String gives the form that topologies have, "e09d:7303:007a:4bd8".
func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint64(g)>>48, uint64(g)>>32&0xffff, uint64(g)>>16&0xffff, uint64(g)&0xffff)
}

// ParseGUID reads a GUID as topologies have it, or as hexadecimal digits with or without 0x. ok is
// false for anything else and for 0.
func ParseGUID(s string) (g GUID, ok bool) {
	digits := strings.TrimPrefix(strings.ReplaceAll(s, ":", ""), "0x")
	if len(digits) > 16 {
		return 0, false
	}
	v, err := strconv.ParseUint(digits, 16, 64)
	return GUID(v), err == nil && v != 0
}

// Subnet is what a text holds: nodes in the order of the text, each link once. The list of ports
// (-p) has neither node GUIDs of adapters nor the nodes that have no link.
type Subnet struct {
	Nodes    []Node
	Links    []Link
	Problems []string // what could not be understood, each with its line
}

// Node is a switch, an adapter or a router.
type Node struct {
	Kind        Kind
	GUID        GUID // of an adapter listed by -p: 0
	DeviceID    uint32
	Description string
	PortGUIDs   map[int]GUID // of an adapter, by port number
}

// Link is a cable or a trace between two ports. A switch is A.
type Link struct {
	A, B  End
	Width int    // lanes; 0 not known
	Speed string // "SDR" to "XDR"; "" not known
}

// End is one port of a link.
type End struct {
	Node int // in Subnet.Nodes
	Port int
}

// aggregation is how the reduction engine of a switch describes itself, which is an adapter on a
// port of its own beyond those that have a socket.
const aggregation = "Mellanox Technologies Aggregation Node"

// aggregationDevice is its device ID. Source: topology files of Quantum switches.
const aggregationDevice = 0xcf09

// Aggregation says whether an adapter is a switch's own, which reduces data on its way (SHARP): no host.
func (n *Node) Aggregation() bool {
	return n.Kind == Adapter && (n.DeviceID == aggregationDevice || n.Description == aggregation)
}

// Name is the name of a switch for people: that of its management system, else its description.
// It is "" if the node has no description.
func (n *Node) Name() string {
	name, _ := n.managed()
	return cmp.Or(name, n.Description)
}

// Model is what a managed switch says that it is ("MQM9700"), else "".
func (n *Node) Model() string {
	_, model := n.managed()
	return model
}

// managed reads the description that managed switches have, "MF0;NAME:MODEL/U1".
func (n *Node) managed() (name, model string) {
	rest, ok := strings.CutPrefix(n.Description, "MF0;")
	if !ok || n.Kind != Switch {
		return "", ""
	}
	colon := strings.LastIndexByte(rest, ':')
	if colon < 0 {
		return "", ""
	}
	model, _, _ = strings.Cut(rest[colon+1:], "/")
	return rest[:colon], model
}

// laneMbps are the rates that the kernel and its tools give lanes, in Mb/s of data.
// Source: include/rdma/ib_verbs.h, ib_rate_to_mbps; drivers/infiniband/core/sysfs.c, rate_show.
var laneMbps = map[string]int64{"SDR": 2500, "DDR": 5000, "QDR": 10000, "FDR10": 10000, "FDR": 14000, "EDR": 25000, "HDR": 50000, "NDR": 100000, "XDR": 200000}

// BytesPerSec is the rate of a link in one direction as /sys gives it for ports, ok is false where width or speed are
// not known.
func (l *Link) BytesPerSec() (rate int64, ok bool) {
	mbps := laneMbps[l.Speed]
	if mbps == 0 || l.Width == 0 {
		return 0, false
	}
	return mbps * int64(l.Width) * 1e6 / 8, true
}

// Bounds of a text: the largest subnets have 48k end ports.
const (
	maxBytes       = 256 << 20
	maxLine        = 4096
	maxNodes       = 1 << 18
	maxLinks       = 1 << 20
	maxPorts       = 254 // of a switch
	maxDescription = 128 // the architecture has 64 bytes, node name maps may be longer
	maxProblems    = 20
)

// before orders two ends of a link: switches come before adapters, these before routers, and of one kind the lower GUID
// comes first.
func (s *Subnet) before(a, b End) bool {
	x, y := &s.Nodes[a.Node], &s.Nodes[b.Node]
	return cmp.Or(cmp.Compare(slices.Index(kinds, x.Kind), slices.Index(kinds, y.Kind)), cmp.Compare(x.GUID, y.GUID),
		cmp.Compare(x.PortGUIDs[a.Port], y.PortGUIDs[b.Port]), cmp.Compare(a.Port, b.Port)) < 0
}

var kinds = []Kind{Switch, Adapter, Router}

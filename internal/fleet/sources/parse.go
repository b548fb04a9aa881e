package sources

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

// Parse reads a text. Lines that are not understood are told in Problems; the error is for a text
// that has no node at all, or too much.
func Parse(data []byte) (*Subnet, error) {
	if len(data) > maxBytes {
		return nil, pkgerr.Errorf("ibnet", "%d bytes: at most %d are read", len(data), maxBytes)
	}
	p := parser{s: &Subnet{}, nodes: map[string]int{}, listed: map[int]int{}, links: map[End]int{}, unsure: map[End]bool{}, current: -1}
	for line := range bytes.Lines(data) {
		p.number++
		if len(line) > maxLine {
			p.problem("%d bytes long, at most %d are read: left out", len(line), maxLine)
			continue
		}
		p.line(string(bytes.TrimRight(line, "\r\n")))
		if len(p.s.Nodes) > maxNodes || len(p.s.Links) > maxLinks {
			return nil, pkgerr.Errorf("ibnet", "line %d: more than %d nodes or %d links", p.number, maxNodes, maxLinks)
		}
	}
	if len(p.s.Nodes) == 0 {
		return nil, pkgerr.New("ibnet", "no node: want the text of ibnetdiscover, without options or with -p, -f or -g")
	}
	p.finish()
	return p.s, nil
}

type parser struct {
	s        *Subnet
	number   int            // of the line; 0: of none
	nodes    map[string]int // by key
	listed   map[int]int    // lines of the entries of nodes that have one of their own
	links    map[End]int    // of each port, its link in s.Links
	unsure   map[End]bool   // ports that are linked to two
	current  int            // the node whose ports follow, -1 none
	deviceID uint32         // what a line before a node's own says of it
	more     int            // problems beyond those that are kept
}

func (p *parser) problem(format string, args ...any) {
	if len(p.s.Problems) == maxProblems {
		p.more++
		return
	}
	at := ""
	if p.number > 0 {
		at = fmt.Sprintf("line %d: ", p.number)
	}
	p.s.Problems = append(p.s.Problems, at+fmt.Sprintf(format, args...))
}

// The forms of lines: what stands before a node, a node's own line, that of one of its ports with the far end of the
// cable, and with -p an end by itself and a cable between two.
var (
	propertyForm = regexp.MustCompile(`^(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=([^(\t]*)`)
	headForm     = regexp.MustCompile(`^(Switch|Ca|Rt)[ \t]+(\d+)[ \t]+"([SHR])-([^"]*)"(.*)$`)
	portForm     = regexp.MustCompile(`^\[(\d+)\]` + extGUID + `[ \t]*(?:"([SHR])-([^"]*)"\[(\d+)\]` + extGUID + `(.*)|#.*)?$`)
	endForm      = regexp.MustCompile(`^\s*(SW|CA|RT)\s+\d+\s+(\d+)\s+(0x\S+)(.*)$`)
	cableForm    = regexp.MustCompile(`^\s+(\S+?)x?\s+(\S+)\s+-(\s.*)$`)
)

// extGUID is what may stand behind a port's number: what its socket is called, and its GUID.
const extGUID = `(?:\[ext [^\]]*\])?(?:\(([^)]+)\))?`

// kindsByWord are the kinds of nodes as each of the forms has them.
var kindsByWord = map[string]Kind{"Switch": Switch, "S": Switch, "SW": Switch, "Ca": Adapter, "H": Adapter, "CA": Adapter,
	"Rt": Router, "R": Router, "RT": Router}

// line reads one line of either form.
func (p *parser) line(text string) {
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "" || trimmed[0] == '#':
	case strings.HasPrefix(text, "Chassis "), strings.HasPrefix(text, "ibwarn:"): // -g; the tool's own warnings
	case text[0] == '[' && p.current < 0:
		p.problem("a port before any node: left out")
	case text[0] == '[' && p.port(text), p.head(text), p.property(trimmed), p.listedPort(text):
	default:
		p.problem("%.128q is not understood", text)
	}
}

// property reads "devid=0x1021"; the others that stand before a node are of no use, or said again in its own line.
func (p *parser) property(text string) bool {
	m := propertyForm.FindStringSubmatch(text)
	if m == nil || m[1] != "devid" {
		return m != nil
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(m[2]), "0x"), 16, 32)
	if err != nil {
		p.problem("%.128q is no number", text)
	}
	p.deviceID = uint32(n)
	return true
}

// portOf reads a port's number, and its GUID where there is one.
func portOf(number, guid string) (port int, g GUID, ok bool) {
	port, err := strconv.Atoi(number)
	ok = err == nil && port <= maxPorts
	if guid != "" && ok {
		g, ok = ParseGUID(guid)
	}
	return port, g, ok
}

// head begins a node: `Switch	129 "S-9c05910300a1b2c0"		# "leaf" ...`.
func (p *parser) head(text string) bool {
	m := headForm.FindStringSubmatch(text)
	if m == nil || kindsByWord[m[1]] != kindsByWord[m[3]] {
		return false
	}
	_, _, inRange := portOf(m[2], "")
	guid, ok := ParseGUID(m[4])
	if !ok || !inRange {
		return false
	}
	kind := kindsByWord[m[1]]
	i := p.node(kind, guid)
	if first := p.listed[i]; first > 0 {
		p.problem("%s %s has a second entry, beside that of line %d: its ports are read too", kind, guid, first)
	}
	p.listed[i], p.current = p.number, i
	n := &p.s.Nodes[i]
	n.DeviceID, p.deviceID = p.deviceID, 0
	if d, _, ok := description(m[5]); ok {
		n.Description = d
	}
	return true
}

// node finds a node by its GUID, or makes it.
func (p *parser) node(kind Kind, guid GUID) int {
	return p.keyed(string(kind)+guid.String(), Node{Kind: kind, GUID: guid})
}

func (p *parser) keyed(key string, n Node) int {
	i, ok := p.nodes[key]
	if !ok {
		i = len(p.s.Nodes)
		p.nodes[key] = i
		p.s.Nodes = append(p.s.Nodes, n)
	}
	return i
}

// description reads what stands in quotes behind a "#"; a description may have quotes itself. after is what follows it.
func description(line string) (d, after string, ok bool) {
	_, comment, ok := strings.Cut(line, "#")
	if !ok {
		return "", "", false
	}
	first, last := strings.IndexByte(comment, '"'), strings.LastIndexByte(comment, '"')
	if first < 0 || first == last {
		return "", comment, false
	}
	return text.Clip(comment[first+1:last], maxDescription), comment[last+1:], true
}

// port reads a line of a node's ports: `[1](guid) 	"H-guid"[1](guid) 		# "n1 mlx5_2" lid 22 4xNDR`.
func (p *parser) port(text string) bool {
	m := portForm.FindStringSubmatch(text)
	if m == nil {
		return false
	}
	own, ownGUID, ok := portOf(m[1], m[2])
	if !ok || m[3] == "" {
		return ok // a port without a cable
	}
	guid, isGUID := ParseGUID(m[4])
	far, farGUID, ok := portOf(m[5], m[6])
	if !ok || !isGUID {
		return false
	}
	other := p.node(kindsByWord[m[3]], guid)
	p.portGUID(p.current, own, ownGUID)
	p.portGUID(other, far, farGUID)
	d, after, ok := description(m[7])
	if n := &p.s.Nodes[other]; ok && n.Description == "" {
		n.Description = d
	}
	l := Link{A: End{p.current, own}, B: End{other, far}}
	for _, word := range strings.Fields(after) {
		if lanes, speed, ok := strings.Cut(word, "x"); ok && l.Width == 0 {
			l.setRate(lanes, speed)
		}
	}
	p.link(l)
	return true
}

// setRate takes the words of a width and a speed, if they are known ones.
func (l *Link) setRate(lanes, speed string) {
	width, err := strconv.Atoi(lanes)
	if err == nil && width >= 1 && width <= 12 && laneMbps[speed] != 0 {
		l.Width, l.Speed = width, speed
	}
}

func (p *parser) portGUID(node, port int, g GUID) {
	if g == 0 {
		return
	}
	n := &p.s.Nodes[node]
	if old := n.PortGUIDs[port]; old != 0 && old != g {
		p.problem("port %d of %s has two GUIDs, %s and %s: the first is kept", port, n.GUID, old, g)
		return
	}
	if n.PortGUIDs == nil {
		n.PortGUIDs = map[int]GUID{}
	}
	n.PortGUIDs[port] = g
}

// link adds a link. Both of its ends tell of it: the wider of two rates counts.
func (p *parser) link(l Link) {
	if l.A == l.B {
		p.problem("port %d of %s is linked to itself: left out", l.A.Port, p.s.Nodes[l.A.Node].GUID)
		return
	}
	if p.s.before(l.B, l.A) {
		l.A, l.B = l.B, l.A
	}
	for _, end := range []End{l.A, l.B} {
		i, ok := p.links[end]
		if !ok {
			continue
		}
		have := &p.s.Links[i]
		if have.A != l.A || have.B != l.B {
			p.problem("port %d of %s is linked to two ports: neither is taken", end.Port, p.s.Nodes[end.Node].GUID)
			p.unsure[end] = true
		} else if l.Width > have.Width {
			*have = l
		}
		return
	}
	p.links[l.A], p.links[l.B] = len(p.s.Links), len(p.s.Links)
	p.s.Links = append(p.s.Links, l)
}

// listedEnd reads an end as -p prints it, "SW     1  4 0x0000000000200000", and enters its node. -p gives the GUID of an
// adapter's port and not the node's: such a port is a node.
func (p *parser) listedEnd(text string) (e End, rest string, ok bool) {
	m := endForm.FindStringSubmatch(text)
	if m == nil {
		return e, "", false
	}
	port, guid, ok := portOf(m[2], m[3])
	if !ok {
		return e, "", false
	}
	if kind := kindsByWord[m[1]]; kind == Switch {
		e = End{p.node(kind, guid), port}
	} else {
		e = End{p.keyed("port"+guid.String(), Node{Kind: kind, PortGUIDs: map[int]GUID{port: guid}}), port}
	}
	p.listed[e.Node] = p.number
	return e, m[4], true
}

// listedPort reads a line of -p: an end, its rate, and the far end or the node's description.
func (p *parser) listedPort(line string) bool {
	near, rest, ok := p.listedEnd(line)
	if !ok {
		return false
	}
	m := cableForm.FindStringSubmatch(rest)
	if m == nil {
		if _, d, ok := strings.Cut(line, "'"); ok {
			p.s.Nodes[near.Node].Description = text.Clip(strings.TrimSuffix(strings.TrimRight(d, " "), "'"), maxDescription)
		}
		return true
	}
	far, _, ok := p.listedEnd(m[3])
	if !ok {
		return false
	}
	if _, both, ok := strings.Cut(line, "( '"); ok {
		both = strings.TrimSuffix(strings.TrimRight(both, " "), "' )")
		if strings.Count(both, "' - '") == 1 { // else a description has quotes itself
			p.s.Nodes[near.Node].Description, p.s.Nodes[far.Node].Description, _ = strings.Cut(both, "' - '")
		}
	}
	l := Link{A: near, B: far}
	l.setRate(m[1], m[2])
	p.link(l)
	return true
}

// finish leaves out links that are not certain, and tells what is missing.
func (p *parser) finish() {
	p.number = 0
	p.s.Links = slices.DeleteFunc(p.s.Links, func(l Link) bool { return p.unsure[l.A] || p.unsure[l.B] })
	for i := range p.s.Nodes {
		if n := &p.s.Nodes[i]; p.listed[i] == 0 {
			p.problem("%s %s is at the end of a cable and has no entry of its own: the text may be cut short", n.Kind, n.GUID)
		}
	}
	if p.more > 0 {
		p.s.Problems = append(p.s.Problems, fmt.Sprintf("and %d more", p.more))
	}
}

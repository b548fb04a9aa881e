package sources

import (
	"bytes"
	"fmt"
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
	p := parser{s: &Subnet{}, nodes: map[string]int{}, listed: map[int]int{}, peers: map[End]End{}, unsure: map[End]bool{}, current: -1}
	for line := range bytes.Lines(data) {
		p.number++
		if len(line) > maxLine {
			p.problem("%d bytes long, at most %d are read: left out", len(line), maxLine)
			continue
		}
		p.line(string(bytes.TrimRight(line, "\r\n")))
		if len(p.s.Nodes) > maxNodes || len(p.s.Links) > 2*maxLinks {
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
	s       *Subnet
	number  int            // of the line; 0: of none
	nodes   map[string]int // by key
	listed  map[int]int    // lines of the entries of nodes that have one of their own
	peers   map[End]End
	unsure  map[End]bool // ports that are linked to two
	current int          // the node whose ports follow, -1 none
	ahead   Node         // what lines before a node's own say of it
	more    int          // problems beyond those that are kept
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

// line reads one line of either form.
func (p *parser) line(text string) {
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "" || trimmed[0] == '#':
	case text[0] == '[':
		p.port(text)
	case strings.HasPrefix(text, "Chassis "), strings.HasPrefix(text, "ibwarn:"): // -g; the tool's own warnings
	default:
		if head, rest, ok := headLine(text); ok {
			p.head(head, rest)
		} else if fields := strings.Fields(text); p.property(trimmed) {
		} else if end, n, ok := listedEnd(fields); ok {
			p.listedPort(text, end, fields[n:])
		} else {
			p.problem("%.128q is not understood", text)
		}
	}
}

// property reads "vendid=0x2c9" and its kin, which stand before a node.
func (p *parser) property(text string) bool {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return false
	}
	value, _, _ = strings.Cut(value, "(")
	value, _, _ = strings.Cut(strings.TrimSpace(value), "\t")
	n, err := strconv.ParseUint(strings.TrimPrefix(value, "0x"), 16, 64)
	switch name {
	case "vendid":
		p.ahead = Node{VendorID: uint32(n)}
	case "devid":
		p.ahead.DeviceID = uint32(n)
	case "sysimgguid":
		p.ahead.SystemGUID = GUID(n)
	case "switchguid", "caguid", "rtguid": // the node's own line has it again
	default:
		return false
	}
	if err != nil || (name == "vendid" || name == "devid") && n > 1<<32-1 {
		p.problem("%.128q is no number", text)
	}
	return true
}

// nodeHead is the beginning of a node's own line.
type nodeHead struct {
	kind  Kind
	ports int
	guid  GUID
}

// kindsByWord are the words that begin a node's line, and the letters of its name.
var kindsByWord = map[string]struct {
	kind   Kind
	letter byte
}{"Switch": {Switch, 'S'}, "Ca": {Adapter, 'H'}, "Rt": {Router, 'R'}}

var kindsByLetter = map[byte]Kind{'S': Switch, 'H': Adapter, 'R': Router}

// headLine reads `Switch	129 "S-9c05910300a1b2c0"		# ...` up to the name.
func headLine(text string) (h nodeHead, rest string, ok bool) {
	word, rest, ok := cutSpace(text)
	k, known := kindsByWord[word]
	if !ok || !known {
		return h, "", false
	}
	count, rest, ok := cutSpace(rest)
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 0 || n > maxPorts {
		return h, "", false
	}
	kind, guid, rest, ok := nodeName(rest)
	if !ok || kind != k.kind {
		return h, "", false
	}
	return nodeHead{k.kind, n, guid}, rest, true
}

// nodeName reads `"S-9c05910300a1b2c0"`, which may have more behind the GUID that chassis give.
func nodeName(text string) (kind Kind, guid GUID, rest string, ok bool) {
	if len(text) < 4 || text[0] != '"' || text[2] != '-' {
		return "", 0, "", false
	}
	digits, rest, ok := strings.Cut(text[3:], `"`)
	if !ok {
		return "", 0, "", false
	}
	kind, known := kindsByLetter[text[1]]
	guid, ok = ParseGUID(digits)
	return kind, guid, rest, known && ok
}

// head begins a node.
func (p *parser) head(h nodeHead, rest string) {
	i := p.node(h.kind, h.guid)
	if first := p.listed[i]; first > 0 {
		p.problem("%s %s has a second entry, beside that of line %d: its ports are read too", h.kind, h.guid, first)
	}
	p.listed[i], p.current = p.number, i
	n := &p.s.Nodes[i]
	n.Ports, n.VendorID, n.DeviceID, n.SystemGUID = h.ports, p.ahead.VendorID, p.ahead.DeviceID, p.ahead.SystemGUID
	p.ahead = Node{}
	if d, _, ok := description(rest); ok {
		n.Description = d
	}
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

// port reads a line of a node's ports: `[1](guid) [ext 3]	"H-guid"[1](guid) 		# "n1 mlx5_2" lid 22 4xNDR`.
func (p *parser) port(text string) {
	if p.current < 0 {
		p.problem("a port before any node: left out")
		return
	}
	own, ownGUID, rest, ok := numbered(text)
	if !ok {
		p.problem("%.128q is not understood", text)
		return
	}
	rest = strings.TrimLeft(rest, " \t")
	if strings.HasPrefix(rest, "#") || rest == "" {
		return // a port without a cable
	}
	kind, guid, rest, ok := nodeName(rest)
	if !ok {
		p.problem("%.128q is not understood", text)
		return
	}
	far, farGUID, rest, ok := numbered(rest)
	if !ok {
		p.problem("%.128q is not understood", text)
		return
	}
	other := p.node(kind, guid)
	p.portGUID(p.current, own, ownGUID)
	p.portGUID(other, far, farGUID)
	d, after, ok := description(rest)
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
}

// setRate takes the words of a width and a speed, if they are known ones.
func (l *Link) setRate(lanes, speed string) {
	width, err := strconv.Atoi(lanes)
	if err == nil && width >= 1 && width <= 12 && laneMbps[speed] != 0 {
		l.Width, l.Speed = width, speed
	}
}

// numbered reads "[17]", "[17](guid)" and "[17][ext 3](guid)".
func numbered(text string) (port int, guid GUID, rest string, ok bool) {
	if !strings.HasPrefix(text, "[") {
		return 0, 0, "", false
	}
	digits, rest, ok := strings.Cut(text[1:], "]")
	port, err := strconv.Atoi(digits)
	if !ok || err != nil || port < 0 || port > maxPorts {
		return 0, 0, "", false
	}
	if strings.HasPrefix(rest, "[ext ") {
		if _, rest, ok = strings.Cut(rest, "]"); !ok {
			return 0, 0, "", false
		}
	}
	if inner, ok := strings.CutPrefix(rest, "("); ok {
		digits, after, ok := strings.Cut(inner, ")")
		if guid, known := ParseGUID(digits); ok && known {
			return port, guid, after, true
		}
		return 0, 0, "", false
	}
	return port, 0, rest, true
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

// link adds a link, which both of its ends tell.
func (p *parser) link(l Link) {
	if l.A == l.B {
		p.problem("port %d of %s is linked to itself: left out", l.A.Port, p.s.Nodes[l.A.Node].GUID)
		return
	}
	for _, side := range [2][2]End{{l.A, l.B}, {l.B, l.A}} {
		if old, ok := p.peers[side[0]]; ok && old != side[1] {
			p.problem("port %d of %s is linked to two ports: neither is taken", side[0].Port, p.s.Nodes[side[0].Node].GUID)
			p.unsure[side[0]] = true
			return
		}
	}
	p.peers[l.A], p.peers[l.B] = l.B, l.A
	p.s.Links = append(p.s.Links, l)
}

// listedWords are the kinds as -p has them.
var listedWords = map[string]Kind{"SW": Switch, "CA": Adapter, "RT": Router}

// listed is an end as -p prints it.
type listed struct {
	kind Kind
	port int
	guid GUID
}

// listedEnd reads "SW     1  4 0x0000000000200000"; n is how many words it took.
func listedEnd(fields []string) (l listed, n int, ok bool) {
	if len(fields) < 4 {
		return l, 0, false
	}
	kind, known := listedWords[fields[0]]
	_, err := strconv.Atoi(fields[1])
	port, err2 := strconv.Atoi(fields[2])
	guid, isGUID := ParseGUID(fields[3])
	if !known || err != nil || err2 != nil || !isGUID || port < 0 || port > maxPorts || !strings.HasPrefix(fields[3], "0x") {
		return l, 0, false
	}
	return listed{kind, port, guid}, 4, true
}

// listedNode finds the node of an end. -p gives the GUID of an adapter's port and not the node's: such a
// port is a node.
func (p *parser) listedNode(l listed) int {
	if l.kind == Switch {
		i := p.node(Switch, l.guid)
		p.listed[i] = p.number
		return i
	}
	i := p.keyed("port"+l.guid.String(), Node{Kind: l.kind, PortGUIDs: map[int]GUID{l.port: l.guid}})
	p.listed[i] = p.number
	return i
}

// listedPort reads a line of -p: an end, its rate, and the far end or the node's description.
func (p *parser) listedPort(line string, near listed, fields []string) {
	a := p.listedNode(near)
	if len(fields) < 3 || fields[2] != "-" { // no cable
		if _, d, ok := strings.Cut(line, "'"); ok {
			p.s.Nodes[a].Description = text.Clip(strings.TrimSuffix(strings.TrimRight(d, " "), "'"), maxDescription)
		}
		return
	}
	far, _, ok := listedEnd(fields[3:])
	if !ok {
		p.problem("%.128q is not understood", line)
		return
	}
	b := p.listedNode(far)
	if _, both, ok := strings.Cut(line, "( '"); ok {
		both = strings.TrimSuffix(strings.TrimRight(both, " "), "' )")
		if strings.Count(both, "' - '") == 1 { // else a description has quotes itself
			p.s.Nodes[a].Description, p.s.Nodes[b].Description, _ = strings.Cut(both, "' - '")
		}
	}
	l := Link{A: End{a, near.port}, B: End{b, far.port}}
	l.setRate(strings.TrimSuffix(fields[0], "x"), fields[1])
	p.link(l)
}

// finish tells what is missing, and puts all in order.
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
	p.s.sorted()
}

// cutSpace cuts a text at its first run of blanks.
func cutSpace(text string) (word, rest string, ok bool) {
	i := strings.IndexAny(text, " \t")
	if i < 0 {
		return text, "", false
	}
	return text[:i], strings.TrimLeft(text[i:], " \t"), true
}

package diff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// What is compared of a kind of node beyond the attributes of its rules.

// software compares lists of which every word is an attribute of its own: modules that are
// loaded, options and variables that are set. A nil list is unknown.
func (c *comparer) software() {
	x, y := cmp.Or(c.old.t.Host.Software, &topo.Software{}), cmp.Or(c.new.t.Host.Software, &topo.Software{})
	c.wordSet("modules", x.Modules, y.Modules)
	c.wordSet("kernel_options", x.KernelOptions, y.KernelOptions)
	c.wordSet("environment", settingWords(x.Environment), settingWords(y.Environment))
}

// settingWords are the settings that hold, NAME=VALUE: of two of one name the last. nil:
// not known.
func settingWords(e *topo.Environment) []string {
	if e == nil {
		return nil
	}
	out := []string{}
	for i, s := range e.Settings {
		if !slices.ContainsFunc(e.Settings[i+1:], func(later topo.Setting) bool { return later.Name == s.Name }) {
			out = append(out, s.Name+"="+s.Value)
		}
	}
	return out
}

// wordSet compares NAME or NAME=VALUE, name by name.
func (c *comparer) wordSet(attr string, olds, news []string) {
	host := c.wholeHost()
	if (olds == nil) != (news == nil) {
		c.omit(attr, c.node(host, attr), olds != nil, host.shownOld, host.shownNew)
		return
	}
	if !c.compares(attr) {
		return
	}
	byName := func(words []string) map[string][]string {
		out := map[string][]string{}
		for _, w := range words {
			name, _, _ := strings.Cut(w, "=")
			if attr == "modules" {
				name, w = w, "loaded"
			}
			out[name] = append(out[name], w)
		}
		return out
	}
	x, y := byName(olds), byName(news)
	names := slices.AppendSeq(slices.Collect(maps.Keys(x)), maps.Keys(y))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if a, b := setting(name, x[name]), setting(name, y[name]); a.key != b.key {
			c.add(finding{kind: Changed, attr: attr, node: c.node(host, attr), old: a, new: b, note: name})
		}
	}
}

// setting is one name's state: what it is set to, or that it is not there.
func setting(name string, words []string) value {
	if len(words) == 0 {
		return value{known: true, text: "not there", data: nil}
	}
	slices.Sort(words)
	v := list(words, words)
	v.data = name
	if v.text != "loaded" {
		v.data = v.text
	}
	return v
}

// functions compares PCI functions. Of one that went away while it was read hardly anything
// is known.
func (c *comparer) functions() {
	for _, o := range c.old.functions {
		if o.other == nil {
			continue
		}
		p := pairOf(o)
		if lacking, own := vanished(p); lacking != nil {
			c.omitFor("presence", c.node(p, ""), lacking, lacking.whyUnknown(own, nil, ""))
			continue
		}
		c.attributes(p)
		for _, r := range rules[topo.KindPCI] { // also by the function's own name
			if p.match.Replaced && !belongsToPlace(topo.KindPCI, r.attr) {
				continue
			}
			c.reported[nodeAttr{string(p.new.ID), r.attr}] = c.isReported(p.shownNew.ID, r.attr)
			c.omitted[nodeAttr{string(p.new.ID), r.attr}] = c.isOmitted(p.shownNew.ID, r.attr)
		}
	}
}

// vanished returns the side on which a function went away while it was read, and its node
// there; nil if that is neither or both.
func vanished(p *pair) (*side, *topo.Node) {
	gone := func(n *node) bool {
		return slices.ContainsFunc(n.side.warned[n.ID], func(w *topo.Warning) bool { return w.Code == topo.CodeVanished })
	}
	switch older, newer := gone(p.old), gone(p.new); {
	case older == newer:
		return nil, nil
	case older:
		return p.old.side, p.shownOld
	}
	return p.new.side, p.shownNew
}

// devices compares the devices of one kind.
func (c *comparer) devices(kind topo.Kind) {
	lost := kind == topo.KindGPU && c.lostGPU()
	for _, o := range c.old.devices {
		if o.kind != kind || o.other == nil || isContainerEnd(o) && isContainerEnd(o.other) {
			continue
		}
		p := pairOf(o)
		switch kind {
		case topo.KindRDMA:
			c.functionOf(p)
		case topo.KindGPU:
			c.gpuIndex(p, lost)
			c.peers(p)
		}
		c.attributes(p)
	}
}

// isContainerEnd says whether a node is the host's end of a container's interface.
func isContainerEnd(n *node) bool {
	d, ok := n.value.(*topo.Netdev)
	return ok && d.LinkKind == "veth" && d.Master != ""
}

// gpuIndex compares a GPU's place in PCI order.
func (c *comparer) gpuIndex(p *pair, lost bool) {
	o, _ := p.old.value.(*topo.GPU)
	n, _ := p.new.value.(*topo.GPU)
	x, y := number(int64(o.Index)), number(int64(n.Index))
	x.text, y.text = string(p.old.ID), string(p.new.ID)
	switch {
	case x.key == y.key || !c.compares("index"):
	case lost:
		lacking := c.new
		if len(c.old.lost()) > 0 {
			lacking = c.old
		}
		c.omitFor("index", c.node(p, "index"), lacking, "counts GPUs in PCI order, and one could not be read")
	default:
		c.add(finding{kind: Renumbered, attr: "index", node: c.node(p, "index"), old: x, new: y, note: p.match.Why})
	}
}

// lost lists the functions that may be GPUs: what they are could not be read.
func (s *side) lost() []topo.ID {
	var out []topo.ID
	for i := range s.t.Warnings {
		w := &s.t.Warnings[i]
		file := w.Evidence[strings.LastIndexByte(w.Evidence, '/')+1:]
		if w.Partial() && strings.HasPrefix(string(w.Subject), "pci:") && (file == "class" || file == "vendor" || w.Code == topo.CodeVanished) {
			out = append(out, w.Subject)
		}
	}
	return out
}

// lostGPU says whether a GPU of one side may be there on the other, unread.
func (c *comparer) lostGPU() bool {
	missed := func(s, other *side) bool {
		lost := other.lost()
		return slices.ContainsFunc(s.devices, func(n *node) bool {
			g, ok := n.value.(*topo.GPU)
			return ok && n.match == nil && slices.Contains(lost, g.PCI)
		})
	}
	return missed(c.old, c.new) || missed(c.new, c.old)
}

// peers compares what the driver says of a GPU's access to the others, each
// pair once.
func (c *comparer) peers(p *pair) {
	o, _ := p.old.value.(*topo.GPU)
	n, _ := p.new.value.(*topo.GPU)
	byNumber := func(a, b topo.ID) int { return topo.NaturalCompare(string(a), string(b)) }
	for _, id := range slices.SortedFunc(maps.Keys(o.P2P), byNumber) {
		peer := c.old.nodes[id]
		if peer == nil || peer.match == nil {
			continue
		}
		x, y := word(o.P2P[id]), word(n.P2P[peer.match.New])
		if x.known && y.known && x.key != y.key && c.compares("p2p") {
			node := c.node(p, "p2p")
			node.Name = fmt.Sprintf("%s to %s", p.new.ID, peer.match.New)
			c.add(finding{kind: Changed, attr: "p2p", node: node, old: x, new: y})
		}
	}
}

// functionOf notes that only one side has an RDMA device's PCI function: the kernel shows
// none any more, or its file does not say.
func (c *comparer) functionOf(p *pair) {
	o, _ := p.old.value.(*topo.RDMADevice)
	n, _ := p.new.value.(*topo.RDMADevice)
	if (o.PCI == "") == (n.PCI == "") || o.Software || n.Software {
		return
	}
	lacking := p.new
	if o.PCI == "" {
		lacking = p.old
	}
	node := c.node(p, "pci")
	if slices.ContainsFunc(lacking.side.warned[lacking.ID], func(w *topo.Warning) bool { return w.Code == topo.CodeNoPCIParent }) {
		at := func(r *topo.RDMADevice) value {
			if r.PCI == "" {
				return none()
			}
			return word(r.PCI.Name())
		}
		c.add(finding{kind: Changed, attr: "slot", node: node, old: at(o), new: at(n)})
		return
	}
	c.omit("slot", node, o.PCI != "", p.shownOld, p.shownNew)
}

// relations compares classes that a side states without a tree to derive them
// from. Where both have a tree, what changed in it is reported instead.
func (c *comparer) relations() {
	if !c.statesClasses() {
		return
	}
	x, y := c.old.t.Derived, c.new.t.Derived
	for i, a := range x.Axis {
		for j, b := range x.Axis[:i] {
			p, ok1 := c.new.index.Place(c.old.rename(a))
			q, ok2 := c.new.index.Place(c.old.rename(b))
			if !ok1 || !ok2 {
				continue
			}
			was, is := x.At(i, j).Class, y.At(p, q).Class
			if was.Known() && is.Known() && was != is && !c.linksTell(a, b, y.Axis[p], y.Axis[q], was, is) {
				v, w := c.nearness(was, is)
				node := Node{Kind: KindLink, Old: string(b) + " " + string(a), New: string(y.Axis[q]) + " " + string(y.Axis[p]),
					Name: shortName(y.Axis[q]) + " to " + shortName(y.Axis[p])}
				c.add(finding{kind: direction(v, w), attr: "relation", node: node, old: v, new: w})
			}
		}
	}
}

// statesClasses says whether a side states classes of pairs.
func (c *comparer) statesClasses() bool { return c.old.t.Asserted != nil || c.new.t.Asserted != nil }

// linksTell says whether the class of two GPUs changed with the links of one of them, which are compared as such.
func (c *comparer) linksTell(a, b, newA, newB topo.ID, was, is topo.Class) bool {
	apart := func(s *side, a, b topo.ID) bool {
		return slices.ContainsFunc(s.links.Apart, func(p topo.Apart) bool { return p.A == a && p.B == b || p.A == b && p.B == a })
	}
	return (was.Kind == topo.ClassNV || is.Kind == topo.ClassNV) && c.old.links.Stated && c.new.links.Stated && c.oneForm() &&
		!apart(c.old, a, b) && !apart(c.new, newA, newB)
}

// nearness are two classes as values. Nearer is better, where one tool says both, or one is a direct link.
func (c *comparer) nearness(was, is topo.Class) (v, w value) {
	v, w = word(was.String()), word(is.String())
	if direct := topo.ClassC2C; c.old.t.Origin == c.new.t.Origin || was.Kind <= direct || is.Kind <= direct {
		near, far := int64(1), int64(0)
		if v.rank, w.rank = &near, &far; was.Compare(is) > 0 {
			v.rank, w.rank = &far, &near
		}
	}
	return v, w
}

// shortName is what people call a node of the matrix.
func shortName(id topo.ID) string {
	if strings.HasPrefix(string(id), "rdma:") || strings.HasPrefix(string(id), "net:") {
		return id.Name()
	}
	return string(id)
}

package diff

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
)

// lane is one figure of a PCIe link.
type lane struct {
	attr string
	get  func(l *topo.Link) value
	file string // of the function's directory
}

func currentWidth(l *topo.Link) value {
	if l.Cur == nil {
		return value{}
	}
	return ranked(l.Cur.Width, "x"+strconv.Itoa(l.Cur.Width))
}

func currentSpeed(l *topo.Link) value {
	if l.Cur == nil {
		return value{}
	}
	return ranked(l.Cur.SpeedMTs, speedText(l.Cur.SpeedMTs))
}

func maxWidth(l *topo.Link) value {
	if l.Max == nil {
		return value{}
	}
	return ranked(l.Max.Width, "x"+strconv.Itoa(l.Max.Width))
}

func maxSpeed(l *topo.Link) value {
	if l.Max == nil {
		return value{}
	}
	return ranked(l.Max.SpeedMTs, speedText(l.Max.SpeedMTs))
}

var (
	widthNow = lane{"pcie_width", currentWidth, "current_link_width"}
	widthMax = lane{"pcie_max_width", maxWidth, "max_link_width"}
	speedNow = lane{"pcie_speed", currentSpeed, "current_link_speed"}
	speedMax = lane{"pcie_max_speed", maxSpeed, "max_link_speed"}
)

// links compares the PCIe links above matched functions, and the direct links
// of matched devices.
func (c *comparer) links() {
	for i := range c.old.t.PCIDevices {
		o := &c.old.t.PCIDevices[i]
		m := c.m.to[o.ID]
		if m == nil {
			continue
		}
		n := c.new.pci[m.New]
		x, y := c.old.links[o.ID], c.new.links[n.ID]
		if x == nil || y == nil {
			continue
		}
		c.lanes(o, n, m, x, y, widthNow, widthMax)
		if c.old.gpuLinks[o.ID] || c.new.gpuLinks[n.ID] {
			c.lanes(o, n, m, x, y, speedMax, speedMax) // an idle GPU lowers its current speed
		} else {
			c.lanes(o, n, m, x, y, speedNow, speedMax)
		}
	}
	for _, kind := range []topo.LinkKind{topo.LinkNVLink, topo.LinkXGMI, topo.LinkC2C} {
		c.direct(kind)
	}
}

// lanes compares what a link runs at, and what it could run at unless that
// changed in the same way.
func (c *comparer) lanes(o, n *topo.PCIDevice, m *Match, x, y *topo.Link, now, most lane) {
	f := c.face(o, n)
	a, b := now.get(x), now.get(y)
	p, q := most.get(x), most.get(y)
	note := ""
	if p.known && q.known && p.key == a.key && q.key == b.key && now.attr != most.attr && a.key != b.key {
		note = "and can do no other"
	}
	for i, l := range []lane{now, most} {
		v, w := l.get(x), l.get(y)
		node := c.node(f.kind, f.o, f.n, m, f.name, "link")
		node.OldEvidence, node.NewEvidence = below(o.Evidence, l.file), below(n.Evidence, l.file)
		switch {
		case i == 1 && (note != "" || l.attr == now.attr):
		case v.known != w.known:
			silent := c.new
			if !v.known {
				silent = c.old
			}
			c.omitFor(l.attr, node, silent, silent.linkSilence(o, n, l.file))
		case v.known && v.key != w.key:
			extra := note
			if i == 1 {
				extra = ""
			}
			c.add(finding{kind: direction(v, w), attr: l.attr, node: node, old: v, new: w, note: extra,
				links: [2]topo.LinkID{x.ID, y.ID}})
		}
	}
}

func below(evidence, file string) string {
	if evidence == "" {
		return ""
	}
	return evidence + "/" + file
}

// linkSilence says why a side does not tell a link's figure.
func (s *side) linkSilence(o, n *topo.PCIDevice, file string) string {
	d := n
	if s.word == "old" {
		d = o
	}
	for _, id := range []topo.ID{d.ID, d.Parent} {
		for _, w := range s.warned[id] {
			if w.Partial() && (w.Evidence == below("/sys/bus/pci/devices/"+id.Name(), file) || w.Evidence == below(d.Evidence, file)) {
				return string(w.Code) + ": " + w.Detail + " (" + w.Evidence + ")"
			}
		}
	}
	if d.Implausible {
		return "a virtual function or bridge whose link state is invented"
	}
	return s.silence(nil, nil, "pcie_width")
}

// direct compares the links of one kind between matched devices: their number,
// and their rate where that is the same.
func (c *comparer) direct(kind topo.LinkKind) {
	olds, news := directLinks(c.old, kind), directLinks(c.new, kind)
	keys := make([][2]topo.ID, 0, len(olds)+len(news))
	for k := range olds {
		keys = append(keys, k)
	}
	for k := range news {
		if olds[k] == nil {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b [2]topo.ID) int {
		return cmp.Or(topo.NaturalCompare(string(a[0]), string(b[0])), topo.NaturalCompare(string(a[1]), string(b[1])))
	})
	for _, k := range keys {
		if !c.bothHave(k[0]) || !c.bothHave(k[1]) {
			continue // went or came with its device
		}
		c.directPair(kind, k, olds[k], news[k])
	}
}

// bothHave says whether the end of a link is on both sides.
func (c *comparer) bothHave(id topo.ID) bool { return c.m.from[id] != nil || id == topo.FabricID }

// directLinks are a side's links by their ends, as the new side calls them.
func directLinks(s *side, kind topo.LinkKind) map[[2]topo.ID]*topo.Link {
	out := map[[2]topo.ID]*topo.Link{}
	for i := range s.t.Links {
		if l := &s.t.Links[i]; l.Kind == kind {
			a, b := s.rename(l.A), s.rename(l.B)
			if topo.NaturalCompare(string(a), string(b)) > 0 {
				a, b = b, a
			}
			out[[2]topo.ID{a, b}] = l
		}
	}
	return out
}

func (c *comparer) directPair(kind topo.LinkKind, ends [2]topo.ID, x, y *topo.Link) {
	name := linkName(kind) + " " + string(ends[0]) + " to " + string(ends[1])
	if ends[0] == topo.FabricID || ends[1] == topo.FabricID {
		name = linkName(kind) + " " + string(cmp.Or(pick(ends[0] == topo.FabricID, ends[1]), ends[0])) + " to NVSwitches"
	}
	node, links := Node{Kind: KindLink, Name: name}, [2]topo.LinkID{}
	if x != nil {
		node.Old, links[0] = string(x.ID), x.ID
	}
	if y != nil {
		node.New, links[1] = string(y.ID), y.ID
	}
	for _, end := range []struct {
		l *topo.Link
		s *side
	}{{x, c.old}, {y, c.new}} {
		if end.l == nil && !end.s.tellsLinks(kind) {
			c.omitFor("links", node, end.s, end.s.silence(nil, factOf(kind), "count"))
			return
		}
	}
	v, w := linkCount(x), linkCount(y)
	switch {
	case v.key != w.key:
		c.add(finding{kind: direction(v, w), attr: "links", node: node, old: v, new: w, links: links})
	default:
		a, b := rateOf(x.BytesPerSec), rateOf(y.BytesPerSec)
		if a.known && b.known && a.key != b.key {
			c.add(finding{kind: direction(a, b), attr: "bytes_per_sec", node: node, old: a, new: b, links: links})
		}
	}
}

func linkName(kind topo.LinkKind) string {
	switch kind {
	case topo.LinkNVLink:
		return "NVLink"
	case topo.LinkXGMI:
		return "xGMI"
	}
	return "C2C"
}

func pick(take bool, id topo.ID) topo.ID {
	if take {
		return id
	}
	return ""
}

// factOf has the source that tells links of a kind.
func factOf(kind topo.LinkKind) *topo.Node {
	source := topo.SourceNVML
	if kind == topo.LinkXGMI {
		source = topo.SourceSysfs
	}
	return &topo.Node{Facts: topo.Facts{{Name: "count", Source: source}}}
}

// linkCount is the number of links; no link is none of them.
func linkCount(l *topo.Link) value {
	if l == nil {
		return ranked(0, "none")
	}
	n := max(l.Count, 1)
	return ranked(n, strconv.Itoa(n))
}

// tellsLinks says whether a side would tell links of a kind if there were any.
func (s *side) tellsLinks(kind topo.LinkKind) bool {
	if slices.ContainsFunc(s.t.Links, func(l topo.Link) bool { return l.Kind == kind }) {
		return true
	}
	if s.imported {
		return false
	}
	return kind == topo.LinkXGMI || slices.ContainsFunc(s.t.Sources, func(r topo.SourceReport) bool {
		return r.Source == topo.SourceNVML && r.Status == topo.StatusOK
	})
}

package diff

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
)

// linkFigure is one figure of a PCIe link.
type linkFigure struct {
	attr string
	get  func(l *topo.Link) value
	file string // of the function's directory
}

var (
	widthNow = linkFigure{"pcie_width", func(l *topo.Link) value { return width(l.Cur) }, "current_link_width"}
	widthMax = linkFigure{"pcie_max_width", func(l *topo.Link) value { return width(l.Max) }, "max_link_width"}
	speedNow = linkFigure{"pcie_speed", func(l *topo.Link) value { return speed(l.Cur) }, "current_link_speed"}
	speedMax = linkFigure{"pcie_max_speed", func(l *topo.Link) value { return speed(l.Max) }, "max_link_speed"}
)

func width(r *topo.LaneRate) value {
	if r == nil {
		return value{}
	}
	return ranked(r.Width, "x"+strconv.Itoa(r.Width))
}

func speed(r *topo.LaneRate) value {
	if r == nil {
		return value{}
	}
	return ranked(r.SpeedMTs, units.GTs(r.SpeedMTs))
}

// links compares the PCIe links above matched functions, and the direct links
// of matched devices.
func (c *comparer) links() {
	for _, o := range c.old.functions {
		if o.other == nil {
			continue
		}
		x, y := o.linkAbove(), o.other.linkAbove()
		if x == nil || y == nil {
			continue
		}
		p := pairOf(o)
		c.linkFigure(p, x, y, widthNow, widthMax)
		if o.sharesLinkWithGPU() || o.other.sharesLinkWithGPU() {
			c.linkFigure(p, x, y, speedMax, speedMax) // an idle GPU lowers its current speed
		} else {
			c.linkFigure(p, x, y, speedNow, speedMax)
		}
	}
	for _, kind := range []topo.LinkKind{topo.LinkNVLink, topo.LinkXGMI, topo.LinkC2C} {
		if c.oneForm() || kind == topo.LinkC2C {
			c.directLinks(kind)
		}
	}
}

// oneForm says whether both sides have links between GPUs in one form: between pairs, or to switches. Classes of pairs
// do not always tell which, and are compared themselves then.
func (c *comparer) oneForm() bool {
	x, y := &c.old.links, &c.new.links
	return !c.statesClasses() || len(x.Links) == 0 || len(y.Links) == 0 || x.Switched() == y.Switched()
}

// linkAbove is the link above a function; of the functions that share one the first has it.
func (n *node) linkAbove() *topo.Link {
	if l := n.side.index.LinkAbove(n.ID); l != nil && l.B == n.ID {
		return l
	}
	return nil
}

func (n *node) sharesLinkWithGPU() bool {
	if n.device(topo.KindGPU) != nil {
		return true
	}
	up := n.parent()
	return up != nil && up.kind == topo.KindPCI && slices.ContainsFunc(n.side.index.Children(up.ID), func(d *topo.PCIDevice) bool {
		return len(n.side.index.On(d.ID).GPUs) > 0
	})
}

// linkFigure compares what a link runs at, and what it could run at unless that
// changed in the same way.
func (c *comparer) linkFigure(p *pair, x, y *topo.Link, now, most linkFigure) {
	a, b := now.get(x), now.get(y)
	q, r := most.get(x), most.get(y)
	note, figures := "", []linkFigure{now, most}
	switch {
	case now.attr == most.attr:
		figures = figures[:1]
	case q.known && r.known && q.key == a.key && r.key == b.key && a.key != b.key:
		note, figures = "its maximum too", figures[:1]
	}
	for _, f := range figures {
		v, w := f.get(x), f.get(y)
		node := c.node(p, "link")
		node.OldEvidence, node.NewEvidence = fileOf(p.old, f.file), fileOf(p.new, f.file)
		switch {
		case v.known != w.known:
			lacking := p.new
			if !v.known {
				lacking = p.old
			}
			c.omitFor(f.attr, node, lacking.side, lacking.whyLinkUnknown(f.file))
		case v.known && v.key != w.key:
			c.add(finding{kind: direction(v, w), attr: f.attr, node: node, old: v, new: w, note: note, links: [2]topo.LinkID{x.ID, y.ID}})
		}
	}
}

func fileOf(n *node, file string) string {
	if n.Evidence == "" {
		return ""
	}
	return n.Evidence + "/" + file
}

// whyLinkUnknown says why a side lacks a link's figure.
func (n *node) whyLinkUnknown(file string) string {
	d := n.pci()
	for _, id := range []topo.ID{d.ID, d.Parent} {
		for _, w := range n.side.warned[id] {
			if w.Partial() && (w.Evidence == "/sys/bus/pci/devices/"+id.Name()+"/"+file || w.Evidence == fileOf(n, file)) {
				return string(w.Code) + ": " + w.Detail + " (" + w.Evidence + ")"
			}
		}
	}
	if d.Implausible {
		return "a virtual function or bridge whose link state is invented"
	}
	return n.side.whyUnknown(nil, nil, "pcie_width")
}

// directLinks compares the links of one kind between matched devices. What went or came
// with its device is no difference of its own.
func (c *comparer) directLinks(kind topo.LinkKind) {
	olds, news := c.old.directLinks(kind), c.new.directLinks(kind)
	all := maps.Clone(olds)
	maps.Copy(all, news)
	onBoth := func(id topo.ID) bool {
		n := c.new.nodes[id]
		return id == topo.FabricID || n != nil && n.match != nil
	}
	for _, ends := range slices.SortedFunc(maps.Keys(all), func(a, b [2]topo.ID) int {
		return cmp.Or(topo.NaturalCompare(string(a[0]), string(b[0])), topo.NaturalCompare(string(a[1]), string(b[1])))
	}) {
		if onBoth(ends[0]) && onBoth(ends[1]) {
			c.directLink(kind, ends, olds[ends], news[ends])
		}
	}
}

// directLinks are a side's links by their ends, as the new side calls them.
func (s *side) directLinks(kind topo.LinkKind) map[[2]topo.ID]*topo.Link {
	out := map[[2]topo.ID]*topo.Link{}
	list := s.links.Links
	if kind == topo.LinkC2C {
		list = s.t.Links
	}
	for i := range list {
		if l := &list[i]; l.Kind == kind {
			a, b := s.rename(l.A), s.rename(l.B)
			if topo.NaturalCompare(string(a), string(b)) > 0 {
				a, b = b, a
			}
			out[[2]topo.ID{a, b}] = l
		}
	}
	return out
}

// switches are what a link to the fabric leads to.
const switches = "NVSwitches"

var linkNames = map[topo.LinkKind]string{topo.LinkNVLink: "NVLink", topo.LinkXGMI: "xGMI", topo.LinkC2C: "C2C"}

// directLink compares the number of links between two devices, and their rate where that is
// the same.
func (c *comparer) directLink(kind topo.LinkKind, ends [2]topo.ID, x, y *topo.Link) {
	from, to := string(ends[0]), string(ends[1])
	if ends[0] == topo.FabricID {
		from, to = to, from
	}
	if to == string(topo.FabricID) {
		to = switches
	}
	node, links := Node{Kind: KindLink, Name: linkNames[kind] + " " + from + " to " + to}, [2]topo.LinkID{}
	if x != nil {
		node.Old, links[0] = string(x.ID), x.ID
	}
	if y != nil {
		node.New, links[1] = string(y.ID), y.ID
	}
	for i, s := range []*side{c.old, c.new} {
		if []*topo.Link{x, y}[i] == nil && !s.reportsLinks(kind) {
			source := topo.SourceNVML
			if kind == topo.LinkXGMI {
				source = topo.SourceSysfs
			}
			c.omitFor("links", node, s, s.whyUnknown(nil, &topo.Node{Facts: topo.Facts{{Name: "count", Source: source}}}, "count"))
			return
		}
	}
	attr, v, w := "links", linkCount(x), linkCount(y)
	if v.key == w.key {
		attr, v, w = "bytes_per_sec", linkRate(x), linkRate(y)
	}
	if v.known && w.known && v.key != w.key {
		c.add(finding{kind: direction(v, w), attr: attr, node: node, old: v, new: w, links: links})
	}
}

// linkCount is the number of links; no link is none of them.
func linkCount(l *topo.Link) value {
	if l == nil {
		return ranked(0, absent)
	}
	n := max(l.Count, 1)
	return ranked(n, strconv.Itoa(n))
}

func linkRate(l *topo.Link) value {
	if l == nil || l.BytesPerSec == nil {
		return value{}
	}
	return rate(nil, number(int64(*l.BytesPerSec)))
}

// reportsLinks says whether a side would have links of a kind if there were any.
func (s *side) reportsLinks(kind topo.LinkKind) bool {
	if slices.ContainsFunc(s.t.Links, func(l topo.Link) bool { return l.Kind == kind }) || kind == topo.LinkNVLink && s.links.Stated {
		return true
	}
	return !s.imported && (kind == topo.LinkXGMI || slices.ContainsFunc(s.t.Sources, func(r topo.SourceReport) bool {
		return r.Source == topo.SourceNVML && r.Status == topo.StatusOK
	}))
}

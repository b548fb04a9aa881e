package views

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// describe tells everything about a node.
func (v *TreeView) describe(d *detail, i int) {
	t, n := v.tree, &v.tree.nodes[i]
	d.title(n.line.Name, ui.Plain)
	for _, f := range t.h.Findings(t.found(n)...) {
		d.finding(f)
	}
	d.unknown(i == 0, append(t.related(n), n.line.ID, n.line.PCI))
	if link := t.link(d.env.State, n); link.Text != "" {
		d.section("PCIe link")
		d.styled("runs at", strings.TrimSpace(linkText(link)+" "+link.Note), degraded(link))
		d.field("rate", d.l.Rate(link.Rate))
	}
	for _, id := range t.related(n) {
		d.port(t.h, id)
	}
	d.gpu(d.env.State.GPUs[n.line.ID])
	d.choices(t.h, append([]topo.ID{n.line.ID}, n.ports...))
	v.listAttributes(d, n)
	if i == 0 {
		d.section("marks")
		d.field(d.l.Mark(ui.Bad), "an error by topoctl doctor")
		d.field(d.l.Mark(ui.Middle), "a warning; behind a link: it could be faster")
		d.field("e", "errors that counted up in the last minute")
		d.field(d.l.Folded(), "more below: it has the worst mark of what it hides")
	}
}

// related are the ports of a node and the interfaces on them.
func (t *tree) related(n *node) []topo.ID {
	ports := n.ports
	if len(ports) == 0 {
		ports = t.h.Ports(n.line.ID)
	}
	out := slices.Clone(ports)
	for _, p := range ports {
		out = append(out, t.h.Netdevs(p)...)
	}
	return out
}

// found are the subjects of findings that a line stands for.
func (t *tree) found(n *node) []topo.ID {
	return slices.DeleteFunc(t.h.Subjects(), func(id topo.ID) bool { return t.place[id] != t.byKey[n.key] })
}

// document is what the topology has of a node, nil nothing; of the first one that is the host.
func (t *tree) document(n *node) any {
	if n.parent < 0 {
		return &t.h.Topology.Host
	}
	return t.h.Node(n.line.ID)
}

// finding is one of the doctor's.
func (d *detail) finding(f *doctor.Finding) {
	s := StyleOf(f.Severity)
	var names []string
	for _, id := range f.Subjects {
		names = append(names, explain.ShortName(id))
	}
	d.say("", strings.TrimSpace(d.l.Marked(string(f.Severity)+" "+string(f.Code)+"  "+text.List(names, 4), s)), s)
	d.say("  ", f.Text, ui.Plain)
	if f.Fix != "" {
		d.say("  ", "fix: "+f.Fix, ui.Plain)
	}
	for _, e := range f.Evidence {
		d.say("  ", e, ui.Faint)
	}
}

// unknown is what could not be read: for the host the state of its sources, for devices what the
// last reading lacked.
func (d *detail) unknown(host bool, own []topo.ID) {
	var lines []string
	for _, name := range []string{record.SourceHost, record.SourceCounters} {
		switch x, known := d.env.State.SourceOf(name); {
		case !host || !known || x.Status == record.StatusOK && x.Detail == "":
		case x.Status == record.StatusOK:
			lines = append(lines, name+": "+x.Detail)
		default:
			lines = append(lines, strings.TrimSuffix(name+" "+x.Status+": "+x.Detail, ": "))
		}
	}
	for _, note := range d.env.State.CounterNotes {
		id, _, _ := strings.Cut(note, ": ")
		if host || id != "" && slices.Contains(own, topo.ID(id)) {
			lines = append(lines, note)
		}
	}
	if len(lines) == 0 {
		return
	}
	d.section("not all is known")
	const most = 40
	for _, line := range lines[:min(most, len(lines))] {
		d.say("  ", line, ui.Plain)
	}
	if more := len(lines) - most; more > 0 {
		d.say("  ", fmt.Sprintf("and %d more", more), ui.Plain)
	}
}

// port is one port with its traffic and counters.
func (d *detail) port(h *Host, id topo.ID) {
	line, ok := h.Line(d.env.State, id)
	if !ok {
		return
	}
	d.section(string(id))
	d.styled("state", orUnknown(line.State), StyleOfState(line.State))
	d.field("line", d.l.PortRate(line.BytesPerSec))
	if line.Traffic == nil {
		d.field("traffic", "not counted")
		return
	}
	d.traffic(&line)
}

func orUnknown(s string) string {
	if s == "" {
		return ui.Unknown
	}
	return s
}

// traffic is what a port carries, and what its counters say.
func (d *detail) traffic(line *Line) {
	t := line.Traffic
	for _, way := range []struct {
		name   string
		rate   *topo.Rate
		values []float64
	}{{"sent", t.SentBytesPerSec, t.Sent.Values()}, {"received", t.ReceivedBytesPerSec, t.Received.Values()}} {
		text := d.l.Fit(d.l.PortRate(way.rate), rateWidth)
		if part, known := counters.Share(way.rate, line.BytesPerSec); known {
			text += " " + d.l.Percent(part)
		}
		d.graph(way.name, text, way.values, line.top())
	}
	if t.Flaps > 0 {
		d.styled("went down", text.Plural(t.Flaps, "time")+" since the start", ui.Middle)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Errors)) {
		text, style := strconv.FormatUint(t.Errors[name], 10), ui.Plain
		if by := t.RecentErrors[name]; by > 0 {
			text, style = fmt.Sprintf("%s, +%d in the last minute", text, by), ui.Middle
		}
		if t.Errors[name] > 0 || style != ui.Plain {
			d.styled(name, text, style)
		}
	}
}

// gpu is a GPU's load.
func (d *detail) gpu(g *state.GPU) {
	if g == nil {
		return
	}
	d.section("load")
	busy := ui.Unknown
	if g.UtilizationPercent != nil {
		busy = strconv.Itoa(*g.UtilizationPercent) + "%"
	}
	d.graph("utilisation", busy, g.Utilization.Values(), 100)
	if g.MemoryUsedBytes != nil {
		d.field("memory used", units.Bytes(*g.MemoryUsedBytes))
	}
	d.graph("PCIe sent", d.l.Rate(g.PCIeSentBytesPerSec), g.PCIeSent.Values(), 0)
	d.graph("PCIe received", d.l.Rate(g.PCIeReceivedBytesPerSec), g.PCIeReceived.Values(), 0)
	if g.NVLinkSentBytes != nil || g.NVLinkReceivedBytes != nil {
		d.graph("NVLink sent", d.l.RateOf(last(&g.NVLinkSent)), g.NVLinkSent.Values(), 0)
		d.graph("NVLink received", d.l.RateOf(last(&g.NVLinkReceived)), g.NVLinkReceived.Values(), 0)
	}
}

// last is the newest value, NaN where it is not known.
func last(s *state.Series) float64 {
	if v, ok := s.Last(); ok {
		return v
	}
	return math.NaN()
}

// choices says which ports this memory uses, or which memory prefers this port.
func (d *detail) choices(h *Host, ids []topo.ID) {
	paths, err := h.Paths()
	if err != nil {
		return
	}
	if location := pathsel.LocationOf(ids[0]); slices.Contains(paths.Locations(), location) {
		d.section("ports for this memory")
		a := h.Rank(location)
		if a == nil || len(a.Ranked) == 0 {
			d.say("  ", "x no usable port", ui.Bad)
			return
		}
		for i := range a.Ranked[:min(3, len(a.Ranked))] {
			c := &a.Ranked[i]
			d.say("  ", fmt.Sprintf("%d %s  %s  %s: %s", i+1, c.Name, ui.Class(c.Class), d.l.Expected(c.BytesPerSec, c.Basis), c.ShortReason()), ui.Plain)
		}
		if more := len(a.Ranked) - 3; more > 0 {
			d.say("  ", fmt.Sprintf("%d more, %d rejected", more, len(a.Rejected)), ui.Plain)
		}
		return
	}
	of := slices.DeleteFunc(paths.Ports(), func(p pathsel.Port) bool {
		return !slices.Contains(ids, p.ID) && !slices.Contains(ids, p.NIC)
	})
	if len(of) == 0 {
		return
	}
	d.section("choice of ports")
	for i := range of {
		p := &of[i]
		text := string(p.Role) + ": " + p.RoleReason.Text
		if !p.Usable && len(p.Reasons) > 0 {
			text = "not usable: " + p.Reasons[0].Text
		}
		d.say("  ", p.Name+" is "+text, ui.Plain)
	}
	var names []string
	for _, l := range h.Preferring(ids...) {
		names = append(names, string(l))
	}
	if len(names) == 0 {
		d.say("  ", "no memory prefers it", ui.Plain)
		return
	}
	d.say("  ", "preferred for memory of "+strings.Join(names, ", "), ui.Plain)
}

// listAttributes lists all that the topology has of a node, each with its source.
func (v *TreeView) listAttributes(d *detail, n *node) {
	node := v.tree.document(n)
	if node == nil {
		return
	}
	d.section("attributes")
	if v.decoded != node { // nodes do not change: each look at the host brings new ones
		v.decoded, v.attributes = node, attributesOf(node)
	}
	facts := factsOf(node)
	for _, a := range v.attributes {
		line := d.l.Safe(a.text)
		if f, ok := facts.Get(a.name); ok {
			line = d.l.Fit(line, min(28, max(8, d.w/3))) + " " + d.l.Paint(d.l.Safe(string(f.Source)+" "+f.Where), ui.Faint)
		}
		d.add("  " + d.l.Fit(d.l.Safe(a.name), min(20, max(8, d.w/3))) + " " + line)
	}
}

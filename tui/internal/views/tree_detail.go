package views

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/counters"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// Detail tells everything about the node under the cursor.
func (v *TreeView) Detail(env *ui.Env, width int) []string {
	d := v.detail(env)
	if d == nil {
		return nil
	}
	d.width = width
	d.add(d.l.Paint(d.l.Cut(d.n.line.Name, width), ui.Strong))
	d.findings()
	d.sources()
	d.link()
	for _, id := range d.related() {
		d.port(id)
	}
	d.gpu()
	d.choices()
	d.attributes()
	if d.at == 0 {
		d.legend()
	}
	return d.lines
}

// sources is what could not be read: for the host the state of its sources, for a device what the
// last reading lacked.
func (d *treeDetail) sources() {
	var lines []string
	if d.at == 0 {
		for _, name := range []string{record.SourceHost, record.SourceCounters} {
			x, known := d.env.State.SourceOf(name)
			switch {
			case !known || x.Status == record.StatusOK && x.Detail == "":
			case x.Status == record.StatusOK:
				lines = append(lines, name+": "+x.Detail)
			default:
				lines = append(lines, strings.TrimSuffix(name+" "+x.Status+": "+x.Detail, ": "))
			}
		}
	}
	own := append(d.related(), d.n.id(), d.n.line.PCI)
	for _, note := range d.env.State.CounterNotes {
		id, _, _ := strings.Cut(note, ": ")
		if d.at == 0 || id != "" && slices.Contains(own, topo.ID(id)) {
			lines = append(lines, note)
		}
	}
	if len(lines) == 0 {
		return
	}
	d.section("not all is known")
	const most = 40
	for _, line := range lines[:min(most, len(lines))] {
		d.wrapped(line, 2)
	}
	if more := len(lines) - most; more > 0 {
		d.add(fmt.Sprintf("  and %d more", more))
	}
}

// legend says what stands before the names.
func (d *treeDetail) legend() {
	d.section("marks")
	for _, m := range [][2]string{
		{d.l.Mark(ui.Bad), "an error, says the doctor"}, {d.l.Mark(ui.Middle), "a warning; behind a link: it could be faster"},
		{"e", "errors that counted up in the last minute"}, {d.l.Folded(), "more below: it has the worst mark of what it hides"},
	} {
		d.pair(m[0], m[1], ui.Plain)
	}
}

// treeDetail collects the lines about one node.
type treeDetail struct {
	v     *TreeView
	env   *ui.Env
	l     *ui.Look
	h     *Host
	at    int // of the node
	n     *node
	width int
	lines []string
}

// detail is about the node under the cursor, nil where there is none.
func (v *TreeView) detail(env *ui.Env) *treeDetail {
	rows, at := v.sync(env)
	if at < 0 {
		return nil
	}
	return &treeDetail{v: v, env: env, l: env.Look, h: v.tree.h, at: rows[at], n: &v.tree.nodes[rows[at]]}
}

func (d *treeDetail) add(line string) { d.lines = append(d.lines, d.l.Cut(line, d.width)) }

func (d *treeDetail) section(title string) {
	d.lines = append(d.lines, "")
	d.add(d.l.Paint(title, ui.Head))
}

// pair is a name and what it is, in two columns.
func (d *treeDetail) pair(name, text string, s ui.Style) {
	d.add("  " + d.l.Fit(name, min(20, max(8, d.width/3))) + " " + d.l.Paint(d.l.Cut(text, d.width), s))
}

func (d *treeDetail) wrapped(text string, indent int) {
	for _, line := range ui.Wrap(d.l.Safe(text), d.width-indent, 0) {
		d.add(strings.Repeat(" ", indent) + line)
	}
}

// related are the ports of the node and the interfaces on them.
func (d *treeDetail) related() []topo.ID {
	ports := d.n.ports
	if len(ports) == 0 {
		ports = d.h.Ports(d.n.id())
	}
	out := slices.Clone(ports)
	for _, p := range ports {
		out = append(out, d.h.Netdevs(p)...)
	}
	return out
}

// found are the subjects of findings that the line stands for. What has no line is the
// host's, which is the first.
func (d *treeDetail) found() []topo.ID {
	var ids []topo.ID
	for _, id := range d.h.Subjects() {
		if d.v.tree.place[id] == d.at {
			ids = append(ids, id)
		}
	}
	return ids
}

// findings are the doctor's, of the node and what its line stands for. They come first, without a
// title: a small pane shows little more.
func (d *treeDetail) findings() {
	for _, f := range d.h.Findings(d.found()...) {
		s := StyleOf(f.Severity)
		d.add(d.l.Paint(d.l.Mark(s)+" "+string(f.Severity)+" "+string(f.Code), s) + d.subjects(f))
		d.wrapped(f.Text, 2)
		if f.Fix != "" {
			d.wrapped("fix: "+f.Fix, 2)
		}
		for _, e := range f.Evidence {
			d.add(d.l.Paint("  "+d.l.Safe(e), ui.Faint))
		}
	}
}

// subjects names the devices of a finding where they are others than this line.
func (d *treeDetail) subjects(f *doctor.Finding) string {
	var names []string
	for _, id := range f.Subjects {
		if d.v.tree.place[id] != d.at || d.at == 0 {
			names = append(names, explain.ShortName(id))
		}
	}
	if len(names) == 0 {
		return ""
	}
	more := ""
	if len(names) > 4 {
		more = fmt.Sprintf(" and %d more", len(names)-4)
		names = names[:4]
	}
	if d.at != 0 {
		return "  also " + d.l.Safe(strings.Join(names, ", ")) + more
	}
	return "  " + d.l.Safe(strings.Join(names, ", ")) + more
}

// link is the PCIe link, now and as it could be.
func (d *treeDetail) link() {
	s := linkNow(d.v.tree, d.env.State, d.n)
	if s.Text == "" {
		return
	}
	d.section("PCIe link")
	style, text := ui.Plain, s.Text
	if s.Degraded {
		style, text = ui.Bad, text+"!"
	}
	d.pair("runs at", strings.TrimSpace(text+" "+s.Note), style)
	d.pair("rate", d.l.Rate(s.Rate), ui.Plain)
	if _, live := liveLink(d.env.State, d.n); live {
		d.pair("seen by", "the last look at the host", ui.Faint)
	}
}

// port is one port with its traffic and counters.
func (d *treeDetail) port(id topo.ID) {
	line, ok := d.h.Line(d.env.State, id)
	if !ok {
		return
	}
	d.section(d.l.Safe(string(id)))
	d.pair("state", d.known(line.State), StyleOfState(line.State))
	d.pair("line", d.l.PortRate(line.BytesPerSec), ui.Plain)
	t := line.Traffic
	if t == nil {
		d.pair("traffic", "not counted", ui.Faint)
		return
	}
	top := 0.0
	if line.BytesPerSec != nil {
		top = float64(*line.BytesPerSec)
	}
	for _, way := range []struct {
		name   string
		rate   *topo.Rate
		values []float64
	}{{"sent", t.SentBytesPerSec, t.Sent.Values()}, {"received", t.ReceivedBytesPerSec, t.Received.Values()}} {
		text := d.l.Fit(d.l.PortRate(way.rate), rateWidth)
		if part, known := counters.Share(way.rate, line.BytesPerSec); known {
			text += " " + d.l.Fit(d.l.Percent(part), 5)
		}
		d.pair(way.name, text+" "+d.l.Spark(way.values, top, min(40, max(0, d.width-40))), ui.Plain)
	}
	if t.Flaps > 0 {
		d.pair("went down", strconv.Itoa(t.Flaps)+" times since the start", ui.Middle)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Errors)) {
		text, style := strconv.FormatUint(t.Errors[name], 10), ui.Plain
		switch moved := t.RecentErrors[name]; {
		case moved > 0:
			text, style = fmt.Sprintf("%s  e %d more in the last minute", text, moved), ui.Middle
		case t.Errors[name] == 0:
			continue
		}
		d.pair(d.l.Safe(name), text, style)
	}
}

// gpu is a GPU's load.
func (d *treeDetail) gpu() {
	g := d.env.State.GPUs[d.n.id()]
	if g == nil {
		return
	}
	d.section("load")
	if g.UtilizationPercent != nil {
		d.pair("utilisation", d.l.Fit(strconv.Itoa(*g.UtilizationPercent)+"%", 11)+
			d.l.Spark(g.Utilization.Values(), 100, min(40, max(0, d.width-40))), ui.Plain)
	} else {
		d.pair("utilisation", ui.Unknown, ui.Plain)
	}
	if g.MemoryUsedBytes != nil {
		d.pair("memory used", units.Bytes(*g.MemoryUsedBytes), ui.Plain)
	}
	d.pair("PCIe sent", d.l.Rate(g.PCIeSentBytesPerSec), ui.Plain)
	d.pair("PCIe received", d.l.Rate(g.PCIeReceivedBytesPerSec), ui.Plain)
	if g.NVLinkSentBytes != nil || g.NVLinkReceivedBytes != nil {
		d.pair("NVLink sent", d.l.RateOf(last(&g.NVLinkSent)), ui.Plain)
		d.pair("NVLink received", d.l.RateOf(last(&g.NVLinkReceived)), ui.Plain)
	}
}

// last is the newest value, NaN where it is not known.
func last(s *state.Series) float64 {
	if v, ok := s.Last(); ok {
		return v
	}
	return math.NaN()
}

// choices says which port this memory uses, or which memory prefers this port.
func (d *treeDetail) choices() {
	paths, err := d.h.Paths()
	if err != nil {
		return
	}
	if location := pathsel.LocationOf(d.n.id()); slices.Contains(paths.Locations(), location) {
		d.ports(location)
		return
	}
	ids := append([]topo.ID{d.n.id()}, d.n.ports...)
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
		d.wrapped(p.Name+" is "+text, 2)
	}
	var names []string
	for _, l := range d.h.Preferring(ids...) {
		names = append(names, string(l))
	}
	if len(names) == 0 {
		d.add("  no memory prefers it")
		return
	}
	d.wrapped("preferred for memory of "+strings.Join(names, ", "), 2)
}

// ports are the best ports for a memory location.
func (d *treeDetail) ports(location pathsel.Location) {
	d.section("ports for this memory")
	a := d.h.Rank(location)
	if a == nil || len(a.Ranked) == 0 {
		d.add(d.l.Paint("  x no usable port", ui.Bad))
		return
	}
	for i := range a.Ranked[:min(3, len(a.Ranked))] {
		c := &a.Ranked[i]
		d.add(fmt.Sprintf("  %d %s  %s  %s", i+1, d.l.Safe(c.Name), ui.Class(c.Class), d.l.Expected(c.BytesPerSec, c.Basis)))
		d.wrapped(c.ShortReason(), 4)
	}
	if more := len(a.Ranked) - 3; more > 0 {
		d.add(fmt.Sprintf("  %d more, %d rejected", more, len(a.Rejected)))
	}
}

// attributes are all that the topology has of the node, each with its source.
func (d *treeDetail) attributes() {
	n := d.h.Node(d.n.id())
	if d.at == 0 {
		n = &d.h.Topology.Host
	}
	if n == nil {
		return
	}
	d.section("attributes")
	if d.v.decoded != n { // nodes do not change: each look at the host brings new ones
		d.v.decoded, d.v.attributes = n, attributesOf(n)
	}
	facts := factsOf(n)
	for _, a := range d.v.attributes {
		source := ""
		if f, ok := facts.Get(a.name); ok {
			source = strings.TrimSpace("  " + string(f.Source) + " " + f.Where)
		}
		text := d.l.Safe(a.text)
		if source != "" {
			text = d.l.Fit(text, min(28, max(8, d.width/3))) + " " + d.l.Paint(d.l.Safe(source), ui.Faint)
		}
		d.pair(d.l.Safe(a.name), text, ui.Plain)
	}
}

func (d *treeDetail) known(s string) string {
	if s == "" {
		return ui.Unknown
	}
	return d.l.Safe(s)
}

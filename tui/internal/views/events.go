package views

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/watch"
	"github.com/topoctl/topoctl/pathsel/diff"
	"github.com/topoctl/topoctl/pathsel/doctor"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// EventsView is the dashboard's sixth view: what has changed since the feed began, what the
// doctor finds now, and how the host differs from the baseline.
type EventsView struct{ rowsView }

// NewEvents makes the view.
func NewEvents() *EventsView {
	v := &EventsView{}
	v.rowsView = rowsView{of: v, name: "Events", pages: []string{"events", "findings now", "drift"}, atFirst: true,
		hints: []ui.Action{ui.Wide, ui.Enter, ui.FilterKey, ui.Copy}}
	return v
}

func (v *EventsView) act(a ui.Action, _ *ui.Env, _ *row) (ui.Request, bool) {
	if a == ui.Wide {
		v.page = (v.page + 1) % len(v.pages)
	}
	return ui.Request{}, a == ui.Wide
}

// above are the counts of everything.
func (v *EventsView) above(env *ui.Env, w int) []string {
	l, s := env.Look, env.State
	by := map[string]int{}
	for i := range s.Events {
		if s.Events[i].Kind != watch.Started { // it has the severity of the findings, which have events of their own
			by[s.Events[i].Severity]++
		}
	}
	changed := fmt.Sprintf("%s: %s", text.Plural(len(s.Events), "event"),
		severities(l, by[string(doctor.Error)], by[string(doctor.Warning)], len(s.Events)-by[string(doctor.Error)]-by[string(doctor.Warning)]))
	if s.Dropped > 0 {
		changed += fmt.Sprintf(", %d older ones dropped", s.Dropped)
	}
	now := "now: not known"
	if d := s.Doctor; d != nil {
		now = "now: " + severities(l, d.Summary.Errors, d.Summary.Warnings, d.Summary.Infos)
	}
	return ui.Flow(l, w, changed, now, driftSummary(env))
}

// severities are counts, marked where they are not 0.
func severities(l *ui.Look, bad, middle, infos int) string {
	return wrong(l, int64(bad), text.Plural(bad, "error"), ui.Bad) + ", " +
		wrong(l, int64(middle), text.Plural(middle, "warning"), ui.Middle) + ", " + text.Plural(infos, "note")
}

// driftSummary is one phrase on how the host differs.
func driftSummary(env *ui.Env) string {
	s := env.State
	against := "since the start"
	if s.BaselineName != "" {
		against = "against " + env.Look.Safe(s.BaselineName)
	}
	switch {
	case s.Drift == nil:
		return "drift " + against + ": not known"
	case s.Drift.Equal:
		return "no drift " + against
	}
	n := len(s.Drift.Differences) + len(s.Drift.Policy)
	return env.Look.Paint(fmt.Sprintf("! drift %s: %s", against, text.Plural(n, "difference")), ui.Middle)
}

// note is a line of a page: when, what kind, of what, in words.
type note struct {
	when, kind, subject, text string
	style                     ui.Style
	mark                      string // "" that of the style
}

// page collects the lines of a page that the filter keeps.
type page struct {
	env   *ui.Env
	notes []note
	rows  []row
}

// add puts a line on the page, unless the filter looks for other words.
func (p *page) add(key string, n note, device topo.ID, value any, detail func(*detail), words ...string) {
	if !p.env.Filter.Match(strings.Join(append(words, n.kind, n.text), " ")) {
		return
	}
	p.notes = append(p.notes, n)
	p.rows = append(p.rows, row{key: key, device: device, value: value, detail: detail})
}

// The most columns that a subject takes, and the most devices that it names: "gpu:0, gpu:1, gpu:2
// and 9 more".
const mostSubject, mostNamed = 40, 3

// finish sets the lines in columns, in which the subject gets as much as the longest takes. Where there is no line, none
// says why.
func (p *page) finish(none string) []row {
	if len(p.rows) == 0 {
		return []row{textRow(none)}
	}
	l, subject, kind, when := p.env.Look, 14, 0, 0
	for i := range p.notes {
		n := &p.notes[i]
		subject = max(subject, min(ui.Width(l.Safe(n.subject)), mostSubject))
		kind, when = max(kind, min(ui.Width(n.kind), 18)), max(when, min(len(n.when), 8))
	}
	style := func(n *note) ui.Style { return n.style }
	columns := []ui.Column[*note]{
		{Width: when, Rank: 1, Style: style, Text: func(n *note) string { return n.when }},
		{Width: 1, Rank: 0, Style: style, Text: func(n *note) string { return n.mark }},
		{Width: kind, Rank: 2, Style: style, Text: func(n *note) string { return n.kind }},
		{Width: 14, Most: subject, Rank: 3, Style: style, Text: func(n *note) string { return n.subject }},
		{Width: 16, Most: 400, Rank: 4, Style: style, Text: func(n *note) string { return n.text }},
	}
	for i := range p.rows {
		n := &p.notes[i]
		if n.subject == "" {
			n.subject = "host"
		}
		if n.mark == "" {
			n.mark = l.Mark(n.style)
		}
		p.rows[i].text = cells(l, columns, n)
	}
	return p.rows
}

func (v *EventsView) rows(env *ui.Env, _ int) []row {
	p := &page{env: env}
	switch v.page {
	case 0:
		return p.events()
	case 1:
		return p.findings()
	}
	return p.drift()
}

// events are the newest first.
func (p *page) events() []row {
	s := p.env.State
	for i := len(s.Events) - 1; i >= 0; i-- {
		e := &s.Events[i]
		words := append([]string{e.Severity, string(e.Subject), names(e.Subjects), e.Source, e.Code}, e.Detail...)
		// Events are dropped at the other end: the number of each stays.
		n := note{when: clock(p.env, e), kind: string(e.Kind), subject: e.Who(), text: e.Text, style: StyleOf(doctor.Severity(e.Severity))}
		p.add("event "+strconv.Itoa(s.Dropped+i), n, e.Subject, e, func(d *detail) { event(d, e) }, words...)
	}
	if len(s.Events) > 0 {
		return p.finish("none of " + text.Plural(len(s.Events), "event") + " matches the filter")
	}
	return p.finish("nothing has happened yet")
}

// when is the time of an event, false if it is not known when the feed began.
func when(env *ui.Env, e *watch.Event) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, e.Time); err == nil {
		return t.UTC(), true
	}
	began, err := time.Parse(time.RFC3339, env.State.Start.At)
	return began.UTC().Add(time.Duration(e.AtNS)), err == nil
}

// clock is the time of day, or since the watch began.
func clock(env *ui.Env, e *watch.Event) string {
	if t, ok := when(env, e); ok {
		return t.Format(time.TimeOnly)
	}
	return "+" + (time.Duration(e.AtNS) / time.Second * time.Second).String()
}

// findings are what the doctor finds now, then what could not be checked.
func (p *page) findings() []row {
	d := p.env.State.Doctor
	if d == nil {
		return p.finish("the host is not known yet")
	}
	list := d.Findings()
	for i := range list {
		f := &list[i]
		n := note{kind: string(f.Code), subject: few(f.Subjects), text: f.Text, style: StyleOf(f.Severity)}
		p.add(fmt.Sprintf("finding %s %v %s", f.Code, f.Subjects, f.Text), n, first(f.Subjects), f,
			func(d *detail) { finding(d, f) }, append([]string{string(f.Severity), names(f.Subjects)}, f.Evidence...)...)
	}
	for i := range d.Checks {
		c := &d.Checks[i]
		for k := range c.Missing {
			m := &c.Missing[k]
			n := note{kind: string(c.Code), subject: few(m.Subjects), text: "not checked: " + m.Text, style: ui.Faint, mark: ui.Unknown}
			p.add(fmt.Sprintf("missing %s %v %s", c.Code, m.Subjects, m.Text), n, first(m.Subjects), m,
				func(d *detail) { missing(d, c, m) }, names(m.Subjects))
		}
	}
	if p.env.Filter != "" {
		return p.finish("no finding matches the filter")
	}
	return p.finish("nothing is wrong, as far as " + text.Plural(d.Summary.OK, "check") + " can tell")
}

// names are those of all devices, few those of the first and how many more there are.
func names(ids []topo.ID) string { return text.List(subjects(ids), len(ids)) }

func few(ids []topo.ID) string { return text.List(subjects(ids), mostNamed) }

func subjects(ids []topo.ID) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = doctor.SubjectName(id)
	}
	return list
}

func first(ids []topo.ID) topo.ID {
	if len(ids) == 0 {
		return ""
	}
	return ids[0]
}

// drift are the differences, then the choices of ports that change.
func (p *page) drift() []row {
	r := p.env.State.Drift
	if r == nil {
		return p.finish("nothing to compare yet")
	}
	for i := range r.Differences {
		x := &r.Differences[i]
		style := ui.Plain
		if x.Kind == diff.Removed || x.Kind == diff.Degraded {
			style = ui.Middle
		}
		text := x.Text()
		if x.Effect != "" {
			text += "; " + x.Effect
		}
		n := note{kind: string(x.Kind), subject: nodes(x.Nodes), text: text, style: style}
		p.add(fmt.Sprintf("difference %s %s %s", x.Kind, x.Attribute, n.subject), n, nodeNow(x.Nodes), x,
			func(d *detail) { difference(d, x, style) }, x.Attribute, n.subject)
	}
	for i := range r.Policy {
		x := &r.Policy[i]
		n := note{kind: string(x.Kind), subject: nodes(x.Locations), text: x.Text(), style: ui.Middle}
		p.add(fmt.Sprintf("choice %s %s", x.Choice, n.subject), n, nodeNow(x.Locations), x,
			func(d *detail) { choice(d, x) }, x.Choice, n.subject)
	}
	if r.Equal {
		return p.finish("no difference")
	}
	return p.finish("no difference matches the filter")
}

// namesMost bounds how many devices one line names.
const namesMost = 8

func nodes(list []diff.Node) string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].Name
	}
	return text.List(out, namesMost)
}

// nodeNow is the first device that is there now.
func nodeNow(list []diff.Node) topo.ID {
	for i := range list {
		if list[i].New != "" {
			return topo.ID(list[i].New)
		}
	}
	return ""
}

func event(d *detail, e *watch.Event) {
	d.title(orHost(e.Who())+": "+e.Text, StyleOf(doctor.Severity(e.Severity)))
	d.field("what", string(e.Kind)+", "+e.Severity)
	if e.Initial {
		d.field("since", "it was so at the first look")
	}
	if t, ok := when(d.env, e); ok {
		d.field("when", t.Format(time.RFC3339))
	}
	d.field("after", ui.Duration(d.l, e.AtNS)+" of watching")
	if len(e.Subjects) > 0 {
		d.devices(e.Subjects)
	} else {
		d.field("device", string(e.Subject))
	}
	d.field("source", e.Source)
	d.field("code", e.Code)
	if e.Flaps > 0 {
		d.field("went down", text.Plural(e.Flaps, "time")+" since the watch began")
	}
	for _, name := range slices.Sorted(maps.Keys(e.Counters)) {
		d.field("counter", name+" moved by "+strconv.FormatUint(e.Counters[name], 10))
	}
	d.list("detail", e.Detail)
}

func orHost(s string) string {
	if s == "" {
		return "host"
	}
	return s
}

func finding(d *detail, f *doctor.Finding) {
	d.title(f.Text, StyleOf(f.Severity))
	d.field("check", string(f.Code)+", "+string(f.Severity))
	d.devices(f.Subjects)
	d.list("evidence", f.Evidence)
	d.field("fix", f.Fix)
	d.field("rate is", string(f.Basis))
}

func (d *detail) devices(ids []topo.ID) {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = string(id)
	}
	d.field("devices", strings.Join(list, ", "))
}

func missing(d *detail, c *doctor.CheckResult, m *doctor.Missing) {
	d.title("not checked: "+m.Text, ui.Plain)
	d.field("check", string(c.Code)+": "+c.Title)
	d.devices(m.Subjects)
	d.field("how", m.How)
}

func difference(d *detail, x *diff.Difference, style ui.Style) {
	d.title(orHost(nodes(x.Nodes))+": "+string(x.Kind), style)
	d.field("what", x.Text())
	d.field("attribute", x.Attribute)
	d.field("before", x.Old)
	d.field("now", x.New)
	d.field("note", x.Note)
	d.field("effect", x.Effect)
	for i := range x.Paths {
		p := &x.Paths[i]
		d.field("path", fmt.Sprintf("%s to %s: %s, before %s", p.NewLocation, p.NewPort.Name(),
			d.l.Rate(p.NewBytesPerSec), d.l.Rate(p.OldBytesPerSec)))
	}
	if more := x.PathsAffected - len(x.Paths); more > 0 && len(x.Paths) > 0 {
		d.field(" ", "and "+text.Plural(more, "more path", "more paths"))
	}
	const most = 32
	for i := range x.Nodes {
		if i == most {
			d.field("device", fmt.Sprintf("and %d more", len(x.Nodes)-i))
			break
		}
		changed(d, &x.Nodes[i])
	}
}

// changed is a device on both sides.
func changed(d *detail, n *diff.Node) {
	text := string(n.Kind) + " " + n.Name
	switch {
	case n.Old == "":
		text += ", was not there"
	case n.New == "":
		text += ", is not there any more"
	case n.Old != n.New:
		text += ", was " + n.Old
	}
	if n.MatchedBy != "" {
		text += ", known by " + string(n.MatchedBy)
	}
	d.field("device", text)
	d.field("  before", n.OldEvidence)
	d.field("  now", n.NewEvidence)
	d.field("  with it", strings.Join(n.With, ", "))
}

func choice(d *detail, x *diff.Choice) {
	d.title("the choice of ports changes: "+x.Choice, ui.Middle)
	d.field("of", orHost(nodes(x.Locations)))
	d.field("before", strings.Join(x.OldNames, ", "))
	d.field("now", strings.Join(x.NewNames, ", "))
	d.field("why", x.Reason)
	d.field("effect", x.Effect)
}

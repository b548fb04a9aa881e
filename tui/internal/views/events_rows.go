package views

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/diff"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/watch"
	"github.com/topoctl/topoctl/pathsel/doctor"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// line is a row with a mark, cells and a rest that takes what is left. The columns are those of all
// rows of a page: the subject gets as much as the longest takes.
func line(env *ui.Env, key string, style ui.Style, columns []ui.Column, cells ...string) ui.Line {
	l := env.Look
	subject := &columns[len(columns)-2]
	subject.Most = max(subject.Most, min(ui.Width(cells[len(cells)-2]), mostSubject))
	return ui.Line{Key: key, Text: func(w int) string {
		text := ui.Cells(l, ui.Fit(columns, w), func(i, _ int) string { return cells[i] })
		return l.Paint(text, style)
	}}
}

// The most columns that a subject takes, and the most devices that it names: "gpu:0, gpu:1, gpu:2
// and 9 more".
const mostSubject, mostNamed = 40, 3

// The columns of the pages: when, mark, what kind, of what, in words.
var (
	eventColumns = []ui.Column{
		{Width: 8, Rank: 1}, {Width: 1, Rank: 0}, {Width: 15, Rank: 2}, {Width: 12, Rank: 3}, {Width: 16, Most: 400, Rank: 4},
	}
	findingColumns = []ui.Column{{Width: 1, Rank: 0}, {Width: 18, Rank: 1}, {Width: 14, Rank: 2}, {Width: 16, Most: 400, Rank: 3}}
	driftColumns   = []ui.Column{{Width: 1, Rank: 0}, {Width: 10, Rank: 1}, {Width: 14, Rank: 2}, {Width: 16, Most: 400, Rank: 3}}
)

// eventRows are the events, the newest first.
func eventRows(env *ui.Env) []eventsRow {
	s, l, columns := env.State, env.Look, slices.Clone(eventColumns)
	var out []eventsRow
	for i := len(s.Events) - 1; i >= 0; i-- {
		e := &s.Events[i]
		if !env.Filter.Match(eventWords(e)) {
			continue
		}
		style := eventsStyleOf(e.Severity)
		out = append(out, eventsRow{
			// Events are dropped at the other end: the number of each stays.
			Line: line(env, "event "+strconv.Itoa(s.Dropped+i), style, columns, clock(env, e), l.Mark(style), l.Safe(string(e.Kind)),
				l.Safe(orHost(e.Who())), l.Safe(e.Text)),
			subject: e.Subject, value: e, detail: func(d *eventsDetail) { d.event(e) },
		})
	}
	if len(out) > 0 {
		return out
	}
	if len(s.Events) > 0 {
		return []eventsRow{plain("none of " + text.Plural(len(s.Events), "event") + " matches the filter")}
	}
	return []eventsRow{plain("nothing has happened yet")}
}

func eventWords(e *watch.Event) string {
	return strings.Join(append([]string{e.Severity, string(e.Kind), string(e.Subject), names(e.Subjects), e.Source, e.Code, e.Text}, e.Detail...), " ")
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

// findingRows are what the doctor finds now, then what could not be checked.
func findingRows(env *ui.Env) []eventsRow {
	l, d := env.Look, env.State.Doctor
	if d == nil {
		return []eventsRow{plain("the host is not known yet")}
	}
	var out []eventsRow
	columns := slices.Clone(findingColumns)
	list := d.Findings()
	for i := range list {
		f := &list[i]
		if !env.Filter.Match(strings.Join(append([]string{string(f.Severity), string(f.Code), f.Text, names(f.Subjects)}, f.Evidence...), " ")) {
			continue
		}
		style := eventsStyleOf(string(f.Severity))
		out = append(out, eventsRow{
			Line: line(env, fmt.Sprintf("finding %s %v %s", f.Code, f.Subjects, f.Text), style, columns, l.Mark(style), l.Safe(string(f.Code)),
				l.Safe(orHost(few(f.Subjects))), l.Safe(f.Text)),
			subject: first(f.Subjects), value: f, detail: func(d *eventsDetail) { d.finding(f) },
		})
	}
	for i := range d.Checks {
		out = append(out, missingRows(env, columns, &d.Checks[i])...)
	}
	switch {
	case len(out) > 0:
		return out
	case env.Filter != "":
		return []eventsRow{plain("no finding matches the filter")}
	}
	return []eventsRow{plain("nothing is wrong, as far as " + text.Plural(d.Summary.OK, "check") + " can tell")}
}

// missingRows say what a check could not read.
func missingRows(env *ui.Env, columns []ui.Column, c *doctor.CheckResult) []eventsRow {
	l := env.Look
	var out []eventsRow
	for k := range c.Missing {
		m := &c.Missing[k]
		if !env.Filter.Match(strings.Join([]string{"not checked", string(c.Code), m.Text, names(m.Subjects)}, " ")) {
			continue
		}
		out = append(out, eventsRow{
			Line: line(env, fmt.Sprintf("missing %s %v %s", c.Code, m.Subjects, m.Text), ui.Faint, columns, "?", l.Safe(string(c.Code)),
				l.Safe(orHost(few(m.Subjects))), "not checked: "+l.Safe(m.Text)),
			subject: first(m.Subjects), value: m, detail: func(d *eventsDetail) { d.missing(c, m) },
		})
	}
	return out
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

func orHost(s string) string {
	if s == "" {
		return "host"
	}
	return s
}

func first(ids []topo.ID) topo.ID {
	if len(ids) == 0 {
		return ""
	}
	return ids[0]
}

// driftRows are the differences, then the choices of ports that change.
func driftRows(env *ui.Env) []eventsRow {
	l, r := env.Look, env.State.Drift
	if r == nil {
		return []eventsRow{plain("nothing to compare yet")}
	}
	var out []eventsRow
	columns := slices.Clone(driftColumns)
	for i := range r.Differences {
		x := &r.Differences[i]
		if !env.Filter.Match(strings.Join([]string{string(x.Kind), x.Attribute, nodes(x.Nodes), x.Text(), x.Effect}, " ")) {
			continue
		}
		style := driftStyle(x.Kind)
		text := x.Text()
		if x.Effect != "" {
			text += "; " + x.Effect
		}
		out = append(out, eventsRow{
			Line: line(env, fmt.Sprintf("difference %s %s %s", x.Kind, x.Attribute, nodes(x.Nodes)), style, columns, l.Mark(style), l.Safe(string(x.Kind)),
				l.Safe(orHost(nodes(x.Nodes))), l.Safe(text)),
			subject: nodeNow(x.Nodes), value: x, detail: func(d *eventsDetail) { d.difference(x) },
		})
	}
	for i := range r.Policy {
		x := &r.Policy[i]
		if !env.Filter.Match(strings.Join([]string{string(x.Kind), x.Choice, nodes(x.Locations), x.Text()}, " ")) {
			continue
		}
		out = append(out, eventsRow{
			Line: line(env, fmt.Sprintf("choice %s %s", x.Choice, nodes(x.Locations)), ui.Middle, columns, l.Mark(ui.Middle), l.Safe(string(x.Kind)),
				l.Safe(orHost(nodes(x.Locations))), l.Safe(x.Text())),
			subject: nodeNow(x.Locations), value: x, detail: func(d *eventsDetail) { d.choice(x) },
		})
	}
	switch {
	case len(out) > 0:
		return out
	case r.Equal:
		return []eventsRow{plain("no difference")}
	}
	return []eventsRow{plain("no difference matches the filter")}
}

// driftStyle is that of a warning where something is lost.
func driftStyle(k diff.Kind) ui.Style {
	switch k {
	case diff.Removed, diff.Degraded, diff.Policy:
		return ui.Middle
	}
	return ui.Plain
}

// namesMost bounds how many devices one line names.
const namesMost = 8

func nodes(list []diff.Node) string {
	var out []string
	for i := range list {
		if i == namesMost {
			out = append(out, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		out = append(out, list[i].Name)
	}
	return strings.Join(out, ", ")
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

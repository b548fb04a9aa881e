package views

import (
	"github.com/topoctl/topoctl/discover/topo"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

const (
	changes page = iota
	findings
	drift
	eventsPages
)

// EventsView is the dashboard's sixth view: what has changed since the feed began, what the
// doctor finds now, and how the host differs from the baseline.
type EventsView struct {
	page page
	at   [eventsPages]place
	head int // lines above the list in the last frame
}

// place is where the user is in one of the pages.
type place struct {
	list ui.List
	// away: the cursor was moved from the first line. Until then it stays on that, which is
	// the newest event.
	away bool
}

// NewEvents makes the view.
func NewEvents() *EventsView { return &EventsView{} }

// Name is what the tab says.
func (v *EventsView) Name() string { return "Events" }

// Hints are the keys that do something here.
func (v *EventsView) Hints() []ui.Action {
	return []ui.Action{ui.Wide, ui.Enter, ui.FilterKey, ui.Copy}
}

// Key moves the cursor and changes the page; Enter shows the device in the tree.
func (v *EventsView) Key(a ui.Action, env *ui.Env) ui.Request {
	rows := v.rows(env)
	lines := v.lines(rows)
	at := &v.at[v.page]
	switch {
	case a == ui.Wide || a == ui.Right:
		v.page = (v.page + 1) % eventsPages
	case a == ui.Left:
		v.page = (v.page + eventsPages - 1) % eventsPages
	case a == ui.Enter:
		if r := v.under(env); r != nil && r.subject != "" {
			env.Shared.Node = r.subject
			return ui.Request{Show: ui.Tree}
		}
	case at.list.Move(a, lines):
		now := at.list.Cursor(lines)
		at.away = now >= 0 && lines[now].Key != firstKey(lines)
	}
	return ui.Request{}
}

// Needs is all lines; what they say can use any width.
func (v *EventsView) Needs(env *ui.Env, width int) ui.Size {
	return ui.Size{H: len(v.summary(env, width)) + len(v.rows(env))}
}

// Position says which lines are shown.
func (v *EventsView) Position() string { return v.at[v.page].list.Position() }

// Main draws the counts, then the page.
func (v *EventsView) Main(env *ui.Env, size ui.Size) []string {
	out := v.summary(env, size.W)
	out = out[:min(len(out), size.H)]
	v.head = len(out)
	for i := range out {
		out[i] = env.Look.Fit(out[i], size.W)
	}
	return append(out, v.at[v.page].list.Draw(env.Look, v.lines(v.rows(env)), ui.Size{W: size.W, H: size.H - v.head})...)
}

// Click puts the cursor on a line; again shows the device in the tree.
func (v *EventsView) Click(_, y int, env *ui.Env) ui.Request {
	at := &v.at[v.page]
	again, ok := at.list.Click(y - v.head)
	if !ok {
		return ui.Request{}
	}
	at.away = true
	if again {
		return v.Key(ui.Enter, env)
	}
	return ui.Request{}
}

// Selection is the event, finding or difference.
func (v *EventsView) Selection(env *ui.Env) any {
	if r := v.under(env); r != nil {
		return r.value
	}
	return nil
}

// Detail tells all of it.
func (v *EventsView) Detail(env *ui.Env, width int) []string {
	r := v.under(env)
	if r == nil {
		return nil
	}
	d := &eventsDetail{env: env, l: env.Look, w: width}
	r.detail(d)
	return d.lines
}

// eventsRow is one line of a page.
type eventsRow struct {
	ui.Line
	subject topo.ID // the device, "" none
	value   any     // what is selected
	detail  func(d *eventsDetail)
}

func (v *EventsView) rows(env *ui.Env) []eventsRow {
	switch v.page {
	case findings:
		return findingRows(env)
	case drift:
		return driftRows(env)
	}
	return eventRows(env)
}

// lines keeps the cursor on the first line until it was moved away.
func (v *EventsView) lines(rows []eventsRow) []ui.Line {
	out := make([]ui.Line, len(rows))
	for i := range rows {
		out[i] = rows[i].Line
	}
	if at := &v.at[v.page]; !at.away {
		at.list.Go(firstKey(out))
	}
	return out
}

func firstKey(lines []ui.Line) string {
	for i := range lines {
		if lines[i].Key != "" {
			return lines[i].Key
		}
	}
	return ""
}

func (v *EventsView) under(env *ui.Env) *eventsRow {
	rows := v.rows(env)
	if at := v.at[v.page].list.Cursor(v.lines(rows)); at >= 0 {
		return &rows[at]
	}
	return nil
}

// plain is a line that the cursor passes by.
func plain(text string) eventsRow {
	return eventsRow{Line: ui.Line{Text: func(int) string { return text }}}
}

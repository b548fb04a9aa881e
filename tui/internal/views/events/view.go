// Package events is the dashboard's sixth view: what has changed since the feed began, what
// the doctor finds now, and how the host differs from the baseline.
package events

import (
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/tui/internal/keys"
	"github.com/topoctl/topoctl/tui/internal/pane"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// page is what the list is of.
type page int

const (
	changes page = iota
	findings
	drift
	pages
)

// View implements ui.View.
type View struct {
	page page
	at   [pages]place
	head int // lines above the list in the last frame
}

// place is where the user is in one of the pages.
type place struct {
	list pane.List
	// away: the cursor was moved from the first line. Until then it stays on that, which is
	// the newest event.
	away bool
}

// New makes the view.
func New() *View { return &View{} }

// Name is what the tab says.
func (v *View) Name() string { return "Events" }

// Hints are the keys that do something here.
func (v *View) Hints() []keys.Action {
	return []keys.Action{keys.Wide, keys.Enter, keys.Filter, keys.Copy}
}

// Key moves the cursor and changes the page; Enter shows the device in the tree.
func (v *View) Key(a keys.Action, env *ui.Env) ui.Request {
	rows := v.rows(env)
	lines := v.lines(rows)
	at := &v.at[v.page]
	switch {
	case a == keys.Wide || a == keys.Right:
		v.page = (v.page + 1) % pages
	case a == keys.Left:
		v.page = (v.page + pages - 1) % pages
	case a == keys.Enter:
		if r := v.under(env); r != nil && r.subject != "" {
			env.Shared.Node = r.subject
			return ui.Request{Show: keys.Tree}
		}
	case at.list.Move(a, lines):
		now := at.list.Cursor(lines)
		at.away = now >= 0 && lines[now].Key != firstKey(lines)
	}
	return ui.Request{}
}

// Needs is all lines; what they say can use any width.
func (v *View) Needs(env *ui.Env, width int) ui.Size {
	return ui.Size{H: len(v.summary(env, width)) + len(v.rows(env))}
}

// Position says which lines are shown.
func (v *View) Position() string { return v.at[v.page].list.Position() }

// Main draws the counts, then the page.
func (v *View) Main(env *ui.Env, size ui.Size) []string {
	out := v.summary(env, size.W)
	out = out[:min(len(out), size.H)]
	v.head = len(out)
	for i := range out {
		out[i] = env.Look.Fit(out[i], size.W)
	}
	return append(out, v.at[v.page].list.Draw(env.Look, v.lines(v.rows(env)), ui.Size{W: size.W, H: size.H - v.head})...)
}

// Click puts the cursor on a line; again shows the device in the tree.
func (v *View) Click(_, y int, env *ui.Env) ui.Request {
	at := &v.at[v.page]
	again, ok := at.list.Click(y - v.head)
	if !ok {
		return ui.Request{}
	}
	at.away = true
	if again {
		return v.Key(keys.Enter, env)
	}
	return ui.Request{}
}

// Selection is the event, finding or difference.
func (v *View) Selection(env *ui.Env) any {
	if r := v.under(env); r != nil {
		return r.value
	}
	return nil
}

// Detail tells all of it.
func (v *View) Detail(env *ui.Env, width int) []string {
	r := v.under(env)
	if r == nil {
		return nil
	}
	d := &detail{env: env, l: env.Look, w: width}
	r.detail(d)
	return d.lines
}

// row is one line of a page.
type row struct {
	pane.Line
	subject topo.ID // the device, "" none
	value   any     // what is selected
	detail  func(d *detail)
}

func (v *View) rows(env *ui.Env) []row {
	switch v.page {
	case findings:
		return findingRows(env)
	case drift:
		return driftRows(env)
	}
	return eventRows(env)
}

// lines keeps the cursor on the first line until it was moved away.
func (v *View) lines(rows []row) []pane.Line {
	out := make([]pane.Line, len(rows))
	for i := range rows {
		out[i] = rows[i].Line
	}
	if at := &v.at[v.page]; !at.away {
		at.list.Go(firstKey(out))
	}
	return out
}

func firstKey(lines []pane.Line) string {
	for i := range lines {
		if lines[i].Key != "" {
			return lines[i].Key
		}
	}
	return ""
}

func (v *View) under(env *ui.Env) *row {
	rows := v.rows(env)
	if at := v.at[v.page].list.Cursor(v.lines(rows)); at >= 0 {
		return &rows[at]
	}
	return nil
}

// plain is a line that the cursor passes by.
func plain(text string) row {
	return row{Line: pane.Line{Text: func(int) string { return text }}}
}

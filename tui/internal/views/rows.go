package views

import (
	"slices"

	"github.com/topoctl/topoctl/discover/topo"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// row is a line of a view.
type row struct {
	key    string // what the cursor stays on; "": it passes the line by
	parent string // the key of the line that it is folded away with, "" none
	folds  bool
	text   func(w int) string // nil: the line is empty
	device topo.ID            // what Enter shows in the tree, "" nothing
	value  any                // what is copied
	detail func(d *detail)
}

// textRow is a line that the cursor passes by.
func textRow(text string) row { return row{text: func(int) string { return text }} }

// source is what differs between views of rows.
type source interface {
	// above are the lines over the rows, which do not scroll.
	above(env *ui.Env, w int) []string
	// rows are all lines, those that are folded away too; w is what a line has without the cursor's columns.
	rows(env *ui.Env, w int) []row
	// act carries out an action of the view's own; false: it is none. r is under the cursor, nil nothing.
	act(a ui.Action, env *ui.Env, r *row) (ui.Request, bool)
}

// rowsView is a view of rows on one page or several: the cursor, folds, pages.
type rowsView struct {
	of     source
	name   string
	hints  []ui.Action
	pages  []string // their names, none where there is only one
	page   int
	lists  [3]ui.List // by page
	folded map[string]bool
	// atFirst keeps the cursor on the first row, wherever that goes, until it was moved from there.
	atFirst bool
	away    [3]bool

	width, top int   // of the last frame: its columns, and the lines above the rows
	tabs       []int // where the names of the pages end in its first line
}

// Name is what the tab says.
func (v *rowsView) Name() string { return v.name }

// Hints are the keys that do something here.
func (v *rowsView) Hints() []ui.Action { return v.hints }

// isFolded says whether the rows below one are hidden. A filter shows all that match.
func (v *rowsView) isFolded(env *ui.Env, key string) bool { return v.folded[key] && env.Filter == "" }

// fold is the sign before a row that folds.
func (v *rowsView) fold(env *ui.Env, key string) string {
	if v.isFolded(env, key) {
		return env.Look.Folded() + " "
	}
	return env.Look.Open() + " "
}

// shown are the rows that are not folded away, as a list has them, and the place of the cursor, -1 without one.
func (v *rowsView) shown(env *ui.Env) (rows []row, lines []ui.Line, at int) {
	hidden := map[string]bool{}
	rows = slices.DeleteFunc(v.of.rows(env, max(v.width-2, 1)), func(r row) bool {
		gone := v.isFolded(env, r.parent) || hidden[r.parent]
		if gone && r.key != "" {
			hidden[r.key] = true
		}
		return gone
	})
	lines = make([]ui.Line, len(rows))
	for i := range rows {
		lines[i] = ui.Line{Key: rows[i].key, Text: rows[i].text}
	}
	if v.atFirst && !v.away[v.page] {
		v.list().Go(firstKey(lines))
	}
	return rows, lines, v.list().Cursor(lines)
}

func (v *rowsView) list() *ui.List { return &v.lists[v.page] }

func firstKey(lines []ui.Line) string {
	for i := range lines {
		if lines[i].Key != "" {
			return lines[i].Key
		}
	}
	return ""
}

// under is the row under the cursor, nil none.
func (v *rowsView) under(env *ui.Env) *row {
	if rows, _, at := v.shown(env); at >= 0 {
		return &rows[at]
	}
	return nil
}

// Key carries out an action.
func (v *rowsView) Key(a ui.Action, env *ui.Env) ui.Request {
	rows, lines, at := v.shown(env)
	r := &row{}
	if at >= 0 {
		r = &rows[at]
	}
	if request, ok := v.of.act(a, env, r); ok {
		return request
	}
	folded := v.folded[r.key]
	switch {
	case v.list().Move(a, lines):
		now := v.list().Cursor(lines)
		v.away[v.page] = now >= 0 && lines[now].Key != firstKey(lines)
	case a == ui.Left && v.pages != nil:
		v.page = (v.page + len(v.pages) - 1) % len(v.pages)
	case a == ui.Right && v.pages != nil:
		v.page = (v.page + 1) % len(v.pages)
	case r.folds && (a == ui.Enter || a == ui.Right && folded || a == ui.Left && !folded):
		v.folded[r.key] = !folded
	case a == ui.Left && r.parent != "":
		v.list().Go(r.parent)
	case a == ui.Right && r.folds:
		v.list().Move(ui.Down, lines)
	case a == ui.Enter && r.device != "":
		env.Shared.Node = r.device
		return ui.Request{Show: ui.Tree}
	}
	return ui.Request{}
}

// head is what stands above the rows: the pages with that which is shown in brackets, then what the view says.
func (v *rowsView) head(env *ui.Env, w int) []string {
	l, line, above := env.Look, "", v.of.above(env, w)
	if v.pages == nil {
		return above
	}
	v.tabs = v.tabs[:0]
	for i, name := range v.pages {
		if i == v.page {
			line += l.Paint("["+name+"]", ui.Accent) + " "
		} else {
			line += l.Paint(" "+name+" ", ui.Faint) + " "
		}
		v.tabs = append(v.tabs, ui.Width(line))
	}
	return append([]string{line}, above...)
}

// Needs is all lines; what they say can use any width.
func (v *rowsView) Needs(env *ui.Env, width int) ui.Size {
	v.width = width
	rows, _, _ := v.shown(env)
	return ui.Size{H: len(v.head(env, width)) + len(rows)}
}

// Main draws the rows below what stands above them.
func (v *rowsView) Main(env *ui.Env, size ui.Size) []string {
	v.width = size.W
	out := v.head(env, size.W)
	_, lines, _ := v.shown(env)
	out = out[:min(len(out), max(0, size.H-min(1, len(lines))))]
	for i := range out {
		out[i] = env.Look.Cut(out[i], size.W)
	}
	v.top = len(out)
	return append(out, v.list().Draw(env.Look, lines, ui.Size{W: size.W, H: max(0, size.H-v.top)})...)
}

// Position says which lines are shown.
func (v *rowsView) Position() string { return v.list().Position() }

// Detail tells all of what is under the cursor.
func (v *rowsView) Detail(env *ui.Env, width int) []string {
	d := newDetail(env, width)
	if r := v.under(env); r != nil && r.detail != nil {
		r.detail(d)
	}
	return d.lines
}

// Click puts the cursor on a line, again is Enter; the names of the pages show those.
func (v *rowsView) Click(x, y int, env *ui.Env) ui.Request {
	if y == 0 && v.top > 0 && v.pages != nil {
		if i := slices.IndexFunc(v.tabs, func(end int) bool { return x < end }); i >= 0 {
			v.page = i
		}
		return ui.Request{}
	}
	again, ok := v.list().Click(y - v.top)
	v.away[v.page] = v.away[v.page] || ok
	if again {
		return v.Key(ui.Enter, env)
	}
	return ui.Request{}
}

// Selection is what is under the cursor, for JSON.
func (v *rowsView) Selection(env *ui.Env) any {
	if r := v.under(env); r != nil {
		return r.value
	}
	return nil
}

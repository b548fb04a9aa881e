// Package engine is the dashboard's fifth view: the engines of the agents (and benches)
// that are watched, their lanes, the connections that peers have to them, and what became
// of their latest batches.
package engine

import (
	"github.com/topoctl/topoctl/tui/internal/keys"
	"github.com/topoctl/topoctl/tui/internal/pane"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// order is what lanes and connections are sorted by.
type order int

const (
	byName order = iota
	byThroughput
	byRetries
	orders
)

var orderNames = [orders]string{"name", "throughput", "retries"}

// View implements ui.View.
type View struct {
	list   pane.List
	order  order
	folded map[string]bool // by the key of the row that folds
	width  int             // of the last frame: the heads of agents take as many lines as they need
}

// New makes the view.
func New() *View { return &View{folded: map[string]bool{}, width: 80} }

// Name is what the tab says.
func (v *View) Name() string { return "Engine" }

// Hints are the keys that do something here.
func (v *View) Hints() []keys.Action {
	return []keys.Action{keys.Sort, keys.Enter, keys.Filter, keys.Units, keys.Copy}
}

// Key moves the cursor, sorts and folds.
func (v *View) Key(a keys.Action, env *ui.Env) ui.Request {
	rows := v.rows(env)
	lines := lines(rows)
	if v.list.Move(a, lines) {
		return ui.Request{}
	}
	at := v.list.Cursor(lines)
	switch {
	case a == keys.Sort:
		v.order = (v.order + 1) % orders
		env.Shared.Message = "sorted by " + orderNames[v.order]
	case at < 0:
	case a == keys.Enter && rows[at].folds:
		v.folded[rows[at].key] = !v.folded[rows[at].key]
	case a == keys.Right && rows[at].folds:
		delete(v.folded, rows[at].key)
	case a == keys.Left && rows[at].folds && !v.folded[rows[at].key]:
		v.folded[rows[at].key] = true
	case a == keys.Left && rows[at].parent != "":
		v.list.Go(rows[at].parent)
	}
	return ui.Request{}
}

// Needs is all lines; names and sparklines can use any width.
func (v *View) Needs(env *ui.Env, width int) ui.Size {
	v.width = width
	return ui.Size{H: len(v.rows(env))}
}

// Position says which lines are shown.
func (v *View) Position() string { return v.list.Position() }

// Main draws the engines one below the other.
func (v *View) Main(env *ui.Env, size ui.Size) []string {
	v.width = size.W
	return v.list.Draw(env.Look, lines(v.rows(env)), size)
}

// Click puts the cursor on a line; again folds it.
func (v *View) Click(_, y int, env *ui.Env) ui.Request {
	if again, ok := v.list.Click(y); ok && again {
		return v.Key(keys.Enter, env)
	}
	return ui.Request{}
}

// Selection is what the agent said of the lane, connection, batch or engine.
func (v *View) Selection(env *ui.Env) any {
	r := v.under(env)
	switch {
	case r == nil:
		return nil
	case r.lane != nil:
		return &r.lane.LaneStats
	case r.served != nil:
		return &r.served.ServedStats
	case r.batch != nil:
		return r.batch
	case r.block.engine != nil:
		return r.block.engine.Last
	}
	return nil
}

// under is the row under the cursor, nil none.
func (v *View) under(env *ui.Env) *row {
	rows := v.rows(env)
	if at := v.list.Cursor(lines(rows)); at >= 0 {
		return &rows[at]
	}
	return nil
}

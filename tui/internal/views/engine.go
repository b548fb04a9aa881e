package views

import (
	"github.com/topoctl/topoctl/tui/internal/ui"
)

const (
	engineByName order = iota
	byThroughput
	byRetries
	engineOrders
)

var orderNames = [engineOrders]string{"name", "throughput", "retries"}

// EngineView is the dashboard's fifth view: the engines of the agents (and benches) that are
// watched, their lanes, the connections that peers have to them, and what became of their latest
// batches.
type EngineView struct {
	list   ui.List
	order  order
	folded map[string]bool // by the key of the row that folds
	width  int             // of the last frame: the heads of agents take as many lines as they need
}

// NewEngine makes the view.
func NewEngine() *EngineView { return &EngineView{folded: map[string]bool{}, width: 80} }

// Name is what the tab says.
func (v *EngineView) Name() string { return "Engine" }

// Hints are the keys that do something here.
func (v *EngineView) Hints() []ui.Action {
	return []ui.Action{ui.Sort, ui.Enter, ui.FilterKey, ui.Units, ui.Copy}
}

// Key moves the cursor, sorts and folds.
func (v *EngineView) Key(a ui.Action, env *ui.Env) ui.Request {
	rows := v.rows(env)
	lines := engineLines(rows)
	if v.list.Move(a, lines) {
		return ui.Request{}
	}
	at := v.list.Cursor(lines)
	switch {
	case a == ui.Sort:
		v.order = (v.order + 1) % engineOrders
		env.Shared.Message = "sorted by " + orderNames[v.order]
	case at < 0:
	case a == ui.Enter && rows[at].folds:
		v.folded[rows[at].key] = !v.folded[rows[at].key]
	case a == ui.Right && rows[at].folds:
		delete(v.folded, rows[at].key)
	case a == ui.Left && rows[at].folds && !v.folded[rows[at].key]:
		v.folded[rows[at].key] = true
	case a == ui.Left && rows[at].parent != "":
		v.list.Go(rows[at].parent)
	}
	return ui.Request{}
}

// Needs is all lines; names and sparklines can use any width.
func (v *EngineView) Needs(env *ui.Env, width int) ui.Size {
	v.width = width
	return ui.Size{H: len(v.rows(env))}
}

// Position says which lines are shown.
func (v *EngineView) Position() string { return v.list.Position() }

// Main draws the engines one below the other.
func (v *EngineView) Main(env *ui.Env, size ui.Size) []string {
	v.width = size.W
	return v.list.Draw(env.Look, engineLines(v.rows(env)), size)
}

// Click puts the cursor on a line; again folds it.
func (v *EngineView) Click(_, y int, env *ui.Env) ui.Request {
	if again, ok := v.list.Click(y); ok && again {
		return v.Key(ui.Enter, env)
	}
	return ui.Request{}
}

// Selection is what the agent said of the lane, connection, batch or engine.
func (v *EngineView) Selection(env *ui.Env) any {
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
func (v *EngineView) under(env *ui.Env) *engineRow {
	rows := v.rows(env)
	if at := v.list.Cursor(engineLines(rows)); at >= 0 {
		return &rows[at]
	}
	return nil
}

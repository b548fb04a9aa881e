package views

import (
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// MatrixView is the dashboard's second view: how each GPU and NUMA node relates to each
// NIC, as a table of classes, expected rates or measured ones, with frozen heads. Use NewMatrix.
type MatrixView struct {
	cache    Cache
	figure   figure
	axes     int
	grid     *grid
	row, col topo.ID // under the cursor
	shared   topo.ID // Shared.Node as it was seen last
	// Where they were when they were last found, among those that the filter keeps.
	rowAt, colAt int
	top, left    int
	page         int   // rows that Main drew last
	short        bool  // with numbers in place of NICs
	drawn        frame // where it drew what
}

// frame is where cells are on the screen.
type frame struct {
	first, head, slot int   // line of the first row, columns of the row heads, columns of a cell
	rows, cols        []int // of the grid
}

// figure is what cells show.
type figure int

const (
	class figure = iota
	expected
	measured
	delta
	figures
)

func (f figure) String() string {
	return [...]string{class: "class", expected: "expected", measured: "measured", delta: "delta"}[f]
}

// axes are the kinds of rows and columns that can be shown.
var axes = []struct {
	name       string
	rows, cols []topo.Kind
}{
	{"GPU, CPU x NIC", []topo.Kind{topo.KindGPU, topo.KindNUMA}, []topo.Kind{topo.KindNIC}},
	{"GPU x GPU", []topo.Kind{topo.KindGPU}, []topo.Kind{topo.KindGPU}},
	{"CPU x NIC", []topo.Kind{topo.KindNUMA}, []topo.Kind{topo.KindNIC}},
	{"all x all", []topo.Kind{topo.KindGPU, topo.KindNIC, topo.KindNUMA}, []topo.Kind{topo.KindGPU, topo.KindNIC, topo.KindNUMA}},
}

// NewMatrix is the view before anything is known.
func NewMatrix() ui.View { return &MatrixView{} }

// Name is the view's.
func (*MatrixView) Name() string { return "Matrix" }

// Hints are what the footer shows.
func (*MatrixView) Hints() []ui.Action {
	return []ui.Action{ui.Wide, ui.Sort, ui.Enter, ui.FilterKey}
}

// sync brings the grid up to the state; false where there is nothing to relate.
func (v *MatrixView) sync(env *ui.Env) bool {
	h := v.cache.Of(env.State)
	if h == nil {
		v.grid = nil
		return false
	}
	if v.grid == nil || v.grid.h != h || v.grid.axes != v.axes {
		v.grid = newGrid(h, v.axes)
	}
	v.grid.measure(env.State)
	if id := env.Shared.Node; id != v.shared {
		v.shared = id
		v.goTo(h.Device(id))
	}
	return true
}

// goTo puts the cursor on the row or the column of a device, where it has one.
func (v *MatrixView) goTo(id topo.ID) {
	is := func(e topo.MatrixEntry) bool { return e.ID == id }
	if slices.ContainsFunc(v.grid.m.Rows, is) {
		v.row = id
	}
	if slices.ContainsFunc(v.grid.m.Cols, is) {
		v.col = id
	}
}

// kept are the rows and columns that the filter keeps. One that names rows keeps all
// columns, and the other way round.
func (v *MatrixView) kept(env *ui.Env) (rows, cols []int) {
	g := v.grid
	all := func(list []topo.MatrixEntry) []int {
		out := make([]int, len(list))
		for i := range out {
			out[i] = i
		}
		return out
	}
	match := func(list []topo.MatrixEntry) []int {
		return slices.DeleteFunc(all(list), func(i int) bool { return !env.Filter.Match(label(&list[i])) })
	}
	rows, cols = match(g.m.Rows), match(g.m.Cols)
	inverse := len(env.Filter) > 0 && env.Filter[0] == '!'
	switch {
	case inverse:
	case len(rows) > 0:
		cols = all(g.m.Cols)
	case len(cols) > 0:
		rows = all(g.m.Rows)
	}
	return rows, cols
}

// find gives the places of the cursor among what the filter keeps, which is not empty.
func (v *MatrixView) find(rows, cols []int) (r, c int) {
	at := func(list []topo.MatrixEntry, kept []int, id topo.ID, was int) int {
		if i := slices.IndexFunc(kept, func(k int) bool { return list[k].ID == id }); i >= 0 {
			return i
		}
		return min(max(was, 0), len(kept)-1)
	}
	v.rowAt, v.colAt = at(v.grid.m.Rows, rows, v.row, v.rowAt), at(v.grid.m.Cols, cols, v.col, v.colAt)
	return v.rowAt, v.colAt
}

// move puts the cursor on a cell and tells the other views.
func (v *MatrixView) move(rows, cols []int, r, c int, env *ui.Env) {
	v.rowAt, v.colAt = min(max(r, 0), len(rows)-1), min(max(c, 0), len(cols)-1)
	v.row, v.col = v.grid.m.Rows[rows[v.rowAt]].ID, v.grid.m.Cols[cols[v.colAt]].ID
	env.Shared.From, env.Shared.To = v.row, v.col
}

// Follow keeps the cursor on its devices, which may have other names now.
func (v *MatrixView) Follow(now func(topo.ID) topo.ID) { v.row, v.col = now(v.row), now(v.col) }

// Key carries out an action.
func (v *MatrixView) Key(a ui.Action, env *ui.Env) ui.Request {
	if !v.sync(env) {
		return ui.Request{}
	}
	switch a {
	case ui.Wide:
		v.figure = (v.figure + 1) % figures
		return ui.Request{}
	case ui.Sort:
		v.turn(env)
		return ui.Request{}
	}
	rows, cols := v.kept(env)
	if len(rows) == 0 || len(cols) == 0 {
		return ui.Request{}
	}
	r, c := v.find(rows, cols)
	page := max(1, v.page-1)
	switch a {
	case ui.Up:
		r--
	case ui.Down:
		r++
	case ui.Left:
		c--
	case ui.Right:
		c++
	case ui.PageUp:
		r -= page
	case ui.PageDown:
		r += page
	case ui.Home:
		r, c = 0, 0
	case ui.End:
		r, c = len(rows)-1, len(cols)-1
	case ui.Enter, ui.Explain, ui.Measure:
	default:
		return ui.Request{}
	}
	v.move(rows, cols, r, c, env)
	switch a {
	case ui.Enter:
		return ui.Request{Show: ui.Path}
	case ui.Measure:
		if pairs := v.pairs(env); len(pairs) > 0 {
			return ui.Request{Measure: &ui.MeasureRequest{Pairs: pairs}}
		}
		from, to := &v.grid.m.Rows[rows[v.rowAt]], &v.grid.m.Cols[cols[v.colAt]]
		env.Shared.Message = "no report names " + env.Look.Safe(label(from)+" > "+label(to))
		return ui.Request{Show: ui.Probe}
	}
	return ui.Request{}
}

// turn goes to the next axes that have something on both sides.
func (v *MatrixView) turn(env *ui.Env) {
	for range axes {
		v.axes = (v.axes + 1) % len(axes)
		v.grid = nil
		if v.sync(env) && len(v.grid.m.Rows) > 0 && len(v.grid.m.Cols) > 0 {
			return
		}
	}
}

// pairs are those under the cursor that a probe has measured before: their IDs are known.
func (v *MatrixView) pairs(env *ui.Env) []string {
	var out []string
	add := func(r *probe.Report) {
		name, ok := hostIn(r, v.grid.h.Topology)
		if !ok {
			return
		}
		for i := range r.Results {
			x := &r.Results[i]
			from, to := v.grid.h.Device(x.From.Node), v.grid.h.Device(x.To.Node)
			if x.From.Host == name && x.To.Host == name && from == v.row && to == v.col && !slices.Contains(out, x.ID) {
				out = append(out, x.ID)
			}
		}
	}
	if env.State.Probe != nil {
		add(env.State.Probe.Report)
	}
	add(env.State.Measured)
	return out
}

// Click selects a cell; the one under the cursor is explained.
func (v *MatrixView) Click(x, y int, env *ui.Env) ui.Request {
	f := v.drawn
	if !v.sync(env) || f.slot == 0 || y < f.first || x < f.head {
		return ui.Request{}
	}
	i, j := y-f.first, (x-f.head)/f.slot
	rows, cols := v.kept(env)
	if i >= len(f.rows) || j >= len(f.cols) || len(rows) == 0 || len(cols) == 0 {
		return ui.Request{}
	}
	r, c := slices.Index(rows, f.rows[i]), slices.Index(cols, f.cols[j])
	if r < 0 || c < 0 {
		return ui.Request{}
	}
	wasR, wasC := v.find(rows, cols)
	if r == wasR && c == wasC {
		return v.Key(ui.Enter, env)
	}
	v.move(rows, cols, r, c, env)
	return ui.Request{}
}

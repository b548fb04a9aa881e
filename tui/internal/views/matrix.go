package views

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/probe"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// MatrixView is the dashboard's second view: the text of "topoctl matrix", in which a cursor
// chooses two devices. Use NewMatrix.
type MatrixView struct {
	hosts    *Cache
	h        *Host
	figure   int // of matrixFigures
	axes     int
	row, col topo.ID // under the cursor
	shared   topo.ID // Shared.Node as it was seen last
	// Where they were when they were last found, among those that the filter keeps.
	rowAt, colAt int
	top, page    int // the first line of the text that Main drew last, and how many,
	all          int // of how many

	made   matrixOf
	m      *topo.Matrix // made of that, nil nothing
	drawn  matrixText
	lines  []string // of that
	places [][]picture.Place
}

// matrixOf is what a matrix was made of, matrixText how it was set in lines.
type (
	matrixOf struct {
		h            *Host
		axes, figure int
		filter       ui.Filter
		live         *probe.Report
		results      int // of it
	}
	matrixText struct {
		m    *topo.Matrix
		look ui.Look
		w    int
	}
)

var matrixFigures = []picture.MatrixView{picture.ViewClass, picture.ViewNCCL, picture.ViewExpected, picture.ViewMeasured, picture.ViewDelta}

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
func NewMatrix(hosts *Cache) *MatrixView { return &MatrixView{hosts: hosts} }

// Name is the view's.
func (*MatrixView) Name() string { return "Matrix" }

// Hints are what the footer shows.
func (*MatrixView) Hints() []ui.Action {
	return []ui.Action{ui.Wide, ui.Sort, ui.Enter, ui.FilterKey}
}

// Follow keeps the cursor on its devices, which may have other names now.
func (v *MatrixView) Follow(now func(topo.ID) topo.ID) { v.row, v.col = now(v.row), now(v.col) }

// matrix is what the filter keeps of the matrix, nil nothing, and the place of the cursor in it.
func (v *MatrixView) matrix(env *ui.Env) (m *topo.Matrix, i, j int) {
	if v.h = v.hosts.Of(env.State); v.h == nil {
		return nil, 0, 0
	}
	now := matrixOf{h: v.h, axes: v.axes, figure: v.figure, filter: env.Filter}
	if p := env.State.Probe; p != nil {
		now.live, now.results = p.Report, p.ResultsSeen
	}
	if v.made != now {
		v.m = v.make(env)
		now.axes = v.axes
		v.made = now
	}
	if v.m == nil {
		return nil, 0, 0
	}
	if id := env.Shared.Node; id != v.shared {
		v.shared = id
		v.goTo(v.m, v.h.Device(id))
	}
	at := func(list []topo.MatrixEntry, id topo.ID, was int) int {
		if i := slices.IndexFunc(list, func(e topo.MatrixEntry) bool { return e.ID == id }); i >= 0 {
			return i
		}
		return min(max(was, 0), len(list)-1)
	}
	v.rowAt, v.colAt = at(v.m.Rows, v.row, v.rowAt), at(v.m.Cols, v.col, v.colAt)
	return v.m, v.rowAt, v.colAt
}

// make makes the matrix, on axes that have something on both sides. A filter that names
// rows keeps all columns, and the other way round.
func (v *MatrixView) make(env *ui.Env) *topo.Matrix {
	all := func() *topo.Matrix { return v.h.Topology.Matrix(axes[v.axes].rows, axes[v.axes].cols) }
	m := all()
	for range axes {
		if len(m.Rows) > 0 && len(m.Cols) > 0 {
			break
		}
		v.axes = (v.axes + 1) % len(axes)
		m = all()
	}
	match := func(e topo.MatrixEntry) bool { return env.Filter.Match(label(&e)) }
	every := func(topo.MatrixEntry) bool { return true }
	switch rows := explain.Part(m, match, every); {
	case strings.HasPrefix(string(env.Filter), "!"):
		m = explain.Part(m, match, match)
	case len(rows.Rows) > 0:
		m = rows
	default:
		m = explain.Part(m, every, match)
	}
	if len(m.Rows) == 0 || len(m.Cols) == 0 {
		return nil
	}
	if v.measures() {
		m.Measured, _ = v.rates(env, m)
	}
	return m
}

// measures says whether cells have what was measured.
func (v *MatrixView) measures() bool {
	return matrixFigures[v.figure] == picture.ViewMeasured || matrixFigures[v.figure] == picture.ViewDelta
}

// goTo puts the cursor on the row or the column of a device, where it has one.
func (v *MatrixView) goTo(m *topo.Matrix, id topo.ID) {
	is := func(e topo.MatrixEntry) bool { return e.ID == id }
	if slices.ContainsFunc(m.Rows, is) {
		v.row = id
	}
	if slices.ContainsFunc(m.Cols, is) {
		v.col = id
	}
}

// reports are those of this host, what is live after what is older, with what they call it.
func (v *MatrixView) reports(env *ui.Env) (reports []*probe.Report, names []string) {
	list := []*probe.Report{env.State.Measured}
	if p := env.State.Probe; p != nil {
		list = append(list, p.Report)
	}
	for _, r := range list {
		if name, ok := hostIn(r, v.h.Topology); ok {
			reports, names = append(reports, r), append(names, name)
		}
	}
	return reports, names
}

// rates are what was measured of the cells of a matrix, and between which devices; what is live replaces what is older.
func (v *MatrixView) rates(env *ui.Env, m *topo.Matrix) ([][]*topo.Rate, map[[2]topo.ID]topo.Rate) {
	pairs := map[[2]topo.ID]topo.Rate{}
	reports, names := v.reports(env)
	for i, r := range reports {
		maps.Copy(pairs, explain.PairRates(r.Between(names[i]), v.h.index))
	}
	return explain.Measured(m, v.h.Graph(), pairs), pairs
}

// hostIn is what a report calls a host: of those that are built like it the one that has
// its name, or the only one.
func hostIn(r *probe.Report, t *topo.Topology) (string, bool) {
	if r == nil {
		return "", false
	}
	print := t.Fingerprint()
	name, alike := "", 0
	for i := range r.Hosts {
		switch h := &r.Hosts[i]; {
		case h.Fingerprint != print:
		case h.Name == t.Host.Name:
			return h.Name, true
		default:
			name = h.Name
			alike++
		}
	}
	return name, alike == 1
}

// label is how a row or column is called.
func label(e *topo.MatrixEntry) string {
	if e.Kind == topo.KindNUMA && e.NUMA != nil {
		return "cpu:" + strconv.Itoa(*e.NUMA)
	}
	return e.Name
}

// title says which figures there are of which devices, and where the cursor is.
func (v *MatrixView) title(env *ui.Env, m *topo.Matrix, i, j int) string {
	l := env.Look
	title := l.Paint(string(matrixFigures[v.figure]), ui.Strong) + "  " + axes[v.axes].name + "  " +
		l.Paint(l.Safe(label(&m.Rows[i]))+" "+l.Arrow()+" "+l.Safe(label(&m.Cols[j])), ui.Accent)
	if why := v.unmeasured(env); why != "" && v.measures() {
		title += "  " + l.Paint(why, ui.Middle)
	}
	return title
}

// text is what the command prints, in lines of w columns, and where the cells stand in it.
func (v *MatrixView) text(l *ui.Look, m *topo.Matrix, w int) ([]string, [][]picture.Place) {
	if now := (matrixText{m, *l, w}); v.drawn != now {
		text, places := picture.MatrixText(m, picture.MatrixOptions{View: matrixFigures[v.figure], Color: l.Color, Units: l.Units, Width: w})
		v.drawn, v.lines, v.places = now, document(l, text), places
		if v.measures() {
			v.judge(l, m, v.lines, places)
		}
	}
	return slices.Clone(v.lines), v.places
}

// judge marks the cells in which less was measured than a probe would pass.
func (v *MatrixView) judge(l *ui.Look, m *topo.Matrix, lines []string, places [][]picture.Place) {
	rules := probe.DefaultRules()
	for i := range places {
		for j := len(places[i]) - 1; j >= 0; j-- {
			rate, want, style := m.Measured[i][j], m.Rate[i][j], ui.Good
			if rate == nil || want == nil || *want <= 0 {
				continue
			}
			switch part := float64(*rate) / float64(*want); {
			case part < rules.FailUnder:
				style = ui.Bad
			case part < rules.WarnUnder:
				style = ui.Middle
			}
			p := places[i][j]
			line := lines[p.Line]
			rest := l.Mark(style) + ansi.TruncateLeft(line, p.Column+p.Width+1, "")
			lines[p.Line] = ansi.Truncate(line, p.Column, "") + l.Paint(ansi.Strip(ansi.Cut(line, p.Column, p.Column+p.Width)), style) + rest
		}
	}
}

// unmeasured is why no cell has a measured rate, "" where some may have.
func (v *MatrixView) unmeasured(env *ui.Env) string {
	switch reports, _ := v.reports(env); {
	case len(reports) > 0 || len(env.State.Overlay) > 0:
		return ""
	case env.State.Measured == nil && env.State.Probe == nil:
		return "no probe was loaded"
	}
	return "no rate of this host was measured"
}

// Needs is the whole text.
func (v *MatrixView) Needs(env *ui.Env, width int) ui.Size {
	m, _, _ := v.matrix(env)
	if m == nil {
		return ui.Size{H: 1}
	}
	lines, _ := v.text(env.Look, m, width-2)
	return ui.Size{H: 1 + len(lines)}
}

// Main draws the text with the cell under the cursor in brackets.
func (v *MatrixView) Main(env *ui.Env, size ui.Size) []string {
	l := env.Look
	m, i, j := v.matrix(env)
	v.all = 0
	if m == nil {
		why := "no topology yet"
		if v.h != nil {
			why = "nothing to relate: the host has no GPU, no NIC or no NUMA node"
			if env.Filter != "" {
				why = "nothing matches " + l.Safe(string(env.Filter))
			}
		}
		return Exact(l, []string{" " + why}, size.W, size.H)
	}
	lines, places := v.text(l, m, size.W-2)
	p := places[i][j]
	at, head := p.Line, p.Line-i-1 // the lines of the cell and of the names above it
	line, end := lines[at], p.Column+p.Width
	cell := l.Paint("["+ansi.Strip(ansi.Cut(line, p.Column, end))+"]", ui.Selected)
	lines[at] = ansi.Truncate(line, max(0, p.Column-1), "") + cell + ansi.TruncateLeft(line, end+1, "")
	before := make([]string, len(lines)) // the cursor, and the mark of a finding
	for k := range m.Rows {
		style := v.h.Worst(m.Rows[k].ID)
		for _, p := range places[k] {
			before[p.Line] = " " + l.Paint(l.Mark(style), style)
		}
	}
	before[at] = l.Cursor() + strings.TrimPrefix(before[at], " ")
	for k := range lines {
		lines[k] = cmp.Or(before[k], "  ") + lines[k]
	}
	v.page = max(1, size.H-1) // below the title
	v.top = max(min(v.top, head), at-v.page+1)
	v.top = max(0, min(v.top, len(lines)-v.page))
	v.all = len(lines)
	out := append([]string{v.title(env, m, i, j)}, lines[v.top:]...)
	if head < v.top && at > v.top {
		out[1] = lines[head] // the names stay
	}
	return Exact(l, out, size.W, size.H)
}

// Position says which lines of the text are shown.
func (v *MatrixView) Position() string {
	if v.all <= v.page {
		return ""
	}
	return fmt.Sprintf("%d-%d of %d", v.top+1, v.top+v.page, v.all)
}

// move puts the cursor on a cell and tells the other views.
func (v *MatrixView) move(m *topo.Matrix, i, j int, env *ui.Env) {
	v.rowAt, v.colAt = min(max(i, 0), len(m.Rows)-1), min(max(j, 0), len(m.Cols)-1)
	v.row, v.col = m.Rows[v.rowAt].ID, m.Cols[v.colAt].ID
	env.Shared.From, env.Shared.To = v.row, v.col
}

// Key carries out an action.
func (v *MatrixView) Key(a ui.Action, env *ui.Env) ui.Request {
	m, i, j := v.matrix(env)
	switch a {
	case ui.Wide:
		v.figure = (v.figure + 1) % len(matrixFigures)
		return ui.Request{}
	case ui.Sort:
		v.axes = (v.axes + 1) % len(axes)
		return ui.Request{}
	}
	if m == nil {
		return ui.Request{}
	}
	page := max(1, v.page-1)
	switch a {
	case ui.Up:
		i--
	case ui.Down:
		i++
	case ui.Left:
		j--
	case ui.Right:
		j++
	case ui.PageUp:
		i -= page
	case ui.PageDown:
		i += page
	case ui.Home:
		i, j = 0, 0
	case ui.End:
		i, j = len(m.Rows)-1, len(m.Cols)-1
	case ui.Enter, ui.Explain, ui.Measure:
	default:
		return ui.Request{}
	}
	v.move(m, i, j, env)
	switch a {
	case ui.Enter:
		return ui.Request{Show: ui.Path}
	case ui.Measure:
		if pairs := v.pairs(env); len(pairs) > 0 {
			return ui.Request{Measure: &ui.MeasureRequest{Pairs: pairs}}
		}
		env.Shared.Message = "no report names " + env.Look.Safe(label(&m.Rows[v.rowAt])+" > "+label(&m.Cols[v.colAt]))
		return ui.Request{Show: ui.Probe}
	}
	return ui.Request{}
}

// pairs are those under the cursor that a probe has measured before: their IDs are known.
func (v *MatrixView) pairs(env *ui.Env) []string {
	var out []string
	reports, names := v.reports(env)
	for k, r := range reports {
		for i := range r.Results {
			x := &r.Results[i]
			from, to := v.h.Device(x.From.Node), v.h.Device(x.To.Node)
			if x.From.Host == names[k] && x.To.Host == names[k] && from == v.row && to == v.col && !slices.Contains(out, x.ID) {
				out = append(out, x.ID)
			}
		}
	}
	return out
}

// Click selects a cell; the one under the cursor is explained.
func (v *MatrixView) Click(x, y int, env *ui.Env) ui.Request {
	m, atI, atJ := v.matrix(env)
	for i := range v.places {
		for j, p := range v.places[i] {
			if m == nil || y-1+v.top != p.Line || x-2 < p.Column || x-2 >= p.Column+p.Width || i >= len(m.Rows) || j >= len(m.Cols) {
				continue
			}
			if i == atI && j == atJ {
				return v.Key(ui.Enter, env)
			}
			v.move(m, i, j, env)
		}
	}
	return ui.Request{}
}

// Detail explains the cell under the cursor.
func (v *MatrixView) Detail(env *ui.Env, width int) []string {
	d := newDetail(env, width)
	m, i, j := v.matrix(env)
	if m == nil {
		return nil
	}
	from, to := &m.Rows[i], &m.Cols[j]
	d.title(label(from)+" "+d.l.Arrow()+" "+label(to), ui.Plain)
	for _, f := range v.h.Findings(from.ID, to.ID) {
		d.finding(f)
	}
	class := ui.Class(m.Class[i][j])
	paths, err := v.h.Paths()
	if err != nil {
		d.field("class", class)
		return d.lines
	}
	route := explain.RouteBetween(paths, from.ID, to.ID)
	d.field("class", class+": "+explain.Why(paths, route))
	d.field("NCCL", string(m.NCCL[i][j]))
	links := ui.Unknown
	if hops := m.Hops[i][j]; hops != nil {
		links = strconv.Itoa(*hops) + " on the way"
	}
	d.field("links", links)
	d.field("expected", expected(d.l, m.Rate[i][j], m.Basis[i][j]))
	if limit := m.Limit[i][j]; limit != "" {
		d.field("limit", explain.LinkText(paths, limit))
	}
	d.field("measured", v.measured(env, m, i, j))
	d.links(v.h, route)
	return d.lines
}

// expected is a rate with how it is known.
func expected(l *ui.Look, rate *topo.Rate, basis topo.Basis) string {
	switch {
	case rate == nil:
		return ui.Unknown + ": no link on the way has a known rate"
	case *rate == 0:
		return "0: a link on the way carries nothing"
	case basis == topo.BasisBound:
		return basis.Text(l.Rate(rate)) + ": a link on the way has no known rate"
	}
	return basis.Text(l.Rate(rate)) + ", " + string(basis)
}

// measured is the measured rate with what it was measured of.
func (v *MatrixView) measured(env *ui.Env, m *topo.Matrix, i, j int) string {
	if why := v.unmeasured(env); why != "" {
		return why
	}
	rates, pairs := v.rates(env, m)
	rate := rates[i][j]
	if rate == nil {
		return ui.Unknown + ": neither these two nor the slowest link between them"
	}
	text := env.Look.Rate(rate)
	if want := m.Rate[i][j]; want != nil && *want > 0 {
		text += fmt.Sprintf(" (%+.0f%%)", 100*(float64(*rate)/float64(*want)-1))
	}
	if _, ok := pairs[[2]topo.ID{m.Rows[i].ID, m.Cols[j].ID}]; ok {
		return text + ", between the two"
	}
	return text + ", by the slowest link between them"
}

// selection is a cell, as JSON.
type selection struct {
	From     topo.MatrixEntry `json:"from"`
	To       topo.MatrixEntry `json:"to"`
	Class    topo.Class       `json:"class"`
	NCCL     topo.NCCLClass   `json:"nccl"`
	Hops     *int             `json:"hops"`
	Expected *topo.Rate       `json:"expected_bytes_per_sec"`
	Basis    topo.Basis       `json:"basis"`
	Limit    topo.LinkID      `json:"limit_link,omitempty"`
	Measured *topo.Rate       `json:"measured_bytes_per_sec"`
}

// Selection is the cell under the cursor.
func (v *MatrixView) Selection(env *ui.Env) any {
	m, i, j := v.matrix(env)
	if m == nil {
		return nil
	}
	rates, _ := v.rates(env, m)
	return selection{From: m.Rows[i], To: m.Cols[j], Class: m.Class[i][j], NCCL: m.NCCL[i][j], Hops: m.Hops[i][j],
		Expected: m.Rate[i][j], Basis: m.Basis[i][j], Limit: m.Limit[i][j], Measured: rates[i][j]}
}

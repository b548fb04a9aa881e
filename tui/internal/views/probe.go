package views

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/measure/show"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// ProbeView is the dashboard's fourth view: which pairs can be measured, a probe while it runs,
// and what came of it. It sends nothing: it asks the program to (ui.Request). Use NewProbe.
//
// The program answers Request.List with SetPairs, and says by SetUnable why nothing can be
// measured. A report from a file (SetReport) is shown until a probe is there. ui.Measure gives a
// Request.Measure of the marked pairs, or of all if none is marked, and a Request.Stop while a
// probe runs.
type ProbeView struct {
	rowsView
	order      int // of resultOrders
	wide       bool
	marked     map[string]bool // by pair ID
	shownProbe shownProbe      // the probe that was shown last
	unable     string          // why nothing can be measured
	asking     bool
	measures   bool  // all pairs, when they are known
	askedNS    int64 // State.Now

	pairs  []probe.Pair
	byID   map[string]*probe.Pair // of pairs
	listed bool
	failed error
	loaded *probe.Report
	source string // of loaded
}

// The pages.
const (
	choosingPage = iota
	resultsPage
)

// shownProbe tells one probe from another.
type shownProbe struct {
	at     time.Time
	began  int64
	loaded bool
}

// resultOrders are what results are sorted by: the worst, or the smallest, first.
var resultOrders = []string{"verdict", "name", "efficiency"}

// NewProbe is the view before anything is known.
func NewProbe() *ProbeView {
	v := &ProbeView{marked: map[string]bool{}}
	v.rowsView = rowsView{of: v, name: "Probe", folded: map[string]bool{}, pages: []string{"pairs", "results"},
		hints: []ui.Action{ui.Enter, ui.Mark, ui.MarkAll, ui.Measure, ui.Left, ui.Right, ui.Sort, ui.Wide}}
	return v
}

// SetPairs takes the answer to Request.List: what can be measured, and what went wrong.
// Both may be there: an agent that does not answer costs its own pairs only. If the user asked
// to measure before the pairs were known, that is the request.
func (v *ProbeView) SetPairs(pairs []probe.Pair, err error) ui.Request {
	measures := v.measures
	v.asking, v.measures, v.failed = false, false, err
	if err != nil && len(pairs) == 0 {
		return ui.Request{} // what was known before still is
	}
	v.pairs, v.byID, v.listed = pairs, make(map[string]*probe.Pair, len(pairs)), true
	var all []string
	for i := range pairs {
		v.byID[pairs[i].ID] = &pairs[i]
		if pairs[i].Waived == "" {
			all = append(all, pairs[i].ID)
		}
	}
	for id := range v.marked {
		if p := v.byID[id]; p == nil || p.Waived != "" {
			delete(v.marked, id)
		}
	}
	if !measures || len(all) == 0 {
		return ui.Request{}
	}
	return ui.Request{Measure: &ui.MeasureRequest{Pairs: all}}
}

// SetUnable says why nothing can be measured here; "" it can.
func (v *ProbeView) SetUnable(why string) { v.unable = why }

// SetReport gives the report to show where no probe was seen, nil none, and the file that
// it is from.
func (v *ProbeView) SetReport(r *probe.Report, source string) { v.loaded, v.source = r, source }

// Marked are the pairs that are marked, by ID, in the order of SetPairs.
func (v *ProbeView) Marked() []string {
	var out []string
	for i := range v.pairs {
		if v.marked[v.pairs[i].ID] {
			out = append(out, v.pairs[i].ID)
		}
	}
	return out
}

// act carries out what is this view's own.
func (v *ProbeView) act(a ui.Action, env *ui.Env, r *row) (ui.Request, bool) {
	switch a {
	case ui.Left:
		v.page = choosingPage
	case ui.Right:
		v.page = resultsPage
	case ui.Enter:
		switch p, isPair := r.value.(*probe.Pair); {
		case v.page != choosingPage || v.unable != "" || v.asking:
		case !v.listed || v.failed != nil:
			return v.ask(env), true
		case isPair:
			v.toggle(p)
		default:
			return ui.Request{}, false
		}
	case ui.Mark:
		v.mark(env, r)
	case ui.MarkAll:
		v.markAll(v.marks(env, ""))
	case ui.Sort:
		v.order = (v.order + 1) % len(resultOrders)
	case ui.Wide:
		v.wide = !v.wide
	case ui.Measure:
		return v.measure(env), true
	default:
		return ui.Request{}, false
	}
	return ui.Request{}, true
}

// ask requests the list of what can be measured.
func (v *ProbeView) ask(env *ui.Env) ui.Request {
	v.asking, v.askedNS = true, env.State.Now
	return ui.Request{List: true}
}

func (v *ProbeView) toggle(p *probe.Pair) {
	if p != nil && p.Waived == "" {
		v.marked[p.ID] = !v.marked[p.ID]
		if !v.marked[p.ID] {
			delete(v.marked, p.ID)
		}
	}
}

// mark marks the pair under the cursor, or all of the group whose head is there.
func (v *ProbeView) mark(env *ui.Env, r *row) {
	switch x := r.value.(type) {
	case *probe.Pair:
		v.toggle(x)
	case *probe.Result:
		v.toggle(v.byID[x.ID])
	default:
		if r.folds {
			v.markAll(v.marks(env, r.key))
		}
		return
	}
	_, lines, _ := v.shown(env)
	v.list().Move(ui.Down, lines)
}

// marks are the pairs that can be marked on the page: those that the filter keeps, of a group alone if it is named.
func (v *ProbeView) marks(env *ui.Env, group string) []*probe.Pair {
	var out []*probe.Pair
	for _, r := range v.of.rows(env, v.width) {
		p, _ := r.value.(*probe.Pair)
		if x, ok := r.value.(*probe.Result); ok {
			p = v.byID[x.ID]
		}
		if p != nil && p.Waived == "" && (group == "" || r.parent == group) {
			out = append(out, p)
		}
	}
	return out
}

// markAll marks all, or takes all marks away where none is missing.
func (v *ProbeView) markAll(list []*probe.Pair) {
	missing := slices.ContainsFunc(list, func(p *probe.Pair) bool { return !v.marked[p.ID] })
	for _, p := range list {
		if v.marked[p.ID] != missing {
			v.toggle(p)
		}
	}
}

// measure requests a probe of the marked pairs, of all that the filter keeps if none is marked, or
// that the running one stops.
func (v *ProbeView) measure(env *ui.Env) ui.Request {
	pairs := v.Marked()
	for i := range v.pairs {
		if p := &v.pairs[i]; len(v.marked) == 0 && p.Waived == "" && v.keeps(env, p) {
			pairs = append(pairs, p.ID)
		}
	}
	switch {
	case running(env):
		return ui.Request{Stop: true}
	case v.asking:
		env.Shared.Message = "the list of pairs is still being fetched"
	case v.unable != "":
		env.Shared.Message = "nothing can be measured here: " + env.Look.Safe(v.unable)
	case !v.listed:
		v.measures = true
		return v.ask(env)
	case len(pairs) == 0:
		env.Shared.Message = "there is no pair to measure"
	default:
		return ui.Request{Measure: &ui.MeasureRequest{Pairs: pairs}}
	}
	return ui.Request{}
}

// report is what is shown: of the probe that runs or ran, else the one that was loaded. Where it is another one than
// before, the results are the page.
func (v *ProbeView) report(env *ui.Env) *probe.Report {
	r, now := v.loaded, shownProbe{loaded: true}
	if p := env.State.Probe; p != nil && p.Report != nil {
		r, now = p.Report, shownProbe{began: p.BeganNS}
	}
	if r == nil {
		return nil
	}
	if now.at = r.StartedAt; v.shownProbe != now {
		v.shownProbe, v.page, v.lists[resultsPage] = now, resultsPage, ui.List{}
	}
	return r
}

func running(env *ui.Env) bool { return env.State.Probe != nil && env.State.Probe.Running }

func options(env *ui.Env) show.Options {
	return show.Options{Units: env.Look.Units, ASCII: env.Look.ASCII}
}

// keyOf is how the key of an action is written.
func keyOf(a ui.Action, env *ui.Env) string { return ui.Get(a).Short(env.Look.ASCII) }

// above says how far things are, and names the columns.
func (v *ProbeView) above(env *ui.Env, w int) []string {
	r := v.report(env)
	v.pages = []string{"pairs", "results"}
	if v.listed {
		v.pages[0] = fmt.Sprintf("pairs %d", len(v.pairs))
		if n := len(v.marked); n > 0 {
			v.pages[0] += fmt.Sprintf(", %d marked", n)
		}
	}
	switch {
	case running(env):
		v.pages[1] += ", measuring"
	case r != nil && env.State.Probe == nil:
		v.pages[1] += " of " + env.Look.Safe(v.source)
	}
	var out []string
	if v.page == choosingPage {
		out = v.aboutPairs(env, w)
	} else {
		out = v.aboutResults(env, r, w)
	}
	if len(v.of.rows(env, w)) > 0 {
		out = append(out, env.Look.Paint("  "+ui.Heads(env.Look, ui.Fit(v.table(env).columns, w-2)), ui.Faint))
	}
	return out
}

// said is a text in a few lines.
func said(env *ui.Env, w int, text string, style ui.Style) []string {
	const most = 4
	out := ui.Wrap(env.Look.Safe(text), w, 0)
	if len(out) > most {
		out = append(out[:most-1], env.Look.Dots())
	}
	for i := range out {
		out[i] = env.Look.Paint(out[i], style)
	}
	return out
}

// aboutPairs says what the list of pairs is for, or why there is none.
func (v *ProbeView) aboutPairs(env *ui.Env, w int) []string {
	measure := keyOf(ui.Measure, env)
	var out []string
	switch {
	case v.unable != "":
		return said(env, w, "nothing can be measured here: "+v.unable, ui.Middle)
	case v.asking:
		text := "asking what can be measured; this connects to agents, and measures nothing"
		if waited := env.State.Now - v.askedNS; waited > 1e9 {
			text += ": " + show.Seconds(waited)
		}
		return said(env, w, text, ui.Plain)
	case v.failed != nil:
		out = said(env, w, "x "+strings.ReplaceAll(v.failed.Error(), "\n", "; "), ui.Bad)
		out = append(out, said(env, w, keyOf(ui.Enter, env)+" tries again", ui.Plain)...)
		if !v.listed {
			return out
		}
	case !v.listed:
		return said(env, w, fmt.Sprintf("%s lists what can be measured here; %s measures all of it; nothing is sent before you say yes", keyOf(ui.Enter, env), measure), ui.Plain)
	}
	if len(v.pairs) == 0 {
		return append(out, said(env, w, "there is no pair to measure", ui.Middle)...)
	}
	text := fmt.Sprintf("%s measures all pairs, or those that %s marks; it asks first", measure, keyOf(ui.Mark, env))
	if len(v.marked) > 0 {
		text = fmt.Sprintf("%s measures the marked pairs; %s marks, %s marks all or none", measure, keyOf(ui.Mark, env), keyOf(ui.MarkAll, env))
	}
	if env.Filter != "" {
		text += "; the filter is " + string(env.Filter)
	}
	return append(out, said(env, w, text, ui.Faint)...)
}

// aboutResults says how far a probe is, or what came of it.
func (v *ProbeView) aboutResults(env *ui.Env, r *probe.Report, w int) []string {
	if r == nil {
		return said(env, w, "nothing was measured yet: "+keyOf(ui.Left, env)+" goes to the pairs", ui.Plain)
	}
	var out []string
	if running(env) {
		out = append(out, progress(env, r, w))
	}
	for i, line := range show.SummaryParts(r, options(env))[0].Lines {
		switch {
		case running(env) && (i > 0 || len(r.Results) == 0): // because it runs
		case i > 0:
			out = append(out, said(env, w, line, ui.Middle)...)
		default:
			if n := outliers(r); n > 0 {
				line += "; " + text.Plural(n, "outlier")
			}
			out = append(out, said(env, w, line, ui.Strong)...)
		}
	}
	return out
}

// outliers counts the pairs of a report that are far behind their equals, in rate or latency (internal/measure/judge).
func outliers(r *probe.Report) int {
	n := 0
	for i := range r.Results {
		if slices.ContainsFunc(r.Results[i].Reasons, func(why probe.Reason) bool { return why.Code == "outlier" || why.Code == "latency-outlier" }) {
			n++
		}
	}
	return n
}

// progress is how far a probe is in one line.
func progress(env *ui.Env, r *probe.Report, width int) string {
	p, l := env.State.Probe, env.Look
	round := fmt.Sprintf("round %d of %d", p.Round, max(p.Round, r.Plan.Rounds))
	if p.Retest {
		round = fmt.Sprintf("round %d, again", p.Round)
	}
	part := math.NaN()
	if r.Plan.Pairs > 0 {
		part = min(1, float64(p.Done)/float64(r.Plan.Pairs))
	}
	text := fmt.Sprintf(" %d of %d in %s", p.Done, r.Plan.Pairs, show.Seconds(max(0, env.State.Now-p.BeganNS)))
	if p.RemainingNS > 0 {
		text += ", " + show.Seconds(p.RemainingNS) + " left"
	}
	text += "; " + keyOf(ui.Measure, env) + " stops"
	bar := max(5, min(30, width-ui.Width(round)-ui.Width(text)-2))
	return l.Paint(round, ui.Strong) + " " + l.Paint(l.Bar(part, bar), ui.Accent) + text
}

// figures are a pair as a line of a table has it.
type figures struct {
	show.Figures
	first string // a verdict, or a mark
	style ui.Style
}

// figureColumns stand behind the name of a pair, in this order. Those of the lowest rank get room first; wide ranks them
// otherwise.
var figureColumns = []struct {
	title      string
	width      int
	words      bool
	rank, wide int
	text       func(f *figures) string
}{
	{"rate", 11, false, 1, 5, func(f *figures) string { return f.Rate }},
	{"95 %", 7, false, 4, 8, func(f *figures) string { return f.Interval }},
	{"expected", 12, false, 3, 7, func(f *figures) string { return f.Expected }},
	{"eff", 6, false, 2, 6, func(f *figures) string { return f.Efficiency }},
	{"p50 / p99", 16, false, 5, 1, func(f *figures) string { return f.Latency }},
	{"class", 10, true, 7, 2, func(f *figures) string { return f.Class }},
	{"by", 13, true, 6, 4, func(f *figures) string { return strings.Split(f.Of, ",")[0] }}, // the variant stands with the name
	{"reason", 40, true, 8, 3, func(f *figures) string { return f.Reason }},
}

// table sets pairs in columns. Widths do not depend on figures, so that columns stand still while those come in.
type table struct {
	env     *ui.Env
	columns []ui.Column[*figures]
	names   int // columns of the longest name
	local   bool
	options show.Options
}

func (v *ProbeView) table(env *ui.Env) *table {
	t := &table{env: env, options: options(env), names: 16,
		local: !slices.ContainsFunc(v.pairs, func(p probe.Pair) bool { return p.From.Host != p.To.Host || p.From.Host != v.pairs[0].From.Host })}
	first := ui.Column[*figures]{Width: 3}
	if v.page == choosingPage {
		for i := range v.pairs {
			t.fit(&v.pairs[i])
		}
	} else {
		first.Title, first.Width = "  verdict", 14
		ports, others := false, false
		if r := v.report(env); r != nil {
			t.local = show.Local(r)
			for i := range r.Results {
				t.fit(&r.Results[i].Pair)
				ports, others = ports || r.Results[i].Kind == probe.Port, others || r.Results[i].Kind != probe.Port
			}
		}
		if ports && others { // one column, one unit
			t.options.Units = t.options.Units.Or(units.Gbyte)
		}
	}
	style := func(f *figures) ui.Style { return f.style }
	first.Style, first.Text = style, func(f *figures) string { return f.first }
	t.columns = append(t.columns, first, ui.Column[*figures]{Title: "pair", Width: t.names, Style: style, Text: func(f *figures) string { return f.Pair }})
	for _, c := range figureColumns {
		if v.page == choosingPage && c.title != "expected" && c.title != "class" {
			continue
		}
		column := ui.Column[*figures]{Title: c.title, Width: c.width, Right: !c.words, Rank: c.rank, Text: c.text, Style: style}
		if v.wide {
			column.Rank = c.wide
		}
		if c.title == "reason" {
			column.Most = 400
		}
		t.columns = append(t.columns, column)
	}
	return t
}

// fit makes room for the name of a pair.
func (t *table) fit(p *probe.Pair) {
	n := len(p.From.Name) + len("*  > ") + len(p.To.Name)
	if !t.local {
		n += len(p.From.Host) + len(p.To.Host) + len("//")
	}
	if p.Variant != "" {
		n += len(", ") + len(p.Variant)
	}
	t.names = max(t.names, min(n, 48))
}

// figures are those of a pair, whose name tells variants of the same ends apart.
func (t *table) figures(x *probe.Result, first string, style ui.Style) *figures {
	f := &figures{show.FiguresOf(x, t.local, t.options), first, style}
	if x.Variant != "" {
		f.Pair += ", " + x.Variant
	}
	return f
}

func (t *table) line(w int, f *figures) string { return ui.Cells(t.env.Look, ui.Fit(t.columns, w), f) }

func (v *ProbeView) rows(env *ui.Env, _ int) []row {
	r := v.report(env)
	if v.page == choosingPage {
		return v.pairRows(env)
	}
	if r == nil {
		return nil
	}
	return v.resultRows(env, r)
}

// keeps says whether the filter keeps a pair.
func (*ProbeView) keeps(env *ui.Env, p *probe.Pair) bool {
	return env.Filter.Match(p.ID + " " + show.Title(p, options(env)) + " " + p.Waived)
}

// pairRows are what can be measured, by group.
func (v *ProbeView) pairRows(env *ui.Env) []row {
	byTitle := map[string][]*probe.Pair{}
	var titles []string
	for i := range v.pairs {
		p := &v.pairs[i]
		if !v.keeps(env, p) {
			continue
		}
		title := show.Title(p, options(env))
		if byTitle[title] == nil {
			titles = append(titles, title)
		}
		byTitle[title] = append(byTitle[title], p)
	}
	slices.SortStableFunc(titles, func(a, b string) int { return show.Order(byTitle[a][0].Kind, byTitle[b][0].Kind) })
	t := v.table(env)
	var out []row
	for _, title := range titles {
		out = append(out, v.groupRow(env, title, byTitle[title]))
		parent := out[len(out)-1].key
		for _, p := range byTitle[title] {
			out = append(out, row{key: "pair " + p.ID, parent: parent, value: p, detail: func(d *detail) { v.pairDetail(d, v.resultOf(env, p)) },
				text: func(w int) string { return v.pairText(t, p, w) }})
		}
	}
	return out
}

// groupRow is the head of a group of pairs.
func (v *ProbeView) groupRow(env *ui.Env, title string, members []*probe.Pair) row {
	waived, marked := 0, 0
	for _, p := range members {
		if p.Waived != "" {
			waived++
		}
		if v.marked[p.ID] {
			marked++
		}
	}
	key, count := "group "+title, text.Plural(len(members), "pair")
	line := v.fold(env, key) + title + ": " + count
	if waived > 0 {
		line += ", " + strconv.Itoa(waived) + " waived"
	}
	if marked > 0 {
		line += ", " + strconv.Itoa(marked) + " marked"
	}
	return row{key: key, folds: true, text: func(int) string { return env.Look.Paint(line, ui.Head) }, detail: func(d *detail) {
		d.parts([]show.Part{{Title: title, Lines: []string{count, keyOf(ui.Enter, env) + " folds, " + keyOf(ui.Mark, env) + " marks them all"}}})
	}}
}

// pairText is a pair that can be measured, or the reason why it cannot.
func (v *ProbeView) pairText(t *table, p *probe.Pair, w int) string {
	box, style := "[ ]", ui.Plain
	if v.marked[p.ID] {
		box, style = "[x]", ui.Strong
	}
	f := t.figures(&probe.Result{Pair: *p}, box, style)
	if l := t.env.Look; p.Waived != "" {
		return l.Paint(l.Cut("[-] "+l.Fit(l.Safe(f.Pair), t.columns[1].Width)+" waived: "+l.Safe(p.Waived), w), ui.Faint)
	}
	return t.line(w, f)
}

// worst orders verdicts; those without one are not judged yet.
var worst = []probe.Verdict{probe.Error, probe.Fail, probe.Warn, probe.Inconclusive, "", probe.Measured, probe.Pass, probe.Waived}

// resultRows are those of a report: what is being measured, the blame, the pairs, notes.
func (v *ProbeView) resultRows(env *ui.Env, r *probe.Report) []row {
	o, local, l, t := options(env), show.Local(r), env.Look, v.table(env)
	out := v.activeRows(env, r, t)
	head := func(title string) { out = append(out, textRow(l.Paint(title, ui.Head))) }
	say := func(key, line string, style ui.Style) {
		out = append(out, row{key: key, text: func(int) string { return l.Paint(line, style) }, detail: func(d *detail) { d.say("", line, ui.Plain) }})
	}
	part := func(p show.Part, style ui.Style) {
		head(p.Title)
		for i, line := range p.Lines {
			say(p.Title+" "+strconv.Itoa(i), line, style)
		}
	}
	if len(r.Blame) > 0 {
		head("blame")
	}
	for i := range r.Blame {
		out = append(out, blameRows(env, r, i)...)
	}
	parts := show.SummaryParts(r, o)[1:]
	if len(parts) > 0 && parts[0].Title == "hosts" {
		part(parts[0], ui.Bad)
		parts = parts[1:]
	}
	if p := env.State.Probe; p != nil && len(p.Errors) > 0 {
		head("errors")
		for i, e := range p.Errors {
			say("error "+strconv.Itoa(i), l.Safe(e), ui.Bad)
		}
	}
	list := make([]*probe.Result, 0, len(r.Results))
	for i := range r.Results {
		x := &r.Results[i]
		if env.Filter == "" || env.Filter.Match(x.ID+" "+string(x.Verdict)+" "+show.FiguresOf(x, local, o).Reason) {
			list = append(list, x)
		}
	}
	v.sort(list)
	if len(list) > 0 && len(out) > 0 {
		head("pairs, by " + resultOrders[v.order])
	}
	for _, x := range list {
		out = append(out, row{key: "result " + x.ID, value: x, detail: func(d *detail) { v.pairDetail(d, x) }, text: func(w int) string {
			style := verdictStyle(x.Verdict)
			f := t.figures(x, l.Mark(style)+" "+cmp.Or(string(x.Verdict), "not judged"), style)
			if v.marked[x.ID] {
				f.Pair = "* " + f.Pair
			}
			return t.line(w, f)
		}})
	}
	for _, p := range parts {
		part(p, ui.Plain)
	}
	return out
}

// sort sorts results, which are by name.
func (v *ProbeView) sort(list []*probe.Result) {
	efficiency := func(x *probe.Result) float64 { // those that have none come last
		if x.Efficiency == nil {
			return math.Inf(1)
		}
		return *x.Efficiency
	}
	slices.SortStableFunc(list, func(a, b *probe.Result) int {
		switch resultOrders[v.order] {
		case "verdict":
			return cmp.Or(slices.Index(worst, a.Verdict)-slices.Index(worst, b.Verdict), cmp.Compare(efficiency(a), efficiency(b)))
		case "efficiency":
			return cmp.Compare(efficiency(a), efficiency(b))
		}
		return 0
	})
}

// verdictStyle is how a verdict looks.
func verdictStyle(v probe.Verdict) ui.Style {
	switch v {
	case probe.Fail, probe.Error:
		return ui.Bad
	case probe.Warn, probe.Inconclusive:
		return ui.Middle
	case probe.Waived:
		return ui.Faint
	}
	return ui.Plain
}

// activeRows are the pairs that are being measured, each with its latest sample.
func (v *ProbeView) activeRows(env *ui.Env, r *probe.Report, t *table) []row {
	p := env.State.Probe
	if p == nil || !p.Running || len(p.Active) == 0 {
		return nil
	}
	title := "being measured"
	if p.Retest {
		title = "being measured again"
	}
	out, there := []row{textRow(env.Look.Paint(title, ui.Head))}, map[string]bool{}
	for _, id := range p.Active {
		if there[id] { // a recording may say anything
			continue
		}
		there[id] = true
		x := v.resultOf(env, &probe.Pair{ID: id})
		s, sampled := p.Samples[id]
		out = append(out, row{key: "active " + id, value: x, text: func(w int) string {
			now := &probe.Result{Pair: x.Pair}
			if want := x.Expected.BytesPerSec; sampled && want != nil && *want > 0 {
				part := float64(s.BytesPerSec) / float64(*want)
				now.Efficiency = &part
			}
			f := t.figures(now, "  now", ui.Accent)
			if x.Kind == "" { // it is not known what pair that is
				f.Pair = id
			}
			if sampled {
				f.Rate = show.PairRate(x.Kind, s.BytesPerSec, t.options.Units)
			}
			return t.line(w, f)
		}, detail: func(d *detail) {
			line := "no sample yet"
			if sampled {
				line = "latest sample: " + show.PairRate(x.Kind, s.BytesPerSec, env.Look.Units) + " with ops of " + units.Bytes(s.SizeBytes)
			}
			d.say("", line, ui.Plain)
			if x.Kind == "" {
				d.say("", x.ID, ui.Plain)
				return
			}
			v.pairDetail(d, x)
		}})
	}
	return out
}

// resultOf is the result of a pair in the report, or the pair without one.
func (v *ProbeView) resultOf(env *ui.Env, p *probe.Pair) *probe.Result {
	if r := v.report(env); r != nil {
		if i := slices.IndexFunc(r.Results, func(x probe.Result) bool { return x.ID == p.ID }); i >= 0 {
			return &r.Results[i]
		}
	}
	if known := v.byID[p.ID]; known != nil {
		p = known
	}
	return &probe.Result{Pair: *p}
}

// blameRows are a fault and what speaks for it.
func blameRows(env *ui.Env, r *probe.Report, i int) []row {
	const most = 4 // the detail has all
	b, o, l := &r.Blame[i], options(env), env.Look
	style := ui.Bad
	if b.Kind == probe.Congestion { // it is no fault
		style = ui.Middle
	}
	parts := show.BlameParts(b, r, o)
	out := []row{{key: "blame " + strconv.Itoa(i), value: b, text: func(int) string { return l.Paint(l.Marked(show.BlameTitle(b, r, o), style), style) },
		detail: func(d *detail) { d.parts(parts) }}}
	for _, part := range parts {
		switch part.Title {
		case "evidence":
			for _, line := range part.Lines[:min(most, len(part.Lines))] {
				out = append(out, textRow("  "+l.Paint(line, ui.Faint)))
			}
		case "next":
			out = append(out, textRow("  next: "+part.Lines[0]))
		}
	}
	return out
}

// pairDetail is all that is known of a pair.
func (v *ProbeView) pairDetail(d *detail, x *probe.Result) {
	d.title(show.FiguresOf(x, false, options(d.env)).Pair, ui.Plain)
	if x.Verdict != "" {
		style := verdictStyle(x.Verdict)
		d.say("", d.l.Mark(style)+" "+string(x.Verdict), style)
	}
	d.parts(show.PairParts(v.report(d.env), x, options(d.env)))
}

// parts are those of a report's text, an empty line between them.
func (d *detail) parts(parts []show.Part) {
	for i, p := range parts {
		if p.Title != "" {
			if i > 0 {
				d.lines = append(d.lines, "")
			}
			d.say("", p.Title, ui.Head)
		}
		for _, line := range p.Lines {
			d.say("", line, ui.Plain)
		}
	}
}

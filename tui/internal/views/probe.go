package views

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/topoctl/topoctl/internal/probe/show"
	"github.com/topoctl/topoctl/internal/report"
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
	wide       bool            // the report with all that is known
	marked     map[string]bool // by pair ID
	shownProbe shownProbe      // the probe that was shown last
	unable     string          // why nothing can be measured
	asking     bool
	measures   bool  // all pairs, when they are known
	askedNS    int64 // State.Now

	pairs  []probe.Pair
	byID   map[string]*probe.Pair // of pairs
	listed bool
	local  bool // the pairs are of one host
	failed error
	loaded *probe.Report
	source string // of loaded

	drawn drawnReport
	lines []row // of it
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

// NewProbe is the view before anything is known.
func NewProbe() *ProbeView {
	v := &ProbeView{marked: map[string]bool{}}
	v.rowsView = rowsView{of: v, name: "Probe", folded: map[string]bool{}, pages: []string{"pairs", "results"},
		hints: []ui.Action{ui.Enter, ui.Mark, ui.MarkAll, ui.Measure, ui.Left, ui.Right, ui.Wide}}
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
	v.local = !slices.ContainsFunc(pairs, func(p probe.Pair) bool { return p.From.Host != pairs[0].From.Host || p.To.Host != pairs[0].From.Host })
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
	return show.Options{Look: report.Look{ASCII: env.Look.ASCII}, Units: env.Look.Units}
}

// keyOf is how the key of an action is written.
func keyOf(a ui.Action, env *ui.Env) string { return ui.Get(a).Short(env.Look.ASCII) }

// above says how far things are.
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
	switch {
	case v.page == choosingPage:
		return v.aboutPairs(env, w)
	case r == nil:
		return said(env, w, "nothing was measured yet: "+keyOf(ui.Left, env)+" goes to the pairs", ui.Plain)
	case running(env):
		return []string{progress(env, r, w)}
	}
	return nil
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

// aboutPairs says what the list of pairs is for, or why it is empty.
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
		text := "%s lists what can be measured here; %s measures all of it; nothing is sent before you say yes"
		return said(env, w, fmt.Sprintf(text, keyOf(ui.Enter, env), measure), ui.Plain)
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

func (v *ProbeView) rows(env *ui.Env, w int) []row {
	r := v.report(env)
	if v.page == choosingPage {
		return v.pairRows(env)
	}
	if r == nil {
		return nil
	}
	return v.resultRows(env, r, w)
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
	columns := v.pairColumns(env)
	var out []row
	for _, title := range titles {
		out = append(out, v.groupRow(env, title, byTitle[title]))
		parent := out[len(out)-1].key
		for _, p := range byTitle[title] {
			out = append(out, row{key: "pair " + p.ID, parent: parent, value: p, detail: func(d *detail) { v.pairDetail(d, v.resultOf(env, p)) },
				text: func(w int) string { return v.pairText(env, columns, p, w) }})
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

// pairColumns are the columns of pairs. Names get as much room as the longest takes.
func (v *ProbeView) pairColumns(env *ui.Env) []ui.Column[*show.Figures] {
	name := 16
	for i := range v.pairs {
		name = max(name, min(ui.Width(v.name(env, &v.pairs[i])), 48))
	}
	return []ui.Column[*show.Figures]{
		{Width: name, Text: func(f *show.Figures) string { return f.Pair }},
		{Width: 12, Right: true, Rank: 1, Text: func(f *show.Figures) string { return f.Expected }},
		{Width: 10, Rank: 2, Text: func(f *show.Figures) string { return f.Class }},
	}
}

// name is that of a pair, which tells variants of the same ends apart.
func (v *ProbeView) name(env *ui.Env, p *probe.Pair) string {
	return env.Look.Safe(strings.TrimSuffix(show.PairName(p, v.local)+", "+p.Variant, ", "))
}

// pairText is a pair that can be measured with what is expected of it, or the reason why it cannot.
func (v *ProbeView) pairText(env *ui.Env, columns []ui.Column[*show.Figures], p *probe.Pair, w int) string {
	l, box, style := env.Look, "[ ] ", ui.Plain
	switch {
	case p.Waived != "":
		return l.Paint(l.Cut("[-] "+l.Fit(v.name(env, p), columns[0].Width)+" waived: "+l.Safe(p.Waived), w), ui.Faint)
	case v.marked[p.ID]:
		box, style = "[x] ", ui.Strong
	}
	f := show.FiguresOf(p, true, options(env))
	f.Pair = v.name(env, p)
	return l.Paint(box+ui.Cells(l, ui.Fit(columns, w-len(box)), &f), style)
}

// resultRows are what is being measured, then the report as "topoctl probe show" prints it.
func (v *ProbeView) resultRows(env *ui.Env, r *probe.Report, w int) []row {
	l := env.Look
	out := v.activeRows(env)
	if p := env.State.Probe; p != nil && len(p.Errors) > 0 {
		out = append(out, textRow(l.Paint("errors", ui.Head)))
		for i, e := range p.Errors {
			out = append(out, row{key: "error " + strconv.Itoa(i), text: func(int) string { return l.Paint(l.Safe(e), ui.Bad) },
				detail: func(d *detail) { d.say("", e, ui.Plain) }})
		}
	}
	if len(r.Results) == 0 && running(env) {
		return out
	}
	for _, x := range v.reportRows(env, r, w) {
		if env.Filter.Match(ansi.Strip(x.text(w))) {
			out = append(out, x)
		}
	}
	return out
}

// drawnReport is a report as it was set in lines last.
type drawnReport struct {
	of      *probe.Report
	results int // that had come
	w       int
	wide    bool
	look    ui.Look
	running bool
}

// reportRows are the lines of a report, each with the pair or the fault that it is about.
func (v *ProbeView) reportRows(env *ui.Env, r *probe.Report, w int) []row {
	now := drawnReport{of: r, w: w, wide: v.wide, look: *env.Look, running: running(env)}
	if p := env.State.Probe; p != nil {
		now.results = p.ResultsSeen
	}
	if v.drawn == now {
		return v.lines
	}
	v.drawn, v.lines = now, nil
	results := map[string]*probe.Result{}
	o, local := options(env), show.Local(r)
	for i := range r.Results {
		x := &r.Results[i]
		results[show.Title(&x.Pair, o)+"\n"+show.FiguresOf(&x.Pair, local, o).Pair] = x
	}
	titles, title := map[string]bool{}, ""
	for key := range results {
		title, _, _ = strings.Cut(key, "\n")
		titles[title] = true
	}
	var about row
	for i, line := range v.reportText(env, r, w) {
		bare := strings.TrimSpace(ansi.Strip(line))
		name, _, _ := strings.Cut(bare, "  ")
		x := results[title+"\n"+name]
		switch {
		case bare == "":
			about = row{}
		case titles[bare]:
			title, about = bare, row{}
		case x != nil:
			about = row{value: x, detail: func(d *detail) { v.pairDetail(d, x) }}
		}
		for k := range r.Blame {
			if b := &r.Blame[k]; strings.HasPrefix(bare, show.BlameTitle(b, r, o)) {
				about = row{value: b, detail: func(d *detail) { d.parts(show.BlameParts(b, r, o)) }}
			}
		}
		next := about
		next.text = func(int) string {
			if x != nil && v.marked[x.ID] {
				return "*" + strings.TrimPrefix(line, " ")
			}
			return line
		}
		if bare != "" {
			next.key = "line " + strconv.Itoa(i)
		}
		if next.detail == nil {
			next.detail = func(d *detail) { d.say("", bare, ui.Plain) }
		}
		v.lines = append(v.lines, next)
	}
	return v.lines
}

// reportText is a report in lines of w columns: the pairs that need attention first and the others summed up, or each of
// them where none does. While a probe runs, it is not said what is missing, and not what the
// answer is.
func (v *ProbeView) reportText(env *ui.Env, r *probe.Report, w int) []string {
	o := options(env)
	bad := r.Summary.Fail + r.Summary.Warn + r.Summary.Error + r.Summary.Inconclusive
	o.Width, o.All, o.Wide, o.Color = w, bad == 0, v.wide, env.Look.Color
	now := *r
	now.Complete = r.Complete || running(env)
	lines := document(env.Look, show.Table(&now, o))
	if running(env) {
		lines = lines[1:]
	}
	return lines
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
func (v *ProbeView) activeRows(env *ui.Env) []row {
	p, l := env.State.Probe, env.Look
	if p == nil || !p.Running || len(p.Active) == 0 {
		return nil
	}
	title := "being measured"
	if p.Retest {
		title = "being measured again"
	}
	out, there := []row{textRow(l.Paint(title, ui.Head))}, map[string]bool{}
	for _, id := range p.Active {
		if there[id] { // a recording may say anything
			continue
		}
		there[id] = true
		x := v.resultOf(env, &probe.Pair{ID: id})
		line, sample := l.Safe(id), "no sample yet"
		if x.Kind != "" { // it is known what pair that is
			line = v.name(env, &x.Pair)
		}
		if s, ok := p.Samples[id]; ok {
			sample = show.PairRate(x.Kind, s.BytesPerSec, l.Units) + " with ops of " + units.Bytes(s.SizeBytes)
			if want := x.Expected.BytesPerSec; want != nil && *want > 0 {
				sample += ", " + l.Percent(float64(s.BytesPerSec)/float64(*want)) + " of what is expected"
			}
		}
		out = append(out, row{key: "active " + id, value: x, text: func(int) string { return l.Paint("  now "+line+"  "+sample, ui.Accent) },
			detail: func(d *detail) {
				d.say("", "latest sample: "+sample, ui.Plain)
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

// pairDetail is all that is known of a pair.
func (v *ProbeView) pairDetail(d *detail, x *probe.Result) {
	if x.Kind == "" { // it is not known what pair that is
		d.title(x.ID, ui.Plain)
		return
	}
	d.title(show.FiguresOf(&x.Pair, false, options(d.env)).Pair, ui.Plain)
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

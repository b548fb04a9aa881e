package views

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/topoctl/topoctl/internal/measure/show"
	"github.com/topoctl/topoctl/probe"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// row is a line of a page.
type row struct {
	key string // "" the cursor does not stop there
	// What it is of: one of these, or a text alone.
	pair    *probe.Pair
	group   string        // of pairs: its title
	members []*probe.Pair // that the filter leaves
	result  *probe.Result
	active  bool // result: it is being measured
	blame   *probe.Blame

	text  string
	style ui.Style
}

// rows are those of the page.
func (v *ProbeView) rows(env *ui.Env) []row {
	if v.page == choosingPage {
		return v.pairRows(env)
	}
	return v.resultRows(env)
}

// probeLines are rows for a list, without their texts.
func probeLines(rows []row) []ui.Line {
	out := make([]ui.Line, len(rows))
	for i := range rows {
		out[i].Key = rows[i].key
	}
	return out
}

// current is the row under the cursor, nil where there is none.
func (v *ProbeView) current(rows []row) *row {
	if i := v.list[v.page].Cursor(probeLines(rows)); i >= 0 {
		return &rows[i]
	}
	return nil
}

// pairRows are what can be measured, by group.
func (v *ProbeView) pairRows(env *ui.Env) []row {
	if !v.listed {
		return nil
	}
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
	var out []row
	for _, title := range titles {
		out = append(out, row{key: "group " + title, group: title, members: byTitle[title]})
		if v.folded[title] {
			continue
		}
		for _, p := range byTitle[title] {
			out = append(out, row{key: "pair " + p.ID, group: title, pair: p})
		}
	}
	return out
}

// keeps says whether the filter keeps a pair.
func (*ProbeView) keeps(env *ui.Env, p *probe.Pair) bool {
	return env.Filter.Match(p.ID + " " + show.Title(p, options(env)) + " " + p.Waived)
}

// localPairs says whether all ends are of one host.
func localPairs(pairs []probe.Pair) bool {
	return !slices.ContainsFunc(pairs, func(p probe.Pair) bool { return p.From.Host != p.To.Host || p.From.Host != pairs[0].From.Host })
}

// resultRows are those of a report: what is being measured, the blame, the pairs, notes.
func (v *ProbeView) resultRows(env *ui.Env) []row {
	r := v.report(env)
	if r == nil {
		return nil
	}
	o, local := options(env), show.Local(r)
	out := activeRows(env, r)
	head := func(title string) { out = append(out, row{text: title, style: ui.Head}) }
	if len(r.Blame) > 0 {
		head("blame")
	}
	for i := range r.Blame {
		out = append(out, blameRows(env, r, i)...)
	}
	parts := show.SummaryParts(r, o)[1:]
	if len(parts) > 0 && parts[0].Title == "hosts" {
		out = append(out, partRows(parts[0], ui.Bad)...)
		parts = parts[1:]
	}
	out = append(out, troubleRows(env)...)
	list := make([]*probe.Result, 0, len(r.Results))
	for i := range r.Results {
		x := &r.Results[i]
		if env.Filter == "" || env.Filter.Match(x.ID+" "+string(x.Verdict)+" "+show.FiguresOf(x, local, o).Reason) {
			list = append(list, x)
		}
	}
	v.sort(list)
	if len(list) > 0 && len(out) > 0 {
		head("pairs, by " + v.order.String())
	}
	for _, x := range list {
		out = append(out, row{key: "result " + x.ID, result: x})
	}
	for _, part := range parts {
		out = append(out, partRows(part, ui.Plain)...)
	}
	return out
}

// partRows are a part of a summary.
func partRows(p show.Part, style ui.Style) []row {
	out := []row{{text: p.Title, style: ui.Head}}
	for i, line := range p.Lines {
		out = append(out, row{key: p.Title + " " + strconv.Itoa(i), text: line, style: style})
	}
	return out
}

// activeRows are the pairs that are being measured.
func activeRows(env *ui.Env, r *probe.Report) []row {
	p := env.State.Probe
	if p == nil || !p.Running || len(p.Active) == 0 {
		return nil
	}
	title := "being measured"
	if p.Retest {
		title = "being measured again"
	}
	known := make(map[string]*probe.Result, len(r.Results))
	for i := range r.Results {
		known[r.Results[i].ID] = &r.Results[i]
	}
	out, there := []row{{text: title, style: ui.Head}}, map[string]bool{}
	for _, id := range p.Active {
		if there[id] { // a recording may say anything
			continue
		}
		there[id] = true
		x := known[id]
		if x == nil {
			x = &probe.Result{Pair: probe.Pair{ID: id}}
		}
		out = append(out, row{key: "active " + id, result: x, active: true})
	}
	return out
}

// blameRows are a fault and what speaks for it.
func blameRows(env *ui.Env, r *probe.Report, i int) []row {
	const most = 4 // the detail has all
	b, o := &r.Blame[i], options(env)
	out := []row{{key: "blame " + strconv.Itoa(i), blame: b, text: show.BlameTitle(b, r, o), style: blameStyle(b)}}
	for _, part := range show.BlameParts(b, r, o) {
		switch part.Title {
		case "evidence":
			for _, line := range part.Lines[:min(most, len(part.Lines))] {
				out = append(out, row{text: "  " + line, style: ui.Faint})
			}
		case "next":
			out = append(out, row{text: "  next: " + part.Lines[0], style: ui.Plain})
		}
	}
	return out
}

// blameStyle is how a cause looks: congestion is no fault.
func blameStyle(b *probe.Blame) ui.Style {
	if b.Kind == probe.Congestion {
		return ui.Middle
	}
	return ui.Bad
}

// troubleRows are the errors that a probe met so far.
func troubleRows(env *ui.Env) []row {
	p := env.State.Probe
	if p == nil || len(p.Errors) == 0 {
		return nil
	}
	out := []row{{text: "errors", style: ui.Head}}
	for i, e := range p.Errors {
		out = append(out, row{key: "error " + strconv.Itoa(i), text: env.Look.Safe(e), style: ui.Bad})
	}
	return out
}

// worst orders verdicts; those without one are not judged yet.
var worst = []probe.Verdict{probe.Error, probe.Fail, probe.Warn, probe.Inconclusive, "", probe.Measured, probe.Pass, probe.Waived}

// sort sorts results, which are by name.
func (v *ProbeView) sort(list []*probe.Result) {
	slices.SortStableFunc(list, func(a, b *probe.Result) int {
		switch v.order {
		case byVerdict:
			return cmp.Or(slices.Index(worst, a.Verdict)-slices.Index(worst, b.Verdict), cmp.Compare(efficiency(a), efficiency(b)))
		case byEfficiency:
			return cmp.Compare(efficiency(a), efficiency(b))
		}
		return 0 // as they are: by name
	})
}

// efficiency is that of a result; those that have none come last.
func efficiency(x *probe.Result) float64 {
	if x.Efficiency == nil {
		return math.Inf(1)
	}
	return *x.Efficiency
}

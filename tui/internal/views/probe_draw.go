package views

import (
	"fmt"
	"math"
	"strings"

	"github.com/topoctl/topoctl/internal/measure/show"
	"github.com/topoctl/topoctl/probe"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// Main draws the page: its tabs, how far things are, then rows in columns.
func (v *ProbeView) Main(env *ui.Env, size ui.Size) []string {
	v.follow(env)
	if size.H <= 0 {
		return nil
	}
	rows, t := v.rows(env), v.table(env, size.W)
	out := v.head(env, size.W)
	if len(rows) > 0 {
		out = append(out, env.Look.Paint(t.head(), ui.Faint))
	}
	for i := range out {
		out[i] = env.Look.Cut(out[i], size.W)
	}
	v.top = len(out)
	if height := size.H - len(out); height > 0 {
		list := probeLines(rows)
		at := v.list[v.page].Cursor(list)
		for i := range list {
			list[i].Text = func(int) string { return t.line(&rows[i], i == at) }
		}
		out = append(out, v.list[v.page].Draw(env.Look, list, ui.Size{W: size.W, H: height})...)
	}
	return out[:size.H]
}

// head is what stands above the rows and their columns.
func (v *ProbeView) head(env *ui.Env, width int) []string {
	out := []string{v.tabLine(env, width)}
	if v.page == choosingPage {
		return append(out, v.choosingHead(env, width)...)
	}
	return append(out, v.resultsHead(env, width)...)
}

// Needs is all lines; names and reasons can use any width.
func (v *ProbeView) Needs(env *ui.Env, width int) ui.Size {
	v.follow(env)
	n := len(v.rows(env))
	return ui.Size{H: len(v.head(env, width)) + min(n, 1) + n}
}

// Position says which lines are shown.
func (v *ProbeView) Position() string { return v.list[v.page].Position() }

// tabLine names the pages.
func (v *ProbeView) tabLine(env *ui.Env, width int) string {
	l := env.Look
	left, right := "pairs", "results"
	if v.listed {
		left = fmt.Sprintf("pairs %d", len(v.pairs))
		if n := len(v.marked); n > 0 {
			left += fmt.Sprintf(", %d marked", n)
		}
	}
	switch r := v.report(env); {
	case running(env):
		right += ", measuring"
	case r != nil && env.State.Probe == nil:
		right += " of " + l.Safe(v.source)
	}
	style := map[page]ui.Style{choosingPage: ui.Faint, resultsPage: ui.Faint}
	style[v.page] = ui.Accent
	mark := func(p page, text string) string {
		if v.page == p {
			return "[" + text + "]"
		}
		return " " + text + " "
	}
	left, right = mark(choosingPage, left), mark(resultsPage, right)
	v.tabs = [2]int{ui.Width(left) + 1, ui.Width(left) + 1 + ui.Width(right)}
	return l.Cut(l.Paint(left, style[choosingPage])+" "+l.Paint(right, style[resultsPage]), width)
}

// choosingHead says what the list of pairs is for, or why there is none.
func (v *ProbeView) choosingHead(env *ui.Env, width int) []string {
	l := env.Look
	var out []string
	switch {
	case v.unable != "":
		return v.said("nothing can be measured here: "+l.Safe(v.unable), ui.Middle, env, width)
	case v.asking:
		text := "asking what can be measured; this connects to agents, and measures nothing"
		if waited := env.State.Now - v.askedNS; waited > 1e9 {
			text += ": " + show.Seconds(waited)
		}
		return v.said(text, ui.Plain, env, width)
	case v.failed != nil:
		out = v.said("x "+l.Safe(strings.ReplaceAll(v.failed.Error(), "\n", "; ")), ui.Bad, env, width)
		out = append(out, v.said(keyOf(ui.Enter, env)+" tries again", ui.Plain, env, width)...)
		if !v.listed {
			return out
		}
	case !v.listed:
		text := fmt.Sprintf("%s lists what can be measured here; %s measures all of it; nothing is sent before you say yes", keyOf(ui.Enter, env), keyOf(ui.Measure, env))
		return v.said(text, ui.Plain, env, width)
	}
	if len(v.pairs) == 0 {
		return append(out, v.said("there is no pair to measure", ui.Middle, env, width)...)
	}
	text := fmt.Sprintf("%s measures all pairs, or those that %s marks; it asks first", keyOf(ui.Measure, env), keyOf(ui.Mark, env))
	if len(v.marked) > 0 {
		text = fmt.Sprintf("%s measures the marked pairs; %s marks, %s marks all or none", keyOf(ui.Measure, env), keyOf(ui.Mark, env), keyOf(ui.MarkAll, env))
	}
	if env.Filter != "" {
		text += "; the filter is " + l.Safe(string(env.Filter))
	}
	return append(out, v.said(text, ui.Faint, env, width)...)
}

// said is a text in some lines.
func (*ProbeView) said(text string, style ui.Style, env *ui.Env, width int) []string {
	const most = 4
	out := ui.Wrap(text, width, 0)
	if len(out) > most {
		out = append(out[:most-1], env.Look.Dots())
	}
	for i := range out {
		out[i] = env.Look.Paint(out[i], style)
	}
	return out
}

// resultsHead says how far a probe is, or what came of it.
func (v *ProbeView) resultsHead(env *ui.Env, width int) []string {
	r := v.report(env)
	if r == nil {
		return v.said("nothing was measured yet: "+keyOf(ui.Left, env)+" goes to the pairs", ui.Plain, env, width)
	}
	var out []string
	if running(env) {
		out = append(out, v.progress(env, r, width))
	}
	for i, line := range show.SummaryParts(r, options(env))[0].Lines {
		style := ui.Strong
		switch {
		case running(env) && (i > 0 || len(r.Results) == 0):
			continue // because it runs
		case i > 0:
			style = ui.Middle
		}
		out = append(out, v.said(line+outliers(r, i), style, env, width)...)
	}
	return out
}

// outliers counts those of a report, for its first line.
func outliers(r *probe.Report, line int) string {
	n := 0
	for i := range r.Results {
		for _, why := range r.Results[i].Reasons {
			if why.Code == codeOutlier || why.Code == codeLate {
				n++
				break
			}
		}
	}
	switch {
	case n == 0 || line > 0:
		return ""
	case n == 1:
		return "; 1 outlier"
	}
	return fmt.Sprintf("; %d outliers", n)
}

// The codes of reasons that outliers have (internal/measure/judge).
const (
	codeOutlier = "outlier"
	codeLate    = "latency-outlier"
)

// progress is how far a probe is in one line.
func (*ProbeView) progress(env *ui.Env, r *probe.Report, width int) string {
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

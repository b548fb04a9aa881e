package views

import (
	"github.com/topoctl/topoctl/internal/measure/show"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// Detail tells all that is known of what is under the cursor.
func (v *ProbeView) Detail(env *ui.Env, width int) []string {
	rows := v.rows(env)
	r, report := v.current(rows), v.report(env)
	switch {
	case r == nil:
		return nil
	case r.blame != nil:
		return drawn(env, show.BlameParts(r.blame, report, options(env)), width)
	case r.active:
		return v.activeDetail(env, r.result, width)
	case r.result != nil:
		return v.pairDetail(env, report, r.result, width)
	case r.pair != nil:
		return v.pairDetail(env, report, resultOf(report, r.pair), width)
	case r.group != "":
		return drawn(env, []show.Part{{Title: r.group, Lines: []string{text.Plural(len(r.members), "pair"), keyOf(ui.Enter, env) + " folds, " + keyOf(ui.Mark, env) + " marks them all"}}}, width)
	}
	return drawn(env, []show.Part{{Lines: []string{r.text}}}, width)
}

// resultOf is the result of a pair in a report, or the pair without one.
func resultOf(r *probe.Report, p *probe.Pair) *probe.Result {
	if r != nil {
		for i := range r.Results {
			if r.Results[i].ID == p.ID {
				return &r.Results[i]
			}
		}
	}
	return &probe.Result{Pair: *p}
}

func (v *ProbeView) pairDetail(env *ui.Env, r *probe.Report, x *probe.Result, width int) []string {
	l := env.Look
	title := l.Paint(show.FiguresOf(x, false, options(env)).Pair, ui.Strong)
	out := []string{l.Cut(title, width)}
	if x.Verdict != "" {
		style := probeStyleOf(x.Verdict)
		out = append(out, l.Cut(l.Paint(l.Mark(style)+" "+l.Safe(string(x.Verdict)), style), width))
	}
	return append(out, drawn(env, show.PairParts(r, x, options(env)), width)...)
}

// activeDetail is a pair that is being measured: the latest sample, and the pair.
func (v *ProbeView) activeDetail(env *ui.Env, x *probe.Result, width int) []string {
	if known := v.byID[x.ID]; known != nil && x.Kind == "" {
		x = &probe.Result{Pair: *known}
	}
	line := "no sample yet"
	if s, ok := env.State.Probe.Samples[x.ID]; ok {
		line = "latest sample: " + show.PairRate(x.Kind, s.BytesPerSec, env.Look.Units) + " with ops of " + units.Bytes(s.SizeBytes)
	}
	if x.Kind == "" { // it is not known what pair that is
		return drawn(env, []show.Part{{Title: env.Look.Safe(x.ID), Lines: []string{line}}}, width)
	}
	return append(drawn(env, []show.Part{{Lines: []string{line}}}, width), v.pairDetail(env, v.report(env), x, width)...)
}

// drawn sets parts in lines; what does not fit a line goes on below, indented.
func drawn(env *ui.Env, parts []show.Part, width int) []string {
	var out []string
	for i, p := range parts {
		if i > 0 {
			out = append(out, "")
		}
		if p.Title != "" {
			out = append(out, env.Look.Paint(env.Look.Cut(p.Title, width), ui.Head))
		}
		for _, line := range p.Lines {
			for _, text := range ui.Wrap(line, width, 2) {
				out = append(out, env.Look.Cut(text, width))
			}
		}
	}
	return out
}

// keyOf is how the key of an action is written.
func keyOf(a ui.Action, env *ui.Env) string {
	return ui.Get(a).Short(env.Look.ASCII)
}

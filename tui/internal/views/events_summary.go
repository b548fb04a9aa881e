package views

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/watch"
	"github.com/topoctl/topoctl/pathsel/doctor"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// eventsStyleOf is how bad something is.
func eventsStyleOf(severity string) ui.Style {
	switch doctor.Severity(severity) {
	case doctor.Error:
		return ui.Bad
	case doctor.Warning:
		return ui.Middle
	}
	return ui.Plain
}

// summary is the counts of everything, then which page this is.
func (v *EventsView) summary(env *ui.Env, w int) []string {
	l, s := env.Look, env.State
	by := map[string]int{}
	for i := range s.Events {
		if s.Events[i].Kind != watch.Started { // it has the severity of the findings, which have events of their own
			by[s.Events[i].Severity]++
		}
	}
	changed := fmt.Sprintf("%s: %s", text.Plural(len(s.Events), "event"),
		severities(l, by[string(doctor.Error)], by[string(doctor.Warning)], len(s.Events)-by[string(doctor.Error)]-by[string(doctor.Warning)]))
	if s.Dropped > 0 {
		changed += fmt.Sprintf(", %d older ones dropped", s.Dropped)
	}
	now := "now: not known"
	if d := s.Doctor; d != nil {
		now = "now: " + severities(l, d.Summary.Errors, d.Summary.Warnings, d.Summary.Infos)
	}
	out := ui.Flow(l, w, changed, now, driftSummary(env))
	return append(out, v.tabs(env, w))
}

// severities are counts, marked where they are not 0.
func severities(l *ui.Look, bad, middle, infos int) string {
	one := func(n int, one, many string, style ui.Style) string {
		text := text.Plural(n, one, many)
		if n > 0 {
			text = l.Paint(l.Mark(style)+" "+text, style)
		}
		return text
	}
	return one(bad, "error", "errors", ui.Bad) + ", " + one(middle, "warning", "warnings", ui.Middle) + ", " + text.Plural(infos, "note")
}

// driftSummary is one phrase on how the host differs.
func driftSummary(env *ui.Env) string {
	s := env.State
	against := "since the start"
	if s.BaselineName != "" {
		against = "against " + env.Look.Safe(s.BaselineName)
	}
	switch {
	case s.Drift == nil:
		return "drift " + against + ": not known"
	case s.Drift.Equal:
		return "no drift " + against
	}
	n := len(s.Drift.Differences) + len(s.Drift.Policy)
	return env.Look.Paint(fmt.Sprintf("! drift %s: %s", against, text.Plural(n, "difference")), ui.Middle)
}

// tabs names the pages; the one that is shown stands in brackets.
func (v *EventsView) tabs(env *ui.Env, w int) string {
	l := env.Look
	line := ""
	for p, name := range [eventsPages]string{"events", "findings now", "drift"} {
		if page(p) == v.page {
			line += l.Paint("["+name+"]", ui.Accent) + " "
		} else {
			line += l.Paint(" "+name+" ", ui.Faint) + " "
		}
	}
	return l.Cut(line, w)
}

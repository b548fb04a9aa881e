package views

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/probe"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

// hostile is a report whose every foreign text is nasty.
func hostile(t testing.TB, name string) *probe.Report {
	r := load(t, name)
	r.Notes = append(r.Notes, viewtest.Nasty)
	for i := range r.Hosts {
		r.Hosts[i].Error = viewtest.Nasty
	}
	for i := range r.Links {
		r.Links[i].Name = viewtest.Nasty
	}
	for i := range r.Blame {
		b := &r.Blame[i]
		b.Evidence, b.Next = append(b.Evidence, viewtest.Nasty), viewtest.Nasty
		for k := range b.Suspects {
			b.Suspects[k].Name = viewtest.Nasty
		}
	}
	for i := range r.Results {
		x := &r.Results[i]
		x.ID += viewtest.Nasty
		x.From.Name, x.To.Host, x.Variant, x.Expected.Why = viewtest.Nasty, viewtest.Nasty, viewtest.Nasty, viewtest.Nasty
		x.Reasons = append([]probe.Reason{{Code: viewtest.Nasty, Text: viewtest.Nasty}}, x.Reasons...)
		x.Measurement.Notes = []string{viewtest.Nasty}
		if i%3 == 0 {
			x.Verdict, x.Pair.Waived = probe.Verdict(viewtest.Nasty), viewtest.Nasty
		}
		if i%3 == 1 {
			x.Kind, x.Transport, x.Error = viewtest.Nasty, viewtest.Nasty, viewtest.Nasty
		}
	}
	return r
}

// sane checks lines that go to a terminal.
func sane(t *rapid.T, what string, list []string, width int, ascii bool) {
	for _, line := range list {
		if ui.Width(line) > width {
			t.Fatalf("%s: %d columns of %d: %q", what, ui.Width(line), width, line)
		}
		if ui.Clean(line) != line {
			t.Fatalf("%s: what a terminal obeys: %q", what, line)
		}
		if ascii && strings.ContainsFunc(line, func(r rune) bool { return r > 0x7e }) {
			t.Fatalf("%s: not ASCII: %q", what, line)
		}
	}
}

// Whatever is shown, wherever the cursor is, a pane is as high as it should be and no line is
// wider, and nothing that others have written reaches the terminal as it is.
func TestAnySize(t *testing.T) {
	all := map[string]*probe.Report{}
	for _, name := range reports {
		all[name], all["hostile "+name] = load(t, name), hostile(t, name)
	}
	actions := []ui.Action{ui.Up, ui.Down, ui.PageDown, ui.End, ui.Home, ui.Left, ui.Right, ui.Enter, ui.Mark, ui.MarkAll, ui.Sort, ui.Wide, ui.Measure}
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SampledFrom([]string{"", "hostile "}).Draw(t, "hostile")
		r := all[prefix+rapid.SampledFrom(reports).Draw(t, "report")]
		events := halfway(r)
		if rapid.Bool().Draw(t, "over") {
			events = append(events, &probe.Event{Type: probe.EventError, AtNS: 60e9, Error: viewtest.Nasty}, probe.EndEvent(r))
		}
		v, env := NewProbe(), newEnv(told(events[:rapid.IntRange(0, len(events)).Draw(t, "events")]...))
		env.Look = &ui.Look{ASCII: rapid.Bool().Draw(t, "ascii"), Color: rapid.Bool().Draw(t, "color"), Bare: rapid.Bool().Draw(t, "bare")}
		env.Filter = ui.Filter(rapid.SampledFrom([]string{"", "cpu", "!pass", "nothing has it", "\x1b[2J"}).Draw(t, "filter"))
		if rapid.Bool().Draw(t, "loaded") {
			v.SetReport(r, viewtest.Nasty)
		}
		if rapid.Bool().Draw(t, "listed") {
			v.SetPairs(pairsOf(r), nil)
		}
		if rapid.IntRange(0, 4).Draw(t, "unable") == 0 {
			v.SetUnable(viewtest.Nasty)
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			size := ui.Size{W: rapid.IntRange(0, 210).Draw(t, "w"), H: rapid.IntRange(0, 60).Draw(t, "h")}
			lines := v.Main(env, size)
			if len(lines) != size.H {
				t.Fatalf("%d lines, want %d", len(lines), size.H)
			}
			sane(t, "main", lines, size.W, env.Look.ASCII)
			sane(t, "detail", v.Detail(env, size.W), size.W, env.Look.ASCII)
			sane(t, "message", []string{env.Shared.Message}, 1<<20, env.Look.ASCII)
			v.Selection(env)
			if rapid.Bool().Draw(t, "click") {
				v.Click(rapid.IntRange(-1, 210).Draw(t, "x"), rapid.IntRange(-1, 60).Draw(t, "y"), env)
			}
			v.Key(rapid.SampledFrom(actions).Draw(t, "key"), env)
		}
	})
}

// A pair that a recording names twice stands there once: the cursor could not pass it.
func TestActiveTwice(t *testing.T) {
	s := state.New(state.Options{})
	for _, e := range []*probe.Event{
		{Type: probe.EventStart, Start: load(t, "local-cpu")},
		{Type: probe.EventRound, Round: &probe.RoundEvent{Round: 1, Rounds: 1, Pairs: []string{"a", "a", "b"}}},
	} {
		s.Apply(&record.Record{Source: record.SourceProbe, Probe: e})
	}
	v, env := NewProbe(), &ui.Env{State: s, Look: &ui.Look{Bare: true}, Shared: &ui.Shared{}}
	v.Main(env, ui.Size{W: 80, H: 20})
	v.Key(ui.Down, env)
	if x, ok := v.Selection(env).(*probe.Result); !ok || x.ID != "b" {
		t.Errorf("the second line is %+v", v.Selection(env))
	}
}

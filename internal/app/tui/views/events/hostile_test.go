package events_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/diff"
	"github.com/topoctl/topoctl/internal/app/tui/keys"
	"github.com/topoctl/topoctl/internal/app/tui/look"
	"github.com/topoctl/topoctl/internal/app/tui/state"
	"github.com/topoctl/topoctl/internal/app/tui/ui"
	"github.com/topoctl/topoctl/internal/app/tui/views/events"
	"github.com/topoctl/topoctl/internal/app/watch"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

const nasty = "\x1b]0;owned\a\x1b[2J\u202e\u009b31m\x00\r\n\t世界\u0301 \xff end"

func clean(t *rapid.T, lines []string, w int) {
	for _, line := range lines {
		if look.Width(line) > w {
			t.Fatalf("%d columns in a pane of %d: %q", look.Width(line), w, line)
		}
		for _, r := range line {
			if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x202e || r == 0xfffd {
				t.Fatalf("%q gets through: %q", r, line)
			}
		}
	}
}

func hostile(t *rapid.T) *state.State {
	text := func() string {
		return rapid.SampledFrom([]string{nasty, "", "a", "error", "port:" + nasty, strings.Repeat("x", 3000), strings.Repeat(nasty, 5)}).Draw(t, "text")
	}
	few := func() int { return rapid.IntRange(0, 3).Draw(t, "few") }
	s := &state.State{BaselineName: text(), Doctor: &doctor.Report{}, Drift: &diff.Report{}, Dropped: few()}
	for range few() {
		s.Events = append(s.Events, watch.Event{AtNS: rapid.Int64().Draw(t, "at"), Time: text(), Kind: watch.Kind(text()), Severity: text(), Subject: topo.ID(text()), Source: text(),
			Code: text(), Text: text(), Detail: []string{text()}, Flaps: few(), Counters: map[string]uint64{text(): 1}})
		ids := []topo.ID{topo.ID(text()), ""}
		s.Doctor.Checks = append(s.Doctor.Checks, doctor.CheckResult{Code: doctor.Code(text()), Title: text(),
			Findings: []doctor.Finding{{Code: doctor.Code(text()), Severity: doctor.Severity(text()), Subjects: ids, Text: text(), Evidence: []string{text()}, Fix: text(), Basis: topo.Basis(text())}},
			Missing:  []doctor.Missing{{Subjects: ids, Text: text(), How: text()}}})
		nodes := []diff.Node{{Kind: topo.Kind(text()), Old: text(), New: text(), Name: text(), With: []string{text()}, OldEvidence: text(), MatchedBy: diff.Method(text())}}
		for range few() * 20 {
			nodes = append(nodes, nodes[0])
		}
		s.Drift.Differences = append(s.Drift.Differences, diff.Difference{Kind: diff.Kind(text()), Attribute: rapid.SampledFrom([]string{"presence", "pcie_width", "mac", "name"}).Draw(t, "attribute"), Nodes: nodes, Old: text(), New: text(), Note: text(), Effect: text(),
			Paths: []diff.Path{{NewLocation: text(), NewPort: topo.ID(text())}}})
		s.Drift.Policy = append(s.Drift.Policy, diff.Choice{Kind: diff.Policy, Choice: text(), Locations: nodes, OldNames: []string{text()}, NewNames: []string{text()}, Reason: text(), Effect: text()})
	}
	return s
}

// Whatever files and peers say, panes are whole and obey nobody.
func TestHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, l := events.New(), &look.Look{ASCII: rapid.Bool().Draw(t, "ascii"), Bare: true}
		e := &ui.Env{State: hostile(t), Look: l, Shared: &ui.Shared{}}
		for range 12 {
			size := ui.Size{W: rapid.IntRange(1, 220).Draw(t, "w"), H: rapid.IntRange(0, 50).Draw(t, "h")}
			e.Filter = ui.Filter(rapid.SampledFrom([]string{"", "a", "!a", nasty}).Draw(t, "filter"))
			lines := v.Main(e, size)
			if len(lines) != size.H {
				t.Fatalf("%d lines, want %d", len(lines), size.H)
			}
			clean(t, lines, size.W)
			w := rapid.IntRange(20, 200).Draw(t, "detail")
			clean(t, v.Detail(e, w), w)
			if rapid.Bool().Draw(t, "click") {
				v.Click(0, rapid.IntRange(-1, 60).Draw(t, "y"), e)
			} else {
				v.Key(rapid.SampledFrom([]keys.Action{keys.Up, keys.Down, keys.PageDown, keys.End, keys.Home, keys.Enter, keys.Left, keys.Right, keys.Wide}).Draw(t, "key"), e)
			}
			v.Selection(e)
		}
	})
}

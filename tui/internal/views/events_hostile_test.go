package views_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/watch"
	"github.com/topoctl/topoctl/pathsel/diff"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/views"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

func eventsHostile(t *rapid.T) *state.State {
	text := func() string {
		return rapid.SampledFrom([]string{viewtest.Nasty, "", "a", "error", "port:" + viewtest.Nasty, strings.Repeat("x", 3000), strings.Repeat(viewtest.Nasty, 5)}).Draw(t, "text")
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

// Whatever files and peers say, panes are whole and no escape code gets through.
func TestEventsHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		viewtest.Hostile(t, views.NewEvents(), eventsHostile(t), []string{"", "a", "!a", viewtest.Nasty})
	})
}

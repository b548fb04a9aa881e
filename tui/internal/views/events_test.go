package views_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/watch"
	"github.com/topoctl/topoctl/pathsel/diff"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/golden"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/views"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

// seen is a host to which much has happened.
func seen() *state.State {
	at := func(n int64) (int64, string) { return n * second, fmt.Sprintf("2026-11-22T11:02:%02dZ", n) }
	add := func(list []watch.Event, n int64, e watch.Event) []watch.Event {
		e.Schema = watch.Schema
		e.AtNS, e.Time = at(n)
		return append(list, e)
	}
	var list []watch.Event
	list = add(list, 0, watch.Event{Kind: watch.Started, Severity: "info", Text: "8 GPUs, 10 network ports; 1 error, 1 warning"})
	list = add(list, 7, watch.Event{Kind: watch.LinkDown, Severity: "error", Subject: "port:mlx5_3/1", Text: "went down, 400 Gb/s are gone", Flaps: 3,
		Detail: []string{"sys/class/infiniband/mlx5_3/ports/1/state: 1: DOWN", "GPU 3 has no other port below its switch"}})
	list = add(list, 9, watch.Event{Kind: watch.Errors, Severity: "warning", Subject: "port:mlx5_0/1", Text: "symbol_error +12, link_downed +1",
		Counters: map[string]uint64{"symbol_error": 12, "link_downed": 1}})
	list = add(list, 12, watch.Event{Kind: watch.SourceLost, Severity: "warning", Source: "agent http://127.0.0.1:9411", Text: "it brings no news: connection refused"})
	list = append(list, watch.Event{Kind: watch.Finding, Severity: "warning", Code: "pcie-width", Subject: "gpu:2", Subjects: []topo.ID{"gpu:2", "gpu:3"}, Initial: true, AtNS: 95 * second, Text: "the link has 8 of 16 lanes",
		Detail: []string{"fix: seat the card again"}})
	report := &doctor.Report{Summary: doctor.Summary{OK: 20, Found: 2, CouldNotCheck: 1, Errors: 1, Warnings: 1, Infos: 0}, Checks: []doctor.CheckResult{
		{Code: "acs", Title: "no switch sends traffic up", Status: doctor.CouldNotCheck, Missing: []doctor.Missing{{Subjects: []topo.ID{"pci:0000:15:00.0"}, Text: "configuration space cannot be read", How: "run as root"}}},
		{Code: "pcie-width", Title: "links have all lanes", Status: doctor.Found, Findings: []doctor.Finding{{Code: "pcie-width", Severity: doctor.Warning, Subjects: []topo.ID{"gpu:2"}, Text: "the link has 8 of 16 lanes",
			Evidence: []string{"sys/bus/pci/devices/0000:3d:00.0/current_link_width: 8"}, Fix: "seat the card again; if that does not help, swap it", Basis: topo.BasisBound}}},
		{Code: "port-down", Title: "data ports are up", Status: doctor.Found, Findings: []doctor.Finding{{Code: "port-down", Severity: doctor.Error, Subjects: []topo.ID{"port:mlx5_3/1", "port:mlx5_4/1"}, Text: "two data ports are down", Evidence: []string{}}}},
	}}
	drift := &diff.Report{Differences: []diff.Difference{
		{Kind: diff.Degraded, Attribute: "pcie_width", Old: "x16", New: "x8", Effect: "GPU 2 to mlx5_2 at half the rate", PathsAffected: 3,
			Nodes: []diff.Node{{Kind: topo.KindGPU, Old: "gpu:2", New: "gpu:2", Name: "GPU 2", MatchedBy: diff.ByIdentity, NewEvidence: "sys/.../current_link_width"}},
			Paths: []diff.Path{{OldLocation: "gpu:2", NewLocation: "gpu:2", OldPort: "port:mlx5_2/1", NewPort: "port:mlx5_2/1", OldBytesPerSec: ptr(topo.Rate(50e9)), NewBytesPerSec: ptr(topo.Rate(25e9))}}},
		{Kind: diff.Added, Attribute: "presence", Nodes: []diff.Node{{Kind: topo.KindNetdev, New: "net:eth9", Name: "eth9"}}},
	}, Policy: []diff.Choice{{Kind: diff.Policy, Choice: diff.ChoicePreferred, Locations: []diff.Node{{Old: "gpu:2", New: "gpu:2", Name: "GPU 2"}}, OldNames: []string{"mlx5_2"}, NewNames: []string{"mlx5_3"}, Reason: "half the rate"}}}
	return &state.State{Now: 100 * second, Start: record.Start{At: "2026-11-22T11:02:00Z"}, Events: list, Dropped: 4, Doctor: report, Drift: drift, BaselineName: "golden.json"}
}

// fine is a host of which there is nothing to tell.
func fine() *state.State {
	return &state.State{Doctor: &doctor.Report{Summary: doctor.Summary{OK: 28}}, Drift: &diff.Report{Equal: true}}
}

var eventsStates = []struct {
	name string
	make func() *state.State
}{{"seen", seen}, {"fine", fine}, {"unknown", func() *state.State { return &state.State{} }}}

func TestEventsGolden(t *testing.T) {
	for _, s := range eventsStates {
		for mode, l := range map[string]ui.Look{"color": {Color: true}, "ascii": {ASCII: true, Bare: true}} {
			var b strings.Builder
			for _, size := range viewtest.Sizes {
				v, e := views.NewEvents(), viewtest.Env(s.make(), l)
				for _, page := range []string{"events", "findings", "drift"} {
					fmt.Fprintf(&b, "== %s %dx%d\n%s", page, size.W, size.H, viewtest.Frame(t, v, e, size))
					v.Key(ui.Wide, e)
				}
			}
			golden.Check(t, "testdata/events/"+s.name+"."+mode+".txt", b.String())
		}
	}
}

// What the detail says of every line of the three pages.
func TestEventsGoldenDetails(t *testing.T) {
	var b strings.Builder
	for _, w := range []int{30, 72} {
		v, e := views.NewEvents(), viewtest.Env(seen(), ui.Look{Bare: true})
		for range 3 {
			for last := any(nil); v.Selection(e) != last; v.Key(ui.Down, e) {
				last = v.Selection(e)
				lines := v.Detail(e, w)
				viewtest.Fits(t, lines, w)
				b.WriteString(strings.Join(lines, "\n") + "\n\n")
			}
			v.Key(ui.Wide, e)
		}
	}
	golden.Check(t, "testdata/events/details.txt", b.String())
}

// eventsSelected is what the cursor is on.
func eventsSelected(v ui.View, e *ui.Env) string {
	switch x := v.Selection(e).(type) {
	case *watch.Event:
		return string(x.Kind)
	case *doctor.Finding:
		return string(x.Code)
	case *doctor.Missing:
		return "missing: " + x.How
	case *diff.Difference:
		return string(x.Kind)
	case *diff.Choice:
		return "choice: " + x.Choice
	case nil:
		return "nothing"
	default:
		return fmt.Sprintf("%T", x)
	}
}

func TestEventsKeys(t *testing.T) {
	up, down, wide, enter := ui.Up, ui.Down, ui.Wide, ui.Enter
	for _, tt := range []struct {
		name   string
		filter ui.Filter
		keys   []ui.Action
		want   string
		node   topo.ID // shown in the tree
	}{
		{"the newest", "", nil, "finding", ""},
		{"not above it", "", []ui.Action{up}, "finding", ""},
		{"the one before", "", []ui.Action{down}, "source-lost", ""},
		{"the oldest", "", []ui.Action{ui.End, down}, "started", ""},
		{"in the tree", "", []ui.Action{down, down, enter}, "errors", "port:mlx5_0/1"},
		{"of no device", "", []ui.Action{down, enter}, "source-lost", ""},
		{"findings, the worst first", "", []ui.Action{wide}, "port-down", ""},
		{"second finding", "", []ui.Action{wide, down, enter}, "pcie-width", "gpu:2"},
		{"what was not checked", "", []ui.Action{wide, ui.End}, "missing: run as root", ""},
		{"drift", "", []ui.Action{wide, wide, enter}, "degraded", "gpu:2"},
		{"choices", "", []ui.Action{ui.Left, ui.End}, "choice: preferred", ""},
		{"round", "", []ui.Action{wide, ui.Right, wide}, "finding", ""},
		{"each page has its cursor", "", []ui.Action{down, down, wide, down, ui.Left}, "errors", ""},
		{"filter by text", "400 gb/S", nil, "link-down", ""},
		{"filter by evidence", "no other port", nil, "link-down", ""},
		{"inverse filter", "!went down", []ui.Action{down, down}, "errors", ""},
		{"filter findings", "mlx5_4", []ui.Action{wide}, "port-down", ""},
		{"nothing matches", "zebra", []ui.Action{down, enter}, "nothing", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, e := views.NewEvents(), viewtest.Env(seen(), ui.Look{Bare: true})
			e.Filter = tt.filter
			var last ui.Request
			for _, k := range tt.keys {
				viewtest.Frame(t, v, e, viewtest.Sizes[0])
				last = v.Key(k, e)
			}
			if got := eventsSelected(v, e); got != tt.want {
				t.Errorf("%s, want %s\n%s", got, tt.want, viewtest.Frame(t, v, e, viewtest.Sizes[1]))
			}
			if e.Shared.Node != tt.node || (last.Show == ui.Tree) != (tt.node != "") {
				t.Errorf("asks for %+v of %q, want %q", last, e.Shared.Node, tt.node)
			}
		})
	}
}

// The cursor follows the newest event until it was moved; then it stays on its event, also
// when old ones are dropped.
func TestFollow(t *testing.T) {
	v, e := views.NewEvents(), viewtest.Env(seen(), ui.Look{Bare: true})
	news := func() {
		s := e.State
		s.Events = append(s.Events[1:], watch.Event{Kind: watch.LinkUp, Severity: "info", Text: "again"})
		s.Dropped++
	}
	viewtest.Frame(t, v, e, viewtest.Sizes[0])
	news()
	if got := eventsSelected(v, e); got != "link-up" {
		t.Errorf("on %s, want the newest", got)
	}
	v.Key(ui.Down, e)
	want := eventsSelected(v, e)
	news()
	if got := eventsSelected(v, e); got != want || want == "link-up" {
		t.Errorf("on %s, want %s", got, want)
	}
	v.Key(ui.Home, e)
	news()
	if got := v.Selection(e); got != &e.State.Events[len(e.State.Events)-1] {
		t.Errorf("on %v, want the newest", got)
	}
}

// A click chooses, another one on the same line shows the device in the tree.
func TestClick(t *testing.T) {
	v, e := views.NewEvents(), viewtest.Env(seen(), ui.Look{Bare: true})
	lines := strings.Split(viewtest.Frame(t, v, e, viewtest.Sizes[1]), "\n")
	for i, line := range lines {
		if !strings.Contains(line, "went down") {
			continue
		}
		if r := v.Click(3, i, e); r != (ui.Request{}) || eventsSelected(v, e) != "link-down" {
			t.Errorf("%+v, %s", r, eventsSelected(v, e))
		}
		if r := v.Click(3, i, e); r.Show != ui.Tree || e.Shared.Node != "port:mlx5_3/1" {
			t.Errorf("%+v, %s", r, e.Shared.Node)
		}
	}
	for _, y := range []int{-1, 0, 1, 21, 22} {
		if r := v.Click(3, y, e); r != (ui.Request{}) || eventsSelected(v, e) != "link-down" {
			t.Errorf("a click beside everything, on line %d: %+v, %s", y, r, eventsSelected(v, e))
		}
	}
	if v.Name() != "Events" || len(v.Hints()) == 0 {
		t.Error("no name, or no hints")
	}
}

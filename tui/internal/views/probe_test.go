package views

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/golden"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

// reports are those in the testdata of package probe.
var reports = []string{"bad-cable", "dgx-pair", "local-cpu", "interrupted", "all-waived"}

func load(t testing.TB, name string) *probe.Report {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../..", "probe", "testdata", name+".probe.json"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := probe.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newEnv(s *state.State) *ui.Env {
	return &ui.Env{State: s, Look: &ui.Look{Bare: true}, Shared: &ui.Shared{}}
}

// told is a state that has heard these events, and the time of the last one.
func told(events ...*probe.Event) *state.State {
	s := state.New(state.Options{})
	for _, e := range events {
		s.Apply(&record.Record{AtNS: 5e9 + e.AtNS, Source: record.SourceProbe, Probe: e})
	}
	return s
}

// halfway are the events of a run of a report until its middle: rounds, samples, results.
func halfway(r *probe.Report) []*probe.Event {
	at := int64(0)
	tick := func(e *probe.Event) *probe.Event {
		at += 3e8
		e.AtNS = at
		return e
	}
	out := []*probe.Event{tick(probe.StartEvent(r))}
	byRound := map[int][]*probe.Result{}
	for i := range r.Results {
		x := &r.Results[i]
		byRound[x.Round] = append(byRound[x.Round], x)
	}
	last := r.Plan.Rounds/2 + 1
	for n := 1; n <= last; n++ {
		round := &probe.RoundEvent{Round: n, Rounds: r.Plan.Rounds}
		for _, x := range byRound[n] {
			round.Pairs = append(round.Pairs, x.ID)
		}
		out = append(out, tick(&probe.Event{Type: probe.EventRound, Round: round}))
		for i, x := range byRound[n] {
			if b := x.Judged(); b != nil && (n < last || i%2 == 0) {
				out = append(out, tick(&probe.Event{Type: probe.EventSample, Sample: &probe.SampleEvent{Pair: x.ID, Sample: probe.Sample{SizeBytes: b.SizeBytes, BytesPerSec: b.SamplesBytesPerSec[0]}}}))
			}
		}
		for _, x := range byRound[n] {
			if n < last {
				out = append(out, tick(&probe.Event{Type: probe.EventResult, Result: x}))
			}
		}
	}
	return out
}

func pairsOf(r *probe.Report) []probe.Pair {
	var out []probe.Pair
	for i := range r.Results {
		out = append(out, r.Results[i].Pair)
	}
	return out
}

// frames are the pane at all viewtest.Sizes, each with the detail of what is under the cursor.
func frames(v *ProbeView, env *ui.Env) string {
	var b strings.Builder
	for _, size := range viewtest.Sizes {
		b.WriteString(strings.Repeat("=", size.W) + "\n")
		for _, line := range v.Main(env, size) {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		b.WriteString(strings.Repeat("-", size.W) + "\n")
		for _, line := range v.Detail(env, size.W*2/5) {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	return strings.ReplaceAll(b.String(), "\x1b", "^[")
}

// looks are the two ways in which panes are held.
var looks = map[string]ui.Look{"color": {Color: true}, "ascii": {ASCII: true, Bare: true}}

func TestGolden(t *testing.T) {
	for name, l := range looks {
		check := func(what string, v *ProbeView, env *ui.Env) {
			own := l
			env.Look = &own
			golden.Check(t, "testdata/probe/"+what+"."+name+".txt", frames(v, env))
		}
		check("before", NewProbe(), newEnv(told()))
		for _, report := range reports {
			v := NewProbe()
			v.SetReport(load(t, report), report+".json")
			check(report, v, newEnv(told()))
		}
		half := load(t, "bad-cable")
		v := NewProbe()
		v.SetPairs(pairsOf(half), nil)
		env := newEnv(told(halfway(half)...))
		check("halfway", v, env)
		v.Key(ui.Left, env)
		v.Key(ui.MarkAll, env)
		check("pairs", v, env)
		waived := NewProbe()
		waived.SetPairs(pairsOf(load(t, "all-waived")), nil)
		check("waived", waived, newEnv(told()))
	}
}

// What the user does, and what is asked of the program.
func TestKeys(t *testing.T) {
	r := load(t, "local-cpu")
	v, env := NewProbe(), newEnv(told())
	press := func(list ...ui.Action) (q ui.Request) {
		for _, a := range list {
			q = v.Key(a, env)
		}
		return q
	}
	text := func() string { return strings.Join(v.Main(env, ui.Size{W: 100, H: 30}), "\n") }
	says := func(want string) {
		t.Helper()
		if !strings.Contains(text(), want) {
			t.Errorf("no %q in\n%s", want, text())
		}
	}
	says("nothing is sent before you")
	if q := press(ui.Enter); !q.List {
		t.Errorf("enter does not ask for the pairs: %+v", q)
	}
	says("asking what can be measured")
	if q := press(ui.Enter); q != (ui.Request{}) {
		t.Errorf("asks twice: %+v", q)
	}
	env.State.Tick(12e9)
	says("12 s")
	if q := press(ui.Measure); q != (ui.Request{}) {
		t.Errorf("while it is asked: %+v", q)
	}
	v.SetPairs(nil, errors.New("no agent can be used: \x1b]0;boo\a"))
	says("no agent can be used: \\x1b]0;boo")
	if q := press(ui.Enter); !q.List {
		t.Errorf("no second try: %+v", q)
	}
	v.SetPairs(pairsOf(r), errors.New("n3 takes no part"))
	says("n3 takes no part")
	says("tries again")
	says("[ ]")
	can := 0
	for _, p := range v.pairs {
		if p.Waived == "" {
			can++
		}
	}
	if q := press(ui.Measure); q.Measure == nil || len(q.Measure.Pairs) != can {
		t.Errorf("nothing is marked, and p does not measure all: %+v", q)
	}
	press(ui.Down)
	first := v.Selection(env).(*probe.Pair).ID
	press(ui.Mark)
	says("1 marked")
	q := press(ui.Measure)
	if q.Measure == nil || len(q.Measure.Pairs) != 1 || q.Measure.Pairs[0] != first {
		t.Fatalf("%+v, want %s", q.Measure, first)
	}
	if q := press(ui.MarkAll, ui.Measure); len(q.Measure.Pairs) != can || !slices.Equal(q.Measure.Pairs, v.Marked()) {
		t.Errorf("all: %d pairs, want %d", len(q.Measure.Pairs), can)
	}
	if press(ui.MarkAll); len(v.Marked()) > 0 {
		t.Errorf("not all marks are gone: %v", v.Marked())
	}
	env.Filter = "copy"
	press(ui.MarkAll)
	for _, id := range v.Marked() {
		if !strings.Contains(id, "copy") {
			t.Errorf("%s is marked, and not seen", id)
		}
	}
	if len(v.Marked()) == 0 || len(v.Marked()) == can {
		t.Errorf("%d marked by the filter", len(v.Marked()))
	}
}

// While a probe runs its results are shown, and p stops it; the next one is shown as well.
func TestFollows(t *testing.T) {
	r := load(t, "bad-cable")
	v, env := NewProbe(), newEnv(told())
	v.SetPairs(pairsOf(r), nil)
	v.Key(ui.MarkAll, env)
	env.State = told(halfway(r)...)
	main := strings.Join(v.Main(env, ui.Size{W: 120, H: 40}), "\n")
	for _, want := range []string{"results, measuring", "round ", "being measured", "now", "left"} {
		if !strings.Contains(main, want) {
			t.Errorf("no %q in\n%s", want, main)
		}
	}
	if q := v.Key(ui.Measure, env); !q.Stop {
		t.Errorf("it cannot be stopped: %+v", q)
	}
	v.Key(ui.Left, env)
	if v.Main(env, ui.Size{W: 120, H: 40}); v.page != choosingPage {
		t.Error("the user is taken away from the pairs")
	}
	again := *r
	again.StartedAt = r.StartedAt.Add(time.Hour)
	env.State = told(halfway(&again)...)
	if v.Main(env, ui.Size{W: 120, H: 40}); v.page != resultsPage {
		t.Error("the next probe is not shown")
	}
}

// The results are the text of the report: each line is about the fault or the pair that it names. Pairs that need
// attention stand there alone, w tells of all.
func TestResults(t *testing.T) {
	r := load(t, "bad-cable")
	v, env := NewProbe(), newEnv(told())
	v.SetReport(r, "today.json")
	text := func() string { return strings.Join(v.Main(env, ui.Size{W: 100, H: 90}), "\n") }
	if got := text(); !strings.Contains(got, "1 slow cable: n3/mlx5_0") || !strings.Contains(got, "suspect wire of n3/mlx5_0") || strings.Contains(got, "of best") {
		t.Errorf("not the text of the report:\n%s", got)
	}
	found := func() (pairs, blames int) {
		seen := map[any]bool{}
		for _, x := range v.rows(env, 158) {
			if seen[x.value] {
				continue
			}
			seen[x.value] = true
			switch x := x.value.(type) {
			case *probe.Result:
				pairs++
				if x.Verdict != probe.Fail && !v.wide {
					t.Errorf("%s is %s", x.ID, x.Verdict)
				}
			case *probe.Blame:
				blames++
			}
		}
		return pairs, blames
	}
	if pairs, blames := found(); pairs < 10 || blames != len(r.Blame) {
		t.Errorf("lines of %d bad pairs and of %d blames", pairs, blames)
	}
	v.Key(ui.Wide, env)
	if pairs, _ := found(); pairs != len(r.Results) {
		t.Errorf("w has %d pairs, want %d", pairs, len(r.Results))
	}
	if got := strings.Join(v.Main(env, ui.Size{W: 160, H: 90}), "\n"); !strings.Contains(got, "of best") {
		t.Errorf("w does not tell more:\n%s", got)
	}
	v.Key(ui.Wide, env)
	env.Filter = "FAIL"
	var x *probe.Result
	for i, r := range v.rows(env, 158) {
		if y, ok := r.value.(*probe.Result); ok && i > 0 {
			x = y
			if y.Verdict != probe.Fail {
				t.Errorf("filtered: %s is %s", y.ID, y.Verdict)
			}
		}
	}
	v.Main(env, ui.Size{W: 160, H: 90})
	for v.Selection(env) != x {
		v.Key(ui.Down, env)
	}
	detail := strings.Join(v.Detail(env, 100), "\n")
	for _, want := range []string{x.ID, "expected: ", "way", "n "} {
		if !strings.Contains(detail, want) {
			t.Errorf("no %q in\n%s", want, detail)
		}
	}
}

func TestClick(t *testing.T) {
	r := load(t, "local-cpu")
	v, env := NewProbe(), newEnv(told())
	v.SetPairs(pairsOf(r), nil)
	lines := v.Main(env, ui.Size{W: 100, H: 30})
	y := slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, "[ ]") }) + 1
	v.lists[choosingPage].Go("group") // somewhere else
	want := v.rows(env, 100)[1].value.(*probe.Pair).ID
	if q := v.Click(10, y-1, env); q != (ui.Request{}) || len(v.Marked()) != 0 {
		t.Fatalf("the first click: %+v, %v", q, v.Marked())
	}
	if v.Click(10, y-1, env); !slices.Equal(v.Marked(), []string{want}) {
		t.Errorf("again on the same line: %v", v.Marked())
	}
	v.Click(strings.Index(lines[0], "results"), 0, env)
	if v.page != resultsPage {
		t.Error("the results are not shown")
	}
	v.Main(env, ui.Size{W: 100, H: 30})
	if v.Click(0, 0, env); v.page != choosingPage {
		t.Error("the pairs are not shown")
	}
	for _, y := range []int{-1, 29, 1 << 20} {
		v.Click(0, y, env)
	}
}

// An error of the prober, and what happens to a pair meanwhile, are seen.
func TestAgentLost(t *testing.T) {
	r := load(t, "bad-cable")
	lost := r.Results[0]
	lost.Verdict, lost.Error, lost.Bandwidth = probe.Error, "n1: the peer is gone", nil
	events := append(halfway(r), &probe.Event{Type: probe.EventError, AtNS: 9e9, Error: lost.ID + ": n1: the peer is gone"},
		&probe.Event{Type: probe.EventResult, AtNS: 9e9, Result: &lost})
	v, env := NewProbe(), newEnv(told(events...))
	main := strings.Join(v.Main(env, ui.Size{W: 120, H: 60}), "\n")
	for _, want := range []string{"errors", "the peer is gone", "ERROR", "being measured"} {
		if !strings.Contains(main, want) {
			t.Errorf("no %q in\n%s", want, main)
		}
	}
	end := *r
	end.Hosts = slices.Clone(r.Hosts)
	end.Hosts[0].Error = "it is gone"
	env.State = told(append(events, probe.EndEvent(&end))...)
	if main := strings.Join(v.Main(env, ui.Size{W: 120, H: 60}), "\n"); !strings.Contains(main, end.Hosts[0].Name+": it is gone") || strings.Contains(main, "being measured") {
		t.Errorf("after the end:\n%s", main)
	}
}

func TestUnable(t *testing.T) {
	v, env := NewProbe(), newEnv(told())
	v.SetUnable("a fixture is no running host")
	if q := v.Key(ui.Enter, env); q != (ui.Request{}) {
		t.Errorf("%+v", q)
	}
	v.Key(ui.Measure, env)
	if main := strings.Join(v.Main(env, ui.Size{W: 80, H: 20}), "\n"); !strings.Contains(main, "a fixture is no running host") || !strings.Contains(env.Shared.Message, "a fixture") {
		t.Errorf("%q, %s", env.Shared.Message, main)
	}
}

var _ ui.View = (*ProbeView)(nil)

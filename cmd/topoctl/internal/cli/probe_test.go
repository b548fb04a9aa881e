package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/probe/show"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/measure"
)

// The exit code says what a report's verdicts come to.
func TestProbeOutcome(t *testing.T) {
	inconclusive := func(codes ...string) func(*probe.Report) {
		return func(r *probe.Report) {
			x := probe.Result{Verdict: probe.Inconclusive}
			for _, c := range codes {
				x.Reasons = append(x.Reasons, probe.Reason{Code: c})
			}
			r.Results = append(r.Results, x)
			r.Summary.Inconclusive++
		}
	}
	for name, tt := range map[string]struct {
		change func(*probe.Report)
		code   int
	}{
		"all pass":               {func(r *probe.Report) { r.Summary.Pass = 3 }, 0},
		"warnings":               {func(r *probe.Report) { r.Summary.Warn = 3 }, 0},
		"waived beside one":      {func(r *probe.Report) { r.Summary.Pass, r.Summary.Waived = 1, 3 }, 0},
		"all waived":             {func(r *probe.Report) { r.Summary.Waived = 3 }, 3},
		"no pair":                {func(*probe.Report) {}, 3},
		"a port is down":         {func(r *probe.Report) { r.Summary.Pass, r.Notes = 3, []string{probe.PartialNote + "n1/x is down"} }, 3},
		"a note":                 {func(r *probe.Report) { r.Summary.Pass, r.Notes = 3, []string{"n1/x is odd"} }, 0},
		"a failure, a port down": {func(r *probe.Report) { r.Summary.Fail, r.Notes = 3, []string{probe.PartialNote + "n1/x is down"} }, 1},
		"nothing is expected":    {inconclusive(probe.CodeNoExpectation), 0},
		"too few samples":        {inconclusive(probe.CodeNoExpectation, probe.CodeWideInterval), 3},
		"not measured":           {inconclusive(probe.CodeNotMeasured), 3},
		"faster than possible":   {inconclusive(probe.CodeTooFast), 3},
		"an error":               {func(r *probe.Report) { r.Summary.Error = 1 }, 3},
		"no time":                {func(r *probe.Report) { r.Complete = false }, 3},
		"a host took no part":    {func(r *probe.Report) { r.Hosts = []probe.Host{{}, {Error: "gone"}} }, 3},
		"a failure":              {func(r *probe.Report) { r.Summary.Fail = 1 }, 1},
		"blame":                  {func(r *probe.Report) { r.Blame = []probe.Blame{{}} }, 1},
		"a failure and an error": {func(r *probe.Report) { r.Summary.Fail, r.Summary.Error, r.Complete = 1, 1, false }, 1},
	} {
		r := &probe.Report{Complete: true}
		tt.change(r)
		if got := exitCode(outcome(r)); got != tt.code {
			t.Errorf("%s: %d, want %d", name, got, tt.code)
		}
	}
}

// What could not be written is told also where the user stopped the run, and that he
// did is told once.
func TestUnlessCanceled(t *testing.T) {
	full := errors.New("no space left")
	for _, err := range []error{nil, context.Canceled, errors.Join(context.Canceled, fmt.Errorf("x: %w", context.Canceled))} {
		if got := unlessCanceled(err); got != nil {
			t.Errorf("%v leaves %v", err, got)
		}
	}
	if got := unlessCanceled(errors.Join(context.Canceled, full)); !errors.Is(got, full) || errors.Is(got, context.Canceled) {
		t.Error(got)
	}
}

// A terminal has one line that is drawn over and over, a file a line now and then.
func TestProbeProgress(t *testing.T) {
	pairs := []probe.Pair{{From: probe.End{Host: "n1", Name: "eth0"}, To: probe.End{Host: "n2", Name: "eth0"}}}
	p := measure.Progress{Round: 2, Rounds: 5, Done: 3, Total: 9, Pairs: pairs, Bytes: 3 << 30, Left: 90 * time.Second}
	for _, terminal := range []bool{true, false} {
		f := newStreams()
		f.ErrTTY, f.Width = terminal, 80
		now := time.Duration(0)
		o := &measuring{Host: &Host{Streams: f.Streams}}
		b := progressBar{o: o, status: status{in: o.Host}, elapsed: func() time.Duration { return now }}
		for range 300 {
			b.show(p)
			now += 100 * time.Millisecond
		}
		p.Again = true
		b.show(p)
		b.end()
		text := f.Stderr.String()
		lines := strings.Split(strings.TrimSuffix(text, clearLine), clearLine)
		if !terminal {
			lines = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		}
		want := map[bool]int{true: 301, false: 3}[terminal]
		if len(lines) != want || !strings.Contains(text, "round 2/5, 3 of 9 pairs, 3 GiB moved, 1 min 30 s left: n1/eth0 > n2/eth0") || terminal != strings.Contains(text, clearLine) {
			t.Errorf("terminal %v: %d lines, want %d: %q", terminal, len(lines), want, lines[0])
		}
		if last := lines[len(lines)-1]; !strings.Contains(last, "again, alone: round") || terminal && len([]rune(last)) > 80 {
			t.Errorf("terminal %v: %q", terminal, last)
		}
		p.Again = false
	}
}

// A file gets no colours, whatever the terminal shows.
func TestProbeShowToFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "table")
	for _, format := range []string{formatTable, formatWide} {
		f := newStreams()
		f.OutTTY = true
		if code := runFake(t.Context(), f, "probe", "show", "../../../../probe/testdata/bad-cable.probe.json", "-o", format, "--out-file", name); code != exitBad {
			t.Fatalf("exit code %d: %s", code, f.Stderr.String())
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if f.Stdout.Len() > 0 || strings.Contains(string(data), "\x1b") || !strings.Contains(string(data), "FAIL") {
			t.Errorf("%s: %q, %q", format, f.Stdout.String(), data)
		}
		if blame := f.Stderr.String() + string(data); !strings.Contains(blame, "suspect wire of n3/mlx5_0") {
			t.Errorf("%s: nobody is told who is to blame", format)
		}
		if want := "topoctl: 1 slow cable: n3/mlx5_0 sends and receives 97.3 to 97.9 Gb/s, the others 389 to 394 Gb/s; the report is in " + name + "\n"; f.Stderr.String() != want {
			t.Errorf("%s: the exit code is not explained: %q", format, f.Stderr.String())
		}
	}
}

// The files that a probe writes beside its output are obeyed by no terminal.
func TestProbeFilesAreSafe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "report.json")
	o := measuring{Host: &Host{Streams: newStreams().Streams, Format: formatJSONL}}
	o.flags.report = name
	r := &probe.Report{Mode: "local", Complete: true, Notes: []string{"a note of " + Nasty}}
	if err := o.answer(t.Context(), r, nil); !errors.Is(err, errPartial) {
		t.Errorf("no pair was measured: %v", err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	checkSafe(t, "--report", data, true)
	var lines bytes.Buffer
	out := probeOutputs{sinks: []*sink{{name: "--events", w: &lines}}}
	out.event(&probe.Event{Schema: probe.EventSchema, Type: probe.EventError, Error: "gone: " + Nasty})
	if err := out.close(); err != nil {
		t.Fatal(err)
	}
	checkSafe(t, "--events", lines.Bytes(), true)
}

// Where a run is, in a line.
func TestProgressLine(t *testing.T) {
	pairs := func(names ...string) (out []probe.Pair) {
		for _, n := range names {
			from, to, _ := strings.Cut(n, " > ")
			out = append(out, probe.Pair{From: probe.End{Name: from}, To: probe.End{Name: to}})
		}
		return out
	}
	for _, tt := range []struct {
		p     measure.Progress
		width int
		ascii bool
		want  string
	}{
		{measure.Progress{Round: 9, Rounds: 16, Done: 32, Total: 64, Pairs: pairs("gpu:0 > gpu:1", "x", "y"), Left: 20 * time.Second}, 0, false,
			"round 9/16, 32 of 64 pairs, 20 s left: gpu:0 > gpu:1 and 2 more"},
		{measure.Progress{Round: 1, Rounds: 1, Total: 1, Pairs: pairs("a > b"), Left: 185 * time.Second}, 0, false, "round 1/1, 0 of 1 pair, 3 min 5 s left: a > b"},
		{measure.Progress{Round: 1, Rounds: 1, Total: 1, Pairs: pairs("a > b"), Left: 0}, 0, false, "round 1/1, 0 of 1 pair: a > b"},
		{measure.Progress{Round: 17, Rounds: 16, Done: 64, Total: 64}, 0, false, "round 17/17, 64 of 64 pairs"},
		{measure.Progress{Round: 1, Rounds: 1, Total: 1, Pairs: pairs("\x1b[2J > b\u202e")}, 0, false, `round 1/1, 0 of 1 pair: \x1b[2J > b\u202e`},
		{measure.Progress{Round: 9, Rounds: 16, Done: 32, Total: 64, Pairs: pairs("gpu:0 > gpu:1"), Left: time.Hour}, 30, false, "round 9/16, 32 of 64 pairs, 1…"},
		{measure.Progress{Round: 9, Rounds: 16, Done: 32, Total: 64, Pairs: pairs("gpu:0 > gpu:1"), Left: 2 * time.Hour}, 30, true, "round 9/16, 32 of 64 pairs, 2~"},
	} {
		if got := progressLine(&tt.p, tt.width, show.Options{Look: report.Look{ASCII: tt.ascii}}); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

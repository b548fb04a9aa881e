package state_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/measure"
	"github.com/topoctl/topoctl/probe/plan"
	"github.com/topoctl/topoctl/tui/internal/state"
)

// fabric is a prober of hosts with one port each, of which one is slow and one does not
// answer.
type fabric struct {
	clock time.Duration
	hosts []string
	slow  string
	mute  string
}

func (f *fabric) Pairs(context.Context) (*plan.Pairs, error) {
	out := &plan.Pairs{Mode: "fabric"}
	wire := topo.Rate(50e9)
	for _, h := range f.hosts {
		out.Hosts = append(out.Hosts, probe.Host{Name: h})
		out.Devices = append(out.Devices, probe.Device{Key: h, Kind: "host", Name: h})
		for _, d := range []string{"down", "up"} {
			out.Links = append(out.Links, probe.Link{Key: probe.Key(h, "port:eth0", d), Host: h, Link: "port:eth0", Kind: topo.LinkPort, Direction: d,
				Name: "wire of " + h, On: []string{h}, BytesPerSec: &wire, Basis: topo.BasisRead})
		}
	}
	end := func(h string) probe.End { return probe.End{Host: h, Node: "net:eth0", Name: "eth0", Location: "cpu:0"} }
	for _, a := range f.hosts {
		for _, b := range f.hosts {
			if a != b {
				out.Pairs = append(out.Pairs, probe.Pair{ID: probe.PairID(probe.Port, end(a), end(b), probe.TCP, ""), Kind: probe.Port, Transport: probe.TCP,
					From: end(a), To: end(b), PathKnown: true, Path: []probe.LinkKey{probe.Key(a, "port:eth0", "down"), probe.Key(b, "port:eth0", "up")}, Group: "all",
					Expected: probe.Expected{BytesPerSec: &wire, Basis: topo.BasisRead, Limit: probe.Key(a, "port:eth0", "down"), Why: "wire"}})
			}
		}
	}
	return out, nil
}

func (*fabric) Hosts() []probe.Host { return nil }

// Round takes two seconds.
func (f *fabric) Round(_ context.Context, pairs []probe.Pair, spec probe.Spec, tell func(int, probe.Sample)) []probe.Measurement {
	out := make([]probe.Measurement, len(pairs))
	for range 5 {
		f.clock += 400 * time.Millisecond
		for i := range pairs {
			tell(i, probe.Sample{SizeBytes: spec.SizesBytes[0], BytesPerSec: 48e9})
		}
	}
	for i := range pairs {
		rate := int64(48e9)
		switch h := []string{pairs[i].From.Host, pairs[i].To.Host}; {
		case h[0] == f.mute || h[1] == f.mute:
			out[i].Err = errors.New("it does not answer")
			continue
		case h[0] == f.slow || h[1] == f.slow:
			rate = 20e9
		}
		out[i].Bandwidth = []probe.Bandwidth{probe.NewBandwidth(spec.SizesBytes[0], []int64{rate, rate, rate, rate, rate}, 1<<30, 2e9, probe.StoppedCI)}
	}
	return out
}

// events are those of a run, and its report.
func (f *fabric) events(t *testing.T) ([]*probe.Event, *probe.Report) {
	t.Helper()
	spec := probe.Spec{SampleTime: 400 * time.Millisecond, MinSamples: 5, MaxSamples: 10, CI: 0.025, SizesBytes: []int64{1 << 20}}
	pairs, err := f.Pairs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(pairs, plan.Options{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	var out []*probe.Event
	r, err := measure.Run(t.Context(), f, measure.Options{Plan: p, Elapsed: func() time.Duration { return f.clock }, Event: func(e *probe.Event) { out = append(out, e) }})
	if err != nil {
		t.Fatal(err)
	}
	return out, r
}

func tell(s *state.State, e *probe.Event) {
	s.Apply(&record.Record{AtNS: 100*second + e.AtNS, Source: record.SourceProbe, Probe: e})
}

// After every event the report is what the events so far say, as they are read from a file.
func TestProbeReportGrows(t *testing.T) {
	f := &fabric{hosts: []string{"n1", "n2", "n4", "n10"}, slow: "n2", mute: "n4"}
	events, whole := f.events(t)
	s := state.New(state.Options{})
	var file bytes.Buffer
	retests := 0
	for i, e := range events {
		data, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		file.Write(data)
		tell(s, e)
		if e.Type == probe.EventRetest {
			retests++
			i := slices.IndexFunc(s.Probe.Report.Results, func(x probe.Result) bool { return x.ID == e.Retest.Of })
			if n := len(s.Probe.Report.Results[i].Retests); n == 0 {
				t.Fatal("a retest is not in the report")
			}
			continue // a file's reader takes them from the result that follows
		}
		if e.Type != probe.EventEnd && i%4 > 0 {
			continue
		}
		want, err := probe.ReadEvents(bytes.NewReader(file.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		got := s.Probe.Report
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.SortSlices(func(a, b string) bool { return a < b }),
			cmpopts.SortSlices(func(a, b probe.Result) bool { return a.ID < b.ID }), cmpopts.IgnoreFields(probe.Report{}, "Schema", "Notes"), cmpopts.IgnoreFields(probe.Measurement{}, "Err"),
			cmp.FilterPath(func(p cmp.Path) bool { return retests > 0 && p.Last().String() == ".Retests" }, cmp.Ignore())); diff != "" {
			t.Fatalf("after event %d, %s (-read +state):\n%s", i, e.Type, diff)
		}
	}
	p := s.Probe
	if retests == 0 || len(p.Report.Blame) == 0 {
		t.Fatalf("%d retests, blame %+v: the test looks at too little", retests, p.Report.Blame)
	}
	if p.Running || len(p.Active) > 0 || p.Done != len(whole.Results) || len(p.Errors) != 6 || p.RemainingNS != 0 {
		t.Errorf("at the end: running %v, active %v, %d done, errors %q, %d ns left", p.Running, p.Active, p.Done, p.Errors, p.RemainingNS)
	}
	if diff := cmp.Diff(whole.Summary, p.Report.Summary); diff != "" {
		t.Error(diff)
	}
}

func TestProbeProgress(t *testing.T) {
	f := &fabric{hosts: []string{"n1", "n2", "n3", "n4"}, slow: "n3"}
	events, whole := f.events(t)
	s := state.New(state.Options{})
	round, retested := 0, false
	for _, e := range events {
		tell(s, e)
		p := s.Probe
		switch e.Type {
		case probe.EventStart:
			if !p.Running || p.BeganNS != 100*second || p.Done != 0 {
				t.Fatalf("at the start: %+v", p)
			}
		case probe.EventRound:
			round++
			planned := e.Round.Round <= whole.Plan.Rounds
			want := 2 * second * int64(whole.Plan.Rounds-round+1)
			if round == 1 {
				want = whole.Plan.TimeNS
			}
			if !planned {
				want, retested = 0, true
			}
			if p.Round != e.Round.Round || p.Retest == planned || p.RemainingNS != want || len(p.Active) != len(e.Round.Pairs) || len(p.Samples) > 0 {
				t.Fatalf("round %d of %d: retest %v, left %d, want %d; %d samples", p.Round, whole.Plan.Rounds, p.Retest, p.RemainingNS, want, len(p.Samples))
			}
		case probe.EventSample:
			if p.Samples[e.Sample.Pair] != e.Sample.Sample {
				t.Fatalf("samples %v", p.Samples)
			}
		}
	}
	if !retested {
		t.Error("nothing was measured again: the test looks at too little")
	}
	if want := 2 * second; round != whole.Plan.Rounds+len(retests(whole)) || s.Now < 100*second+want {
		t.Errorf("%d rounds", round)
	}
}

func retests(r *probe.Report) (out []probe.Retest) {
	for i := range r.Results {
		out = append(out, r.Results[i].Retests...)
	}
	return out
}

// Time runs down between events.
func TestProbeTimeLeft(t *testing.T) {
	s := state.New(state.Options{})
	tell(s, probe.StartEvent(&probe.Report{Plan: probe.Plan{Rounds: 4, Pairs: 4, TimeNS: 8 * second}}))
	if s.Probe.RemainingNS != 8*second {
		t.Errorf("as planned: %d", s.Probe.RemainingNS)
	}
	at := func(sec int64, n int) {
		tell(s, &probe.Event{Type: probe.EventRound, AtNS: sec * second, Round: &probe.RoundEvent{Round: n, Rounds: 4, Pairs: []string{fmt.Sprint(n)}}})
	}
	at(0, 1)
	s.Tick(101 * second)
	if s.Probe.RemainingNS != 7*second {
		t.Errorf("a second later: %d", s.Probe.RemainingNS)
	}
	at(3, 2)
	if s.Probe.RemainingNS != 9*second {
		t.Errorf("after a round of 3 s: %d", s.Probe.RemainingNS)
	}
	at(8, 3)
	if s.Probe.RemainingNS != 8*second {
		t.Errorf("after another of 5 s: %d", s.Probe.RemainingNS)
	}
	s.Tick(200 * second)
	if s.Probe.RemainingNS != 0 {
		t.Errorf("long after: %d", s.Probe.RemainingNS)
	}
	at(101, 5) // of a run that goes on with an earlier one: a round of the plan under another number
	if s.Probe.Retest {
		t.Error("pairs that were never measured are measured again")
	}
}

// A second run replaces the first; a prober that fails leaves a probe that does not run.
func TestProbeAgain(t *testing.T) {
	s := state.New(state.Options{})
	result := &probe.Event{Type: probe.EventResult, Result: &probe.Result{Pair: probe.Pair{ID: "a"}, Round: 1, Verdict: probe.Fail}}
	tell(s, result)
	if s.Probe != nil {
		t.Fatal("a result without a start makes a probe")
	}
	tell(s, probe.StartEvent(&probe.Report{Plan: probe.Plan{Pairs: 1}}))
	tell(s, result)
	if s.Probe.Done != 1 || s.Probe.Report.Summary.Fail != 1 {
		t.Fatalf("%+v", s.Probe)
	}
	tell(s, probe.StartEvent(&probe.Report{Mode: "local", Results: []probe.Result{*result.Result}}))
	if p := s.Probe; p.Done != 0 || len(p.Report.Results) > 0 || p.Report.Summary != (probe.Summary{}) || p.Report.Mode != "local" {
		t.Fatalf("the second run begins with %+v", p.Report)
	}
	s.Apply(&record.Record{AtNS: 300 * second, Source: record.SourceProbe, State: &record.SourceState{Status: record.StatusFailed, Detail: "no agent answers"}})
	if p := s.Probe; p.Running || len(p.Errors) != 1 || p.Errors[0] != "no agent answers" {
		t.Errorf("%+v", p)
	}
}

// A frozen probe stays as it was while results change, are retested and sorted.
func TestFrozenProbe(t *testing.T) {
	at := func(x probe.Verdict) (*state.State, []*probe.Event) {
		s := state.New(state.Options{})
		result := func(id string, v probe.Verdict) *probe.Event {
			return &probe.Event{Type: probe.EventResult, Result: &probe.Result{Pair: probe.Pair{ID: id}, Round: 1, Verdict: v}}
		}
		tell(s, probe.StartEvent(&probe.Report{}))
		tell(s, &probe.Event{Type: probe.EventRound, Round: &probe.RoundEvent{Round: 1, Rounds: 1, Pairs: []string{"b", "a"}}})
		tell(s, &probe.Event{Type: probe.EventSample, Sample: &probe.SampleEvent{Pair: "a"}})
		tell(s, result("b", x))
		return s, []*probe.Event{result("b", probe.Fail), result("a", probe.Warn), {Type: probe.EventRetest, Retest: &probe.RetestEvent{Of: "b"}},
			{Type: probe.EventSample, Sample: &probe.SampleEvent{Pair: "a", Sample: probe.Sample{BytesPerSec: 5}}}, {Type: probe.EventError, Error: "x"},
			{Type: probe.EventEnd, End: &probe.Outcome{}}}
	}
	s, more := at(probe.Pass)
	want, _ := at(probe.Pass)
	frozen := s.Clone()
	for _, e := range more {
		tell(s, e)
		if d := cmp.Diff(want.Probe, frozen.Probe, cmp.AllowUnexported(state.Probe{}), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("after %s of the original (-want +clone):\n%s", e.Type, d)
		}
	}
	if r := s.Probe.Report; len(r.Results) != 2 || r.Results[0].ID != "a" || r.Summary.Fail != 1 || r.Summary.Warn != 1 {
		t.Errorf("the original: %+v", r)
	}
}

// What a probe tells is bounded.
func TestProbeIsBounded(t *testing.T) {
	s := state.New(state.Options{})
	tell(s, probe.StartEvent(&probe.Report{}))
	for i := range state.MaxResults + 500 {
		tell(s, &probe.Event{Type: probe.EventResult, Result: &probe.Result{Pair: probe.Pair{ID: fmt.Sprint(i * 7919 % 40009)}, Verdict: probe.Pass}})
		tell(s, &probe.Event{Type: probe.EventError, Error: fmt.Sprint("error ", i)})
		tell(s, &probe.Event{Type: probe.EventRetest, Retest: &probe.RetestEvent{Of: "0"}})
		tell(s, &probe.Event{Type: probe.EventSample, Sample: &probe.SampleEvent{Pair: fmt.Sprint(i)}})
	}
	p := s.Probe
	if len(p.Report.Results) != state.MaxResults || p.Omitted != 500 || p.Report.Summary.Pass != state.MaxResults {
		t.Errorf("%d results, %d omitted, %d passed", len(p.Report.Results), p.Omitted, p.Report.Summary.Pass)
	}
	if len(p.Errors) != state.MaxErrors || p.Errors[state.MaxErrors-1] != fmt.Sprint("error ", state.MaxResults+499) {
		t.Errorf("%d errors", len(p.Errors))
	}
	if n := len(p.Report.Results[0].Retests); n > 100 || n == 0 || len(p.Samples) > 0 {
		t.Errorf("%d retests of one pair, samples of %d pairs that are not being measured", n, len(p.Samples))
	}
}

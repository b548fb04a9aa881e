package measure_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/measure"
	"github.com/topoctl/topoctl/probe/plan"
	"github.com/topoctl/topoctl/testkit/schematest"
)

// world is a fabric of hosts with one port each on one switch, a prober that plays it,
// and both clocks.
type world struct {
	hosts []string
	slow  map[string]float64 // by host: the part of its rate that its port carries
	clock time.Duration      // since boot
	wall  time.Time
	// rounds are the IDs that were measured, by call of Round.
	rounds [][]string
	// before is called when a round begins, and may change what the prober answers.
	before func(round int, ids []string)
	answer func(id string, m *probe.Measurement)
}

const wire = topo.Rate(50e9)

func newWorld(hosts ...string) *world {
	return &world{hosts: hosts, slow: map[string]float64{}, clock: 1000 * time.Hour, wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

// pairs are all ordered pairs of hosts, over the wires of both.
func (w *world) pairs() *plan.Pairs {
	out := &plan.Pairs{Mode: "fabric"}
	rate := wire
	for _, h := range w.hosts {
		out.Hosts = append(out.Hosts, probe.Host{Name: h, Fingerprint: "print of " + h})
		out.Devices = append(out.Devices, probe.Device{Key: h, Kind: "host", Name: h})
		for _, d := range []string{"down", "up"} {
			out.Links = append(out.Links, probe.Link{Key: probe.Key(h, "port:eth0", d), Host: h, Link: "port:eth0", Kind: topo.LinkPort, Direction: d,
				Name: "wire of " + h + "/eth0", On: []string{h}, BytesPerSec: &rate, Basis: topo.BasisRead})
		}
	}
	end := func(h string) probe.End { return probe.End{Host: h, Node: "net:eth0", Name: "eth0", Location: "cpu:0"} }
	for _, a := range w.hosts {
		for _, b := range w.hosts {
			if a == b {
				continue
			}
			out.Pairs = append(out.Pairs, probe.Pair{ID: probe.PairID(probe.Port, end(a), end(b), probe.TCP, ""), Kind: probe.Port, Transport: probe.TCP,
				From: end(a), To: end(b), PathKnown: true, Path: []probe.LinkKey{probe.Key(a, "port:eth0", "down"), probe.Key(b, "port:eth0", "up")}, Group: "all",
				Expected: probe.Expected{BytesPerSec: &rate, Basis: topo.BasisRead, Limit: probe.Key(a, "port:eth0", "down"), Why: "wire"}})
		}
	}
	return out
}

func (w *world) Pairs(context.Context) (*plan.Pairs, error) { return w.pairs(), nil }

func (*world) Hosts() []probe.Host { return nil }

func (w *world) plan(t *testing.T) *plan.Plan {
	t.Helper()
	p, err := plan.Make(w.pairs(), plan.Options{Spec: spec()})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func spec() probe.Spec {
	return probe.Spec{SampleTime: 100 * time.Millisecond, MinSamples: 5, MaxSamples: 10, CI: 0.025, SizesBytes: []int64{1 << 20}, PairTime: 10 * time.Second}
}

func (w *world) options(t *testing.T) measure.Options {
	return measure.Options{Plan: w.plan(t), Rules: probe.DefaultRules(),
		Now: func() time.Time { return w.wall }, Elapsed: func() time.Duration { return w.clock }}
}

// Round takes a second, and the wall clock goes back an hour in it.
func (w *world) Round(ctx context.Context, pairs []probe.Pair, spec probe.Spec, tell func(int, probe.Sample)) []probe.Measurement {
	var ids []string
	for i := range pairs {
		ids = append(ids, pairs[i].ID)
	}
	w.rounds = append(w.rounds, ids)
	if w.before != nil {
		w.before(len(w.rounds), ids)
	}
	w.wall = w.wall.Add(-time.Hour)
	out := make([]probe.Measurement, len(pairs))
	for i := range pairs {
		w.clock += time.Second / time.Duration(len(pairs))
		out[i] = w.one(ctx, &pairs[i], spec, func(s probe.Sample) {
			if tell != nil {
				tell(i, s)
			}
		})
		if w.answer != nil {
			w.answer(pairs[i].ID, &out[i])
		}
	}
	return out
}

func (w *world) one(ctx context.Context, p *probe.Pair, spec probe.Spec, tell func(probe.Sample)) probe.Measurement {
	factor := 0.97
	for _, h := range []string{p.From.Host, p.To.Host} {
		if f, ok := w.slow[h]; ok {
			factor = min(factor, f)
		}
	}
	rate := int64(factor * float64(wire))
	m := probe.Measurement{Bandwidth: []probe.Bandwidth{}, Links: []probe.LinkState{}}
	var samples []int64
	for k := range spec.MinSamples {
		if ctx.Err() != nil {
			m.Err = fmt.Errorf("probe: %s: %w", p.ID, context.Cause(ctx))
			break
		}
		samples = append(samples, rate+int64(k)*1e6)
		tell(probe.Sample{SizeBytes: spec.SizesBytes[0], BytesPerSec: samples[k]})
	}
	stopped := probe.StoppedCI
	if m.Err != nil {
		stopped = probe.StoppedInterrupted
	}
	if len(samples) > 0 {
		m.Bandwidth = append(m.Bandwidth, probe.NewBandwidth(spec.SizesBytes[0], samples, 1<<30, 5e8, stopped))
	}
	return m
}

// events collects what a run tells, through its text.
type events struct {
	text strings.Builder
	kind []probe.EventType
}

func (e *events) hear(x *probe.Event) {
	line, err := x.Encode()
	if err != nil {
		panic(err)
	}
	e.kind = append(e.kind, x.Type)
	e.text.Write(line)
}

// document is a report as it is written and read again.
func document(t *testing.T, r *probe.Report) *probe.Report {
	t.Helper()
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := probe.Decode(data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return out
}

// valid holds a run's report and its events against the published schemas.
func valid(t *testing.T, r *probe.Report, events string) {
	t.Helper()
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := schematest.Open(t, "../schema/probe.v1.schema.json").Validate(data); err != nil {
		t.Error(err)
	}
	schema := schematest.Open(t, "../schema/probe-event.v1.schema.json")
	for line := range strings.Lines(events) {
		if err := schema.Validate([]byte(line)); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
}

func id(a, b string) string { return "port " + a + "/eth0>" + b + "/eth0 tcp" }

func result(t *testing.T, r *probe.Report, id string) *probe.Result {
	t.Helper()
	i := slices.IndexFunc(r.Results, func(x probe.Result) bool { return x.ID == id })
	if i < 0 {
		t.Fatalf("no result %q", id)
	}
	return &r.Results[i]
}

// Everything is measured once, judged, and told of; the wall clock may do what it wants.
func TestRun(t *testing.T) {
	w := newWorld("n1", "n2", "n3", "n4")
	o := w.options(t)
	var heard events
	var progress []measure.Progress
	o.Event, o.Progress = heard.hear, func(p measure.Progress) { progress = append(progress, p) }
	r, err := measure.Run(t.Context(), w, o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Complete || r.Summary.Pass != 12 || len(r.Results) != 12 || len(r.Blame) > 0 {
		t.Errorf("complete %v, %+v, %d results, blame %v", r.Complete, r.Summary, len(r.Results), r.Blame)
	}
	if want := time.Duration(len(w.rounds)) * time.Second; time.Duration(r.DurationNS) != want || !r.StartedAt.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("%d rounds took %v from %v", len(w.rounds), time.Duration(r.DurationNS), r.StartedAt)
	}
	for i := range r.Results {
		x := &r.Results[i]
		if x.Round < 1 || !slices.Contains(w.rounds[x.Round-1], x.ID) {
			t.Errorf("%s: round %d", x.ID, x.Round)
		}
	}
	if last := progress[len(progress)-1]; last.Round != last.Rounds || last.Rounds != len(w.rounds) || last.Done != 12-len(w.rounds[len(w.rounds)-1]) || last.Total != 12 || last.Left > time.Second {
		t.Errorf("%+v", last)
	}
	if first := progress[0]; first.Round != 1 || first.Done != 0 || len(first.Pairs) != len(w.rounds[0]) {
		t.Errorf("%+v", first)
	}
	if n := len(heard.kind); heard.kind[0] != probe.EventStart || heard.kind[1] != probe.EventRound || heard.kind[2] != probe.EventSample || heard.kind[n-1] != probe.EventEnd {
		t.Errorf("%v", heard.kind)
	}
	valid(t, r, heard.text.String())
	told, err := probe.ReadEvents(strings.NewReader(heard.text.String()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(document(t, r), told, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(probe.Measurement{}, "Err")); diff != "" {
		t.Errorf("the events tell another story (-report +events):\n%s", diff)
	}
}

// What goes wrong with one pair costs that pair only.
func TestPairsFail(t *testing.T) {
	bad := id("n1", "n2")
	w := newWorld("n1", "n2", "n3")
	w.answer = func(id string, m *probe.Measurement) {
		if id == bad {
			m.Err = pkgerr.New("probe", bad+": the peer is gone")
		}
	}
	var heard events
	o := w.options(t)
	o.Event = heard.hear
	r, err := measure.Run(t.Context(), w, o)
	if err != nil {
		t.Fatal(err)
	}
	if x := result(t, r, bad); x.Verdict != probe.Error || x.Error == "" || r.Summary.Error != 1 || r.Summary.Pass != 5 || !r.Complete {
		t.Errorf("%s %q, %+v", x.Verdict, x.Error, r.Summary)
	}
	valid(t, r, heard.text.String())
	if x := result(t, r, bad); strings.HasPrefix(x.Error, "probe: ") || strings.Contains(x.Error, bad) {
		t.Errorf("the pair is in its error: %q", x.Error)
	}
	if !slices.Contains(heard.kind, probe.EventError) {
		t.Error("nobody was told")
	}
	document(t, r)
}

// Stopped at any point, a run gives all that was measured until then; resumed, it ends
// as if nothing had happened.
func TestInterruptAndResume(t *testing.T) {
	whole := newWorld("n1", "n2", "n3", "n4")
	whole.slow["n3"] = 0.4
	want, err := measure.Run(t.Context(), whole, whole.options(t))
	if err != nil {
		t.Fatal(err)
	}
	planned := len(whole.plan(t).Rounds)
	for point := range len(whole.rounds) {
		for after := range len(whole.rounds[point]) { // pairs of the round that are measured before
			w := newWorld("n1", "n2", "n3", "n4")
			w.slow["n3"] = 0.4
			ctx, stop := context.WithCancelCause(t.Context())
			seen := 0
			w.before = func(int, []string) { seen = 0 }
			w.answer = func(string, *probe.Measurement) {
				if seen++; seen > after && len(w.rounds) == point+1 {
					stop(errors.New("the terminal was closed"))
				}
			}
			if after == 0 {
				w.before = func(round int, _ []string) {
					if seen = 0; round == point+1 {
						stop(errors.New("the terminal was closed"))
					}
				}
			}
			var heard events
			o := w.options(t)
			o.Event = heard.hear
			part, err := measure.Run(ctx, w, o)
			stop(nil)
			if !errors.Is(err, context.Canceled) || part.Complete {
				t.Fatalf("stopped in round %d: %v, complete %v", point+1, err, part.Complete)
			}
			measured := 0
			for i := range part.Results {
				if x := &part.Results[i]; x.Round > 0 {
					measured++
					if x.Verdict == probe.Error {
						t.Errorf("stopped in round %d: %s: %s", point+1, x.ID, x.Error)
					}
				}
			}
			if least := 2*min(point, planned) + after; point < planned && measured < least {
				t.Errorf("stopped in round %d: %d pairs are left of %d", point+1, measured, least)
			}
			told, err := probe.ReadEvents(strings.NewReader(heard.text.String()))
			if err != nil {
				t.Fatal(err)
			}
			for _, from := range []*probe.Report{document(t, part), told} {
				again := newWorld("n1", "n2", "n3", "n4")
				again.slow["n3"] = 0.4
				o := again.options(t)
				o.Resume = from
				got, err := measure.Run(t.Context(), again, o)
				if err != nil {
					t.Fatal(err)
				}
				if len(again.rounds) > len(whole.rounds)-point+1 {
					t.Errorf("stopped in round %d, resumed: %d rounds of %d", point+1, len(again.rounds), len(whole.rounds))
				}
				diff := cmp.Diff(document(t, want), document(t, got), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(probe.Report{}, "DurationNS", "Notes"),
					cmpopts.IgnoreFields(probe.Result{}, "Round"))
				if diff != "" {
					t.Errorf("stopped in round %d after %d pairs, resumed (-whole +resumed):\n%s", point+1, after, diff)
				}
			}
		}
	}
}

// What does not hold any more is measured again, and said.
func TestResumeRefuses(t *testing.T) {
	w := newWorld("n1", "n2", "n3")
	old, err := measure.Run(t.Context(), w, w.options(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*probe.Report)
		again  int // pairs
		note   string
	}{
		"nothing":         {func(*probe.Report) {}, 0, "6 of 6 pairs are from the report"},
		"another spec":    {func(r *probe.Report) { r.Spec.SizesBytes = []int64{4096} }, 6, "measured with other settings"},
		"other rules":     {func(r *probe.Report) { r.Rules.FailUnder = 0.5 }, 0, "6 of 6 pairs"},
		"another plan":    {func(r *probe.Report) { r.Plan.Schedule = "serial" }, 6, "another schedule"},
		"another host":    {func(r *probe.Report) { r.Hosts[1].Fingerprint = "new" }, 4, "the topology of n2 has changed: 4 of its pairs"},
		"an unknown host": {func(r *probe.Report) { r.Hosts[1].Fingerprint = "" }, 4, "the topology of n2 has changed"},
		"another way":     {func(r *probe.Report) { r.Results[0].Path = r.Results[0].Path[:1] }, 1, "1 pairs take another path"},
		"an error":        {func(r *probe.Report) { r.Results[0].Error = "x" }, 1, "5 of 6 pairs"},
		"cut off":         {func(r *probe.Report) { r.Results[0].Bandwidth[0].Stopped = probe.StoppedInterrupted }, 1, "5 of 6 pairs"},
		"other pairs":     {func(r *probe.Report) { r.Results[0].ID = "x" }, 1, "5 of 6 pairs"},
	} {
		t.Run(name, func(t *testing.T) {
			from := document(t, old)
			tt.change(from)
			again := newWorld("n1", "n2", "n3")
			o := again.options(t)
			o.Resume = from
			r, err := measure.Run(t.Context(), again, o)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(slices.Concat(again.rounds...)); n != tt.again || r.Summary.Pass != 6 {
				t.Errorf("%d pairs are measured again, want %d; %+v", n, tt.again, r.Summary)
			}
			if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, tt.note) }) {
				t.Errorf("notes %q, want %q", r.Notes, tt.note)
			}
		})
	}
}

// A round that would end too late does not begin.
func TestMaxDuration(t *testing.T) {
	w := newWorld("n1", "n2", "n3", "n4")
	o := w.options(t)
	rounds := len(o.Plan.Rounds)
	for limit := range rounds + 1 {
		w := newWorld("n1", "n2", "n3", "n4")
		o := w.options(t)
		o.Plan.Estimate.Time = time.Duration(rounds) * time.Second
		o.MaxDuration = time.Duration(limit)*time.Second + time.Second/2
		r, err := measure.Run(t.Context(), w, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(w.rounds) != limit || r.Complete != (limit == rounds) || time.Duration(r.DurationNS) > o.MaxDuration {
			t.Errorf("%d of %d rounds in %v, complete %v", len(w.rounds), rounds, o.MaxDuration, r.Complete)
		}
		want := fmt.Sprintf("the time limit of %s is reached: %d of 12 pairs are not measured", o.MaxDuration, 12-2*limit)
		if said := slices.Contains(r.Notes, want); said == r.Complete {
			t.Errorf("notes %q, want %q", r.Notes, want)
		}
	}
}

// Bad pairs are measured again alone, and who they have in common is blamed.
func TestRetests(t *testing.T) {
	w := newWorld("n1", "n2", "n3", "n4")
	w.slow["n2"] = 0.5
	var heard events
	o := w.options(t)
	o.Event = heard.hear
	r, err := measure.Run(t.Context(), w, o)
	if err != nil {
		t.Fatal(err)
	}
	valid(t, r, heard.text.String())
	planned := len(o.Plan.Rounds)
	for _, round := range w.rounds[planned:] {
		if len(round) != 1 {
			t.Errorf("measured again beside others: %q", round)
		}
	}
	if len(w.rounds) == planned || !slices.Contains(heard.kind, probe.EventRetest) {
		t.Errorf("%d rounds of %d planned: nothing was measured again", len(w.rounds), planned)
	}
	for i := range r.Results {
		x := &r.Results[i]
		bad := x.From.Host == "n2" || x.To.Host == "n2"
		if bad != (x.Verdict == probe.Fail) {
			t.Errorf("%s: %s", x.ID, x.Verdict)
		}
		if bad && !slices.ContainsFunc(x.Retests, func(t probe.Retest) bool { return t.How == probe.RetestAlone && t.Confirms }) {
			t.Errorf("%s: retests %+v", x.ID, x.Retests)
		}
	}
	if len(r.Blame) != 1 || !slices.ContainsFunc(r.Blame[0].Suspects, func(s probe.Suspect) bool { return s.Key == "n2" || strings.HasPrefix(s.Key, "n2 ") }) {
		t.Errorf("blame %+v", r.Blame)
	}
}

// careless is a prober that answers with one measurement too few, and tells of pairs that it was not given.
type careless struct{ *world }

func (c careless) Round(ctx context.Context, pairs []probe.Pair, spec probe.Spec, tell func(int, probe.Sample)) []probe.Measurement {
	got := c.world.Round(ctx, pairs, spec, tell)
	tell(len(pairs), probe.Sample{})
	return got[:len(got)-1]
}

func TestCarelessProber(t *testing.T) {
	w := newWorld("n0", "n1")
	r, err := measure.Run(t.Context(), careless{w}, w.options(t))
	if err != nil || r.Summary.Error == 0 {
		t.Fatalf("%+v, %v: want pairs with an error", r.Summary, err)
	}
}

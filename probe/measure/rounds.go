package measure

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/build"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/judge"
	"github.com/topoctl/topoctl/probe/plan"
)

func newRunner(prober Prober, o Options) *runner {
	p := o.Plan.Pairs
	r := &runner{p: prober, o: o, began: o.Elapsed(), used: map[int]bool{}, place: make([]int, len(p.Pairs))}
	r.report = &probe.Report{Schema: probe.Schema, Tool: build.Tool(), Mode: p.Mode, StartedAt: o.Now().UTC(), Hosts: slices.Clone(p.Hosts),
		Spec: o.Plan.Spec, Rules: o.Rules, Plan: o.Plan.Summary(), Devices: p.Devices, Links: p.Links, Notes: append(slices.Clone(p.Notes), rejectionNotes(p)...),
		Results: make([]probe.Result, len(p.Pairs)), Blame: []probe.Blame{}}
	r.updateHosts()
	order := make([]int, len(p.Pairs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return topo.NaturalCompare(p.Pairs[a].ID, p.Pairs[b].ID) })
	for at, i := range order {
		r.place[i] = at
		r.report.Results[at] = probe.Result{Pair: p.Pairs[i]}
	}
	r.reported = make([]probe.Result, len(order))
	return r
}

// rejectionNotes say what there are no pairs of, by reason.
func rejectionNotes(p *plan.Pairs) []string {
	var out []string
	for _, alike := range p.RejectedByReason() {
		name := alike[0].Ends()
		if n := len(alike) - 1; n > 0 {
			name += fmt.Sprintf(" and %d more", n)
		}
		out = append(out, fmt.Sprintf("not measured: %s: %s", name, alike[0].Reason.Text))
	}
	return out
}

// resume takes over the results of an earlier report that are still valid.
func (r *runner) resume() {
	old := r.o.Resume
	if old == nil {
		return
	}
	kept, notes := reusable(old, r.report, r.o.Plan.Pairs.Pairs)
	for i := range r.report.Results {
		if x, ok := kept[r.report.Results[i].ID]; ok {
			r.report.Results[i] = x
			r.round = max(r.round, x.Round)
			r.used[x.Round] = true
		}
	}
	r.report.Notes = append(r.report.Notes, fmt.Sprintf("resume: %d of %d pairs are from the report that began at %s",
		len(kept), len(r.report.Results), old.StartedAt.UTC().Format(time.RFC3339)))
	r.report.Notes = append(r.report.Notes, notes...)
	r.updateVerdicts()
}

// unmeasured are the pairs of a round that have no measurement yet.
func (r *runner) unmeasured(round []int) []int {
	var out []int
	for _, i := range round {
		if x := &r.report.Results[r.place[i]]; x.Round == 0 && x.Pair.Waived == "" {
			out = append(out, i)
		}
	}
	return out
}

// rounds runs the rounds of the plan, in their order.
func (r *runner) rounds(ctx context.Context) {
	var pending [][]int
	p := Progress{Total: r.report.Plan.Pairs}
	for n, round := range r.o.Plan.Rounds {
		open := r.unmeasured(round)
		if len(open) > 0 {
			p.Rounds++
		}
		pending = append(pending, open)
		p.Done += len(round) - len(open)
		r.round = max(r.round, n+1)
	}
	for n, open := range pending {
		if len(open) == 0 {
			continue
		}
		if !r.mayStart(ctx) {
			return
		}
		p.Round++
		pairs := make([]probe.Pair, len(open))
		for k, i := range open {
			pairs[k] = r.o.Plan.Pairs.Pairs[i]
		}
		number := n + 1
		if r.used[number] { // pairs of an earlier report were measured by that number
			r.round++
			number = r.round
		}
		got := r.measure(ctx, number, pairs, p)
		for k, i := range open {
			r.record(ctx, &r.report.Results[r.place[i]], got[k], number)
		}
		p.Done += len(open)
		if r.o.Event != nil { // otherwise verdicts are needed at the end only
			r.updateVerdicts()
		}
	}
}

// measure runs one round and returns one measurement for each pair.
func (r *runner) measure(ctx context.Context, round int, pairs []probe.Pair, p Progress) []probe.Measurement {
	ids := make([]string, len(pairs))
	for i := range pairs {
		ids[i] = pairs[i].ID
	}
	r.emit(&probe.Event{Type: probe.EventRound, Round: &probe.RoundEvent{Round: round, Rounds: len(r.o.Plan.Rounds), Pairs: ids}})
	began := r.o.Elapsed()
	p.Bytes, p.Pairs = r.bytes, pairs
	progress := func() {
		if r.o.Progress != nil {
			spent := r.o.Elapsed() - began
			p.Left = max(0, r.typical()*time.Duration(p.Rounds-p.Round+1)-spent)
			r.o.Progress(p)
		}
	}
	progress()
	got := r.p.Round(ctx, slices.Clone(pairs), r.o.Plan.Spec, func(pair int, s probe.Sample) {
		if pair >= 0 && pair < len(ids) {
			r.emit(&probe.Event{Type: probe.EventSample, Sample: &probe.SampleEvent{Pair: ids[pair], Sample: s}})
		}
		progress()
	})
	for len(got) < len(pairs) {
		got = append(got, probe.Measurement{Err: errors.New("the prober gave no measurement of it")})
	}
	got = got[:len(pairs)]
	r.took, r.ran = r.took+r.o.Elapsed()-began, r.ran+1
	for i := range got {
		for k := range got[i].Bandwidth {
			r.bytes += got[i].Bandwidth[k].Bytes
		}
	}
	return got
}

// record stores what was measured of a pair. A pair that was stopped before anything arrived stays not
// measured.
func (r *runner) record(ctx context.Context, x *probe.Result, m probe.Measurement, round int) {
	if cut := ctx.Err() != nil && m.Err != nil && (errors.Is(m.Err, ctx.Err()) || errors.Is(m.Err, context.Cause(ctx))); cut {
		r.interrupted = true
		if m.Err = nil; m.Judged() == nil && m.Latency == nil {
			return
		}
		m.Notes = append(slices.Clone(m.Notes), "the run was interrupted while it was measured")
	}
	x.Measurement, x.Round = m, round
	if m.Err != nil {
		x.Error, x.ErrorCause = errorText(m.Err, x.ID), probe.CauseOf(m.Err)
		r.emit(&probe.Event{Type: probe.EventError, Error: x.ID + ": " + x.Error})
	}
}

// errorText is an error without the pair's ID, under which the report has it.
func errorText(err error, id string) string {
	return strings.TrimPrefix(pkgerr.Message(err), id+": ")
}

// retests measures doubtful pairs again, until nothing is left to find out.
func (r *runner) retests(ctx context.Context) {
	r.report.Complete = !r.interrupted && !r.outOfTime
	r.updateVerdicts()
	for {
		again := judge.Retests(r.report)
		if len(again) == 0 {
			return
		}
		for n, pair := range again {
			if !r.mayStart(ctx) {
				return
			}
			r.round++
			p := Progress{Again: true, Round: n + 1, Rounds: len(again), Done: r.report.Plan.Pairs, Total: r.report.Plan.Pairs}
			m := r.measure(ctx, r.round, []probe.Pair{pair}, p)[0]
			if m.Err != nil && ctx.Err() != nil {
				r.interrupted = true
				return
			}
			if x := judge.AddRetest(r.report, pair.ID, m); x != nil {
				r.emit(&probe.Event{Type: probe.EventRetest, Retest: &probe.RetestEvent{Of: x.ID, Retest: x.Retests[len(x.Retests)-1]}})
			}
		}
		r.updateVerdicts()
	}
}

// finish judges and says what is missing.
func (r *runner) finish(ctx context.Context) {
	x := r.report
	r.interrupted = r.interrupted || ctx.Err() != nil
	x.Complete = !r.interrupted && !r.outOfTime
	r.updateVerdicts()
	x.Blame = judge.Blame(x)
	for i := range x.Results {
		if differs(&r.reported[i], &x.Results[i]) {
			r.reportResult(i)
		}
	}
	left := 0
	for _, round := range r.o.Plan.Rounds {
		left += len(r.unmeasured(round))
	}
	switch {
	case r.interrupted:
		x.Notes = append(x.Notes, fmt.Sprintf("interrupted: %d of %d pairs are not measured", left, x.Plan.Pairs))
	case r.outOfTime && left > 0:
		x.Notes = append(x.Notes, fmt.Sprintf("the time limit of %s is reached: %d of %d pairs are not measured", r.o.MaxDuration, left, x.Plan.Pairs))
	case r.outOfTime:
		x.Notes = append(x.Notes, fmt.Sprintf("the time limit of %s is reached: not all doubtful pairs are measured again", r.o.MaxDuration))
	}
	x.DurationNS = int64(r.elapsed())
	r.emit(probe.EndEvent(x))
}

// differs says whether a result differs from what was reported.
func differs(was, now *probe.Result) bool {
	return was.ID == "" || was.Verdict != now.Verdict || was.Round != now.Round || len(was.Retests) != len(now.Retests) ||
		!reflect.DeepEqual(was.Efficiency, now.Efficiency) || !reflect.DeepEqual(was.OfBest, now.OfBest) || !slices.Equal(was.Reasons, now.Reasons)
}

package measure

import (
	"context"
	"time"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/judge"
	"github.com/topoctl/topoctl/probe/internal/lane"
	"github.com/topoctl/topoctl/probe/plan"
)

// Prober is what pairs are measured by: Local makes one of this host, Hosts one of agents on other hosts, and a
// program may bring its own. Run calls its methods one at a time.
type Prober interface {
	// Pairs lists what there is to measure, also what cannot be measured and why (probe.Pair.Waived), and sends
	// nothing between the ends. An error beside pairs says what is missing.
	Pairs(ctx context.Context) (*plan.Pairs, error)
	// Round measures pairs at the same time: all of them begin together, when all
	// are ready, and each ends when its own samples suffice. The answer has one
	// measurement for each pair, in their order, also when ctx ends: then with what was
	// measured, and with the error of ctx in Measurement.Err; probe.Because says what another error is about.
	// tell is called by one goroutine at a time, and not any more after Round has returned; pair is a place in
	// pairs. What another host claims was checked by then.
	Round(ctx context.Context, pairs []probe.Pair, spec probe.Spec, tell func(pair int, s probe.Sample)) []probe.Measurement
	// Hosts are the hosts as they are now, with the errors that they met; nil: those of the pairs.
	Hosts() []probe.Host
}

// Options say what Run measures, how it judges, and whom it tells. The zero value measures all pairs.
type Options struct {
	// Plan is what is measured, and with which settings: plan.Make lays out pairs of the Prober. nil: all of them,
	// with probe.DefaultSpec.
	Plan  *plan.Plan
	Rules probe.Rules // of the verdicts; where none is set: probe.DefaultRules
	// MaxDuration bounds the run: a round that would end later does not begin. 0 no bound.
	MaxDuration time.Duration
	// Resume is an earlier report: what it has of this plan is not measured again. nil: none.
	Resume *probe.Report
	// Event is called for everything that happens, one event at a time; nil for nothing. Their lines
	// (probe.Event.Encode) are what probe.ReadEvents reads.
	Event func(*probe.Event)
	// Progress is called often with the state of the run; nil for nothing.
	Progress func(Progress)
	// Now is the wall clock, for Report.StartedAt only; nil: time.Now. Elapsed is time since some
	// moment, by a clock that nobody steps; nil: the system's. A simulator has its own.
	Now     func() time.Time
	Elapsed func() time.Duration
}

// Progress is the state of a run.
type Progress struct {
	// Again says what Round counts: rounds of the plan, or pairs that are measured again, each alone.
	Again         bool
	Round, Rounds int          // Round counts from 1
	Done, Total   int          // pairs measured, and to be measured; without retests
	Bytes         int64        // moved so far
	Pairs         []probe.Pair // that are being measured
	// Left is until the end of the rounds that are known, by what rounds took so far.
	Left time.Duration
}

// Run measures pairs round by round, doubtful ones again, judges them and finds out what is to blame. The report has
// all that was measured, also beside an error, which is that of ctx: the run was stopped. Without a report nothing
// could be planned.
func Run(ctx context.Context, p Prober, o Options) (*probe.Report, error) {
	if o.Plan == nil {
		pairs, err := p.Pairs(ctx)
		if pairs == nil {
			return nil, err
		}
		if o.Plan, err = plan.Make(pairs, plan.Options{Spec: probe.DefaultSpec()}); err != nil {
			return nil, err
		}
	}
	if o.Rules == (probe.Rules{}) {
		o.Rules = probe.DefaultRules()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Elapsed == nil {
		o.Elapsed = lane.Monotonic()
	}
	r := newRunner(p, o)
	r.emit(probe.StartEvent(r.report))
	r.resume()
	r.rounds(ctx)
	r.retests(ctx)
	r.finish(ctx)
	if r.interrupted {
		return r.report, ctx.Err()
	}
	return r.report, nil
}

// runner is a run in progress.
type runner struct {
	p        Prober
	o        Options
	report   *probe.Report
	used     map[int]bool  // rounds whose results are from an earlier report
	place    []int         // of each pair of the plan in Report.Results
	began    time.Duration // on Elapsed
	round    int           // the last one that ran; retests go on counting
	took     time.Duration // all rounds that ran so far, and
	ran      int           // how many
	bytes    int64
	reported []probe.Result // what was reported of each result last
	// interrupted: ctx ended before the run did; outOfTime: there was no time for more.
	interrupted, outOfTime bool
}

// elapsed is the time since the run began.
func (r *runner) elapsed() time.Duration { return r.o.Elapsed() - r.began }

// mayStart says whether another round may begin.
func (r *runner) mayStart(ctx context.Context) bool {
	switch {
	case r.outOfTime || r.interrupted:
		return false
	case ctx.Err() != nil:
		r.interrupted = true
		return false
	case r.o.MaxDuration > 0 && r.elapsed()+r.typical() > r.o.MaxDuration:
		r.outOfTime = true
		return false
	}
	return true
}

// typical is how long a round takes: the mean of those so far, else the estimate of the plan.
func (r *runner) typical() time.Duration {
	switch p := &r.report.Plan; {
	case r.ran > 0:
		return r.took / time.Duration(r.ran)
	case p.Rounds > 0:
		return time.Duration(p.TimeNS / int64(p.Rounds))
	}
	return 0
}

// emit sends an event.
func (r *runner) emit(e *probe.Event) {
	if r.o.Event == nil {
		return
	}
	if e.AtNS == 0 {
		e.AtNS = int64(r.elapsed())
	}
	r.o.Event(e)
}

// updateHosts takes over what has become of the hosts.
func (r *runner) updateHosts() {
	if now := r.p.Hosts(); now != nil {
		r.report.Hosts = now
	}
}

// updateVerdicts judges the results, and reports those whose verdict or measurement differs from what was
// reported last.
func (r *runner) updateVerdicts() {
	r.updateHosts()
	judge.Verdicts(r.report)
	if r.o.Event == nil {
		return
	}
	for i := range r.report.Results {
		x := &r.report.Results[i]
		if (x.Round > 0 || x.Error != "" || x.Why() != "") && differs(&r.reported[i], x) {
			r.reportResult(i)
		}
	}
}

func (r *runner) reportResult(i int) {
	x := r.report.Results[i]
	r.reported[i] = x
	r.emit(&probe.Event{Type: probe.EventResult, Result: &x})
}

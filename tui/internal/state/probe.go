package state

import (
	"maps"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
)

// probe takes in what a probe tells. Events before its start are of no use.
func (s *State) probe(e *probe.Event) {
	if e.Type == probe.EventStart && e.Start != nil {
		s.Probe = newProbe(e, s.Now)
		return
	}
	p := s.Probe
	if p == nil {
		return
	}
	p.Report.DurationNS = max(p.Report.DurationNS, e.AtNS)
	switch {
	case e.Type == probe.EventRound && e.Round != nil:
		p.round(e)
	case e.Type == probe.EventSample && e.Sample != nil:
		if slices.Contains(p.Active, e.Sample.Pair) {
			p.Samples[e.Sample.Pair] = e.Sample.Sample
		}
	case e.Type == probe.EventResult && e.Result != nil:
		p.result(e.Result)
	case e.Type == probe.EventRetest && e.Retest != nil:
		p.retest(e.Retest)
	case e.Type == probe.EventError && e.Error != "":
		p.addError(e.Error)
	case e.Type == probe.EventEnd && e.End != nil:
		p.end(e.End)
	}
}

func newProbe(e *probe.Event, now int64) *Probe {
	r := *e.Start
	r.Results, r.Blame, r.Summary, r.Complete = nil, nil, probe.Summary{}, false
	p := &Probe{Report: &r, Running: true, Samples: map[string]probe.Sample{}, BeganNS: now - e.AtNS, placeOf: map[string]int{}}
	p.estimateRest(e.AtNS)
	return p
}

// round notes which pairs begin.
func (p *Probe) round(e *probe.Event) {
	if p.Round > 0 {
		p.doneRoundsNS += max(0, e.AtNS-p.roundBeganNS)
		p.doneRounds++
	}
	p.Round, p.roundBeganNS = e.Round.Round, e.AtNS
	p.Active = e.Round.Pairs[:min(len(e.Round.Pairs), MaxResults)]
	p.Samples = map[string]probe.Sample{}
	// Retests go on counting, and so do rounds of which an earlier report has a part: but
	// then pairs are still to be measured.
	p.Retest = e.Round.Round > e.Round.Rounds && p.Done >= p.Report.Plan.Pairs
	p.estimateRest(e.AtNS)
}

// estimateRest guesses how long the rounds of the plan take from now on, by the time of the run:
// a round takes as long as those before, else as planned. The number of retests is not
// known in advance.
func (p *Probe) estimateRest(at int64) {
	plan := &p.Report.Plan
	typical := int64(0)
	switch {
	case p.doneRounds > 0:
		typical = p.doneRoundsNS / int64(p.doneRounds)
	case plan.Rounds > 0:
		typical = plan.TimeNS / int64(plan.Rounds)
	}
	p.RemainingNS = 0
	if rounds := plan.Rounds - max(p.Round, 1) + 1; p.Running && !p.Retest && rounds > 0 {
		spent := int64(0)
		if p.Round > 0 {
			spent = at - p.roundBeganNS
		}
		p.RemainingNS = max(0, int64(float64(typical)*float64(rounds))-max(0, spent))
	}
}

// result takes in a result, or another verdict on one.
func (p *Probe) result(x *probe.Result) {
	r := p.Report
	p.ResultsSeen++
	i, found := p.placeOf[x.ID]
	switch {
	case found:
		p.addToSummary(&r.Results[i], -1)
		r.Results[i] = *x
	case len(r.Results) == MaxResults:
		p.Omitted++
		return
	default:
		p.placeOf[x.ID] = len(r.Results)
		r.Results = append(r.Results, *x)
	}
	p.addToSummary(x, 1)
}

// addToSummary adds a result to the summary, or takes it out.
func (p *Probe) addToSummary(x *probe.Result, n int) {
	if x.Round > 0 || x.Error != "" {
		p.Done += n
	}
	s := &p.Report.Summary
	switch x.Verdict {
	case probe.Pass:
		s.Pass += n
	case probe.Measured:
		s.Measured += n
	case probe.Warn:
		s.Warn += n
	case probe.Fail:
		s.Fail += n
	case probe.Inconclusive:
		s.Inconclusive += n
	case probe.Waived:
		s.Waived += n
	case probe.Error:
		s.Error += n
	}
}

// maxRetests are kept of a pair until its result comes again, with all of them.
const maxRetests = 64

// retest adds a retest to its pair, whose result comes again once it is judged.
func (p *Probe) retest(e *probe.RetestEvent) {
	i, found := p.placeOf[e.Of]
	if !found {
		return
	}
	if x := &p.Report.Results[i]; len(x.Retests) < maxRetests {
		x.Retests = append(slices.Clip(x.Retests), e.Retest)
	}
}

// addError notes an error, the latest MaxErrors of them.
func (p *Probe) addError(text string) {
	if len(p.Errors) == MaxErrors {
		p.Errors = p.Errors[1:]
	}
	p.Errors = append(slices.Clip(p.Errors), text)
}

// end takes over what is known at the end only.
func (p *Probe) end(o *probe.Outcome) {
	r := p.Report
	r.DurationNS, r.Complete, r.Hosts, r.Blame, r.Notes = o.DurationNS, o.Complete, o.Hosts, o.Blame, o.Notes
	if p.Omitted > 0 {
		r.Summary = o.Summary
	}
	slices.SortStableFunc(r.Results, func(a, b probe.Result) int { return topo.NaturalCompare(a.ID, b.ID) })
	for i := range r.Results {
		p.placeOf[r.Results[i].ID] = i
	}
	p.stop()
}

// stop says that nothing more is measured.
func (p *Probe) stop() {
	p.Running, p.Active, p.Samples, p.RemainingNS = false, nil, map[string]probe.Sample{}, 0
}

// tick lets the time that is left run down.
func (p *Probe) tick(now int64) {
	if p.Running {
		p.estimateRest(now - p.BeganNS)
	}
}

func (p *Probe) clone() *Probe {
	if p == nil {
		return nil
	}
	out := *p
	report := *p.Report
	report.Results = slices.Clone(report.Results)
	out.Report, out.Samples, out.placeOf = &report, maps.Clone(p.Samples), maps.Clone(p.placeOf)
	return &out
}

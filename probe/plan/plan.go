package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/probe"
)

// Schedule says what pairs of one round may share.
type Schedule string

// The schedules.
const (
	ByLink     Schedule = "link"     // no link has to carry more than it can
	ByEndpoint Schedule = "endpoint" // no end is in two pairs; links are shared
	Serial     Schedule = "serial"   // one pair at a time
)

// Options say how pairs are put into rounds.
type Options struct {
	Schedule Schedule // "": ByLink
	// Contend is a link that pairs share on purpose: those that cross it come first, as many at once as
	// their ends and other links allow. "": none.
	Contend probe.LinkKey
	Spec    probe.Spec // how each pair is measured, and so what that takes
}

// Plan is the rounds in which pairs are measured.
type Plan struct {
	Pairs *Pairs // what it was made of
	Options
	// Rounds are places in Pairs.Pairs, ascending; every pair that is not waived is in
	// one of them.
	Rounds [][]int
	// LowerBound is the number of rounds below which no plan of this schedule can be.
	LowerBound int
	Estimate   Estimate
}

// Estimate is the time and the bytes that a plan takes, from the fewest samples to the most.
type Estimate struct {
	Time, MostTime   time.Duration
	Bytes, MostBytes int64
	// UnknownRates are pairs whose bytes are not counted, because nothing is known of their rate.
	UnknownRates int
}

// Make puts pairs into rounds. The same pairs in another order give the same rounds. It is an error if no pair crosses
// Options.Contend.
func Make(p *Pairs, o Options) (*Plan, error) {
	if p == nil {
		return nil, pkgerr.Errorf("plan", "no pairs")
	}
	if len(o.Spec.SizesBytes) == 0 && o.Spec.LatencySamples > 0 { // that of memory is of loads
		p = p.only(func(x *probe.Pair) bool { return x.Variant != probe.VariantCopy })
	}
	o.Schedule = cmp.Or(o.Schedule, ByLink)
	if o.Contend != "" && o.Schedule == Serial {
		return nil, pkgerr.Errorf("plan", "schedule serial puts no two pairs together: contend on %q wants link or endpoint", o.Contend)
	}
	out := &Plan{Pairs: p, Options: o}
	links := make(map[probe.LinkKey]*probe.Link, len(p.Links))
	for i := range p.Links {
		links[p.Links[i].Key] = &p.Links[i]
	}
	phases, err := out.phases()
	if err != nil {
		return nil, err
	}
	for _, phase := range phases {
		pr := newProblem(out, links, phase)
		bound := pr.lowerBound()
		out.LowerBound += bound
		out.Rounds = append(out.Rounds, pr.solve(bound)...)
	}
	out.Estimate = out.estimate()
	return out, nil
}

// phases splits the pairs into parts with rounds of their own: those that contend come first, and pairs of
// memory are apart, because they use the processors and the memory that all others need.
func (p *Plan) phases() ([][]int, error) {
	phases := make([][]int, 4)
	for _, i := range canonical(p.Pairs.Pairs) {
		pair := &p.Pairs.Pairs[i]
		if pair.Waived != "" {
			continue
		}
		at := 0
		if p.Contend == "" || !slices.Contains(pair.Path, p.Contend) {
			at += 2
		}
		if pair.Kind != probe.Memory {
			at++
		}
		phases[at] = append(phases[at], i)
	}
	if p.Contend != "" && len(phases[0])+len(phases[1]) == 0 {
		return nil, pkgerr.Errorf("plan", "contend on %q: no pair crosses it", p.Contend)
	}
	return slices.DeleteFunc(phases, func(x []int) bool { return len(x) == 0 }), nil
}

// canonical are the places of pairs in the order of IDs.
func canonical(pairs []probe.Pair) []int {
	order := make([]int, len(pairs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return strings.Compare(pairs[x].ID, pairs[y].ID) })
	return order
}

// Round are the pairs of one round, counted from 0.
func (p *Plan) Round(i int) []probe.Pair {
	out := make([]probe.Pair, 0, len(p.Rounds[i]))
	for _, k := range p.Rounds[i] {
		out = append(out, p.Pairs.Pairs[k])
	}
	return out
}

// Summary is the plan as a report has it.
func (p *Plan) Summary() probe.Plan {
	n := 0
	for _, r := range p.Rounds {
		n += len(r)
	}
	return probe.Plan{Schedule: string(p.Schedule), Contend: string(p.Contend), Rounds: len(p.Rounds), LowerBound: p.LowerBound,
		Pairs: n, TimeNS: int64(p.Estimate.Time), Bytes: p.Estimate.Bytes}
}

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/probe"
)

// PartialNote begins a note of a report on what is there and was not measured.
const PartialNote = "partial: "

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
	Spec    probe.Spec // for the estimates
}

// Plan is the rounds in which pairs are measured.
type Plan struct {
	// Pairs are what it was made of. Where pairs of a round share a link, Expected is what
	// they have of it then.
	Pairs    *Pairs
	Schedule Schedule
	Contend  probe.LinkKey
	Spec     probe.Spec
	// Rounds are places in Pairs.Pairs, ascending; every pair that is not waived is in
	// one of them.
	Rounds [][]int
	// LowerBound is the number of rounds below which no plan of this schedule can be.
	LowerBound int
	// Bound says why: the link or end that is in the most pairs.
	Bound string
	// Shared are the places of pairs whose expected rate is lower than alone.
	Shared   []int
	Estimate Estimate
}

// Estimate is the time and the bytes that a plan takes, from the fewest samples to the most.
type Estimate struct {
	Time, MostTime   time.Duration
	Bytes, MostBytes int64
	// UnknownRates are pairs whose bytes are not counted, because nothing is known of their rate.
	UnknownRates int
}

// Make puts pairs into rounds. The same pairs in another order give the same rounds.
func Make(p *Pairs, o Options) (*Plan, error) {
	if p == nil {
		return nil, pkgerr.Errorf("plan", "no pairs")
	}
	switch o.Schedule {
	case "":
		o.Schedule = ByLink
	case ByLink, ByEndpoint, Serial:
	default:
		return nil, pkgerr.Errorf("plan", "schedule %q: want link, endpoint or serial", o.Schedule)
	}
	if o.Contend != "" && o.Schedule == Serial {
		return nil, pkgerr.Errorf("plan", "schedule serial puts no two pairs together: contend on %q wants link or endpoint", o.Contend)
	}
	own := *p
	own.Pairs = slices.Clone(p.Pairs)
	out := &Plan{Pairs: &own, Schedule: o.Schedule, Contend: o.Contend, Spec: o.Spec}
	links := make(map[probe.LinkKey]*probe.Link, len(own.Links))
	for i := range own.Links {
		links[own.Links[i].Key] = &own.Links[i]
	}
	var bounds []string
	phases, err := out.phases()
	if err != nil {
		return nil, err
	}
	for _, ph := range phases {
		pr := newProblem(out, links, ph)
		bound, why := pr.lowerBound()
		out.LowerBound += bound
		if len(phases) > 1 {
			why = fmt.Sprintf("%d of %s, %s", bound, ph.name, why)
		}
		bounds = append(bounds, why)
		out.Rounds = append(out.Rounds, pr.solve(bound)...)
	}
	out.Bound = strings.Join(bounds, "; ")
	out.share(links)
	out.Estimate = out.estimate()
	return out, nil
}

// phase is a part of the pairs with rounds of its own.
type phase struct {
	name  string
	pairs []int
}

// phases splits the pairs: those that contend come first, and pairs of memory are apart, because they use
// the processors and the memory that all others need.
func (p *Plan) phases() ([]phase, error) {
	list := []phase{{name: "memory that contends"}, {name: "GPUs and ports that contend"}, {name: "memory"}, {name: "GPUs and ports"}}
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
		list[at].pairs = append(list[at].pairs, i)
	}
	if p.Contend != "" && len(list[0].pairs)+len(list[1].pairs) == 0 {
		return nil, pkgerr.Errorf("plan", "contend on %q: no pair crosses it", p.Contend)
	}
	return slices.DeleteFunc(list, func(x phase) bool { return len(x.pairs) == 0 }), nil
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

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// What Text shows of long lists.
const (
	shownRounds = 48
	shownPairs  = 4
	shownNotes  = 8
)

// Text is the plan for people: rounds with their pairs, what they take, what is not
// measured and why. Long lists are cut short.
func (p *Plan) Text() string {
	var b strings.Builder
	b.WriteString(p.headline())
	for i, round := range p.Rounds {
		if i == shownRounds && len(p.Rounds) > shownRounds+1 {
			fmt.Fprintf(&b, "  ... %d more rounds\n", len(p.Rounds)-i)
			break
		}
		e := p.estimateRound(round)
		fmt.Fprintf(&b, "  round %d, %s, %s: %s\n", i+1, text.Plural(len(round), "pair"), span(e.Time, e.MostTime), text.List(p.names(round), shownPairs))
	}
	p.leftOut(&b)
	for i, n := range p.Pairs.Notes {
		if i == shownNotes && len(p.Pairs.Notes) > shownNotes+1 {
			fmt.Fprintf(&b, "note: ... %d more\n", len(p.Pairs.Notes)-i)
			break
		}
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

// headline sums the plan up.
func (p *Plan) headline() string {
	n, waived := 0, 0
	for _, r := range p.Rounds {
		n += len(r)
	}
	for i := range p.Pairs.Pairs {
		if p.Pairs.Pairs[i].Waived != "" {
			waived++
		}
	}
	out := fmt.Sprintf("%s of %s in %s, schedule %s", text.Plural(n, "pair"), text.Plural(len(p.Pairs.Hosts), "host"), text.Plural(len(p.Rounds), "round"), p.Schedule)
	if p.Contend != "" {
		out += fmt.Sprintf(", contending on %s", p.Contend)
	}
	if n == 0 {
		return out + "\n"
	}
	out += fmt.Sprintf(" (at best %d)\n", p.LowerBound)
	e := &p.Estimate
	out += fmt.Sprintf("time %s, data %s", span(e.Time, e.MostTime), text.Range(units.Bytes(e.Bytes), units.Bytes(e.MostBytes)))
	if e.UnknownRates > 0 {
		out += fmt.Sprintf(" and that of %s of unknown rate", text.Plural(e.UnknownRates, "pair"))
	}
	return out + "\n"
}

// span is a time, or from the least to the most.
func span(least, most time.Duration) string { return text.Range(short(least), short(most)) }

func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// names are the names of the pairs at some places.
func (p *Plan) names(pairs []int) []string {
	names := make([]string, len(pairs))
	for n, i := range pairs {
		names[n] = p.name(&p.Pairs.Pairs[i])
	}
	return names
}

// name is a pair in few words: its kind is clear from its ends.
func (p *Plan) name(pair *probe.Pair) string {
	from, to := pair.From.Name, pair.To.Name
	if p.Pairs.Mode == "fabric" {
		from, to = pair.From.Host+"/"+from, pair.To.Host+"/"+to
	}
	out := from + ">" + to
	if pair.Variant != "" {
		out += " " + pair.Variant
	}
	return out
}

// withoutNumbers is what reasons have in common that differ in the names of GPUs.
func withoutNumbers(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, s)
}

// leftOut lists what is waived and rejected, by reason.
func (p *Plan) leftOut(b *strings.Builder) {
	waived := slices.DeleteFunc(slices.Clone(p.Pairs.Pairs), func(x probe.Pair) bool { return x.Waived == "" })
	for _, alike := range group.By(waived, func(x probe.Pair) string { return string(x.Kind) + withoutNumbers(x.Waived) }) {
		leftOutLine(b, "waived", p.name(&alike[0]), alike[0].Waived, len(alike), 0)
	}
	for _, alike := range p.Pairs.RejectedByReason() {
		pairs, parts := 0, 0
		for _, r := range alike {
			pairs += r.Pairs
			if r.Pairs == 0 {
				parts++
			}
		}
		leftOutLine(b, "rejected", alike[0].Name(), alike[0].Reason.Text, pairs, parts)
	}
}

// leftOutLine writes one reason, for so many pairs or, if there are none, for parts of hosts.
func leftOutLine(b *strings.Builder, verdict, example, reason string, pairs, parts int) {
	what := example
	switch {
	case pairs > 1:
		what = text.Plural(pairs, "pair") + ", as " + example
	case pairs == 0 && parts > 1:
		what = fmt.Sprintf("%s and %d more", example, parts-1)
	}
	fmt.Fprintf(b, "%s: %s: %s\n", verdict, what, reason)
}

package cli

import (
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/plan"
)

// schemaPlan is the name and major version of what --dry-run -o json prints.
const schemaPlan = "topoctl.probe-plan/v1"

// planDoc is a plan for programs.
type planDoc struct {
	Schema string       `json:"schema"`
	Plan   probe.Plan   `json:"plan"`
	Spec   probe.Spec   `json:"spec"`
	Hosts  []probe.Host `json:"hosts"`
	// MostTimeNS and MostBytes are what it takes where every pair needs the most samples.
	MostTimeNS int64        `json:"most_time_ns"`
	MostBytes  int64        `json:"most_bytes"`
	Rounds     []planRound  `json:"rounds"`
	Waived     []planWaived `json:"waived"`
	Rejected   []planWaived `json:"rejected"`
	Notes      []string     `json:"notes"`
}

type planRound struct {
	Round int        `json:"round"` // counts from 1
	Pairs []planPair `json:"pairs"`
}

type planPair struct {
	ID       string         `json:"id"`
	Expected probe.Expected `json:"expected"`
}

type planWaived struct {
	Pair   string `json:"pair"`
	Pairs  int    `json:"pairs"` // how many the reason is of, 0 of a part that has none
	Code   string `json:"code,omitempty"`
	Reason string `json:"reason"`
}

// dry prints a plan instead of carrying it out.
func (o *measuring) dry(p *plan.Plan, err error) error {
	if err != nil {
		return err
	}
	return o.print(answer{doc: documentOf(p, o.spec), text: func() string {
		text := p.Text()
		if look := o.Look(); o.flags.outFile.Stdout() {
			text = look.WrapLines(text)
		}
		return report.Finish(text)
	}}, o.flags.outFile)
}

func documentOf(p *plan.Plan, spec probe.Spec) *planDoc {
	d := &planDoc{Schema: schemaPlan, Plan: p.Summary(), Spec: spec, Hosts: p.Pairs.Hosts, MostTimeNS: int64(p.Estimate.MostTime), MostBytes: p.Estimate.MostBytes,
		Rounds: []planRound{}, Waived: []planWaived{}, Rejected: []planWaived{}, Notes: append([]string{}, p.Pairs.Notes...)}
	for i := range p.Rounds {
		r := planRound{Round: i + 1}
		for _, x := range p.Round(i) {
			r.Pairs = append(r.Pairs, planPair{x.ID, x.Expected})
		}
		d.Rounds = append(d.Rounds, r)
	}
	for i := range p.Pairs.Pairs {
		if x := &p.Pairs.Pairs[i]; x.Waived != "" {
			d.Waived = append(d.Waived, planWaived{Pair: x.ID, Pairs: 1, Reason: x.Waived})
		}
	}
	for _, r := range p.Pairs.Rejected {
		d.Rejected = append(d.Rejected, planWaived{Pair: r.Name(), Pairs: r.Pairs, Code: string(r.Reason.Code), Reason: r.Reason.Text})
	}
	return d
}

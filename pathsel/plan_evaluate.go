package pathsel

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/maxmin"
	"github.com/topoctl/topoctl/internal/base/text"
)

// planFlow is the data of one consumer through one port.
type planFlow struct {
	consumer, port int
	segments       []segment
	rate           *topo.Rate
	limit          segment // -1 where no known link bounds it
	basis          topo.Basis
}

// evaluate lets all consumers move data through their ports at once and says
// what each gets.
func (pl *planner) evaluate() *Plan {
	flows := pl.flow()
	p := &Plan{Assignments: make([]Assignment, len(pl.consumers)), Ports: []PortLoad{}, Rejected: pl.rejected()}
	shares, bases := make([]Share, len(flows)), make([]topo.Basis, len(flows))
	for i := range flows {
		shares[i], bases[i] = Share{BytesPerSec: flows[i].rate}, flows[i].basis
	}
	p.BytesPerSec, p.Basis = sum(shares), weakest(bases)
	first := 0 // flows are in the order of consumers
	for c := range pl.consumers {
		mine := flows[first : first+len(pl.given[c])]
		p.Assignments[pl.consumers[c].given] = pl.assigned(c, mine)
		first += len(mine)
	}
	if len(pl.h.ports) == 0 { // the origin tells of no port: that is not to say that there is none
		p.BytesPerSec = nil
		for i := range p.Assignments {
			p.Assignments[i].BytesPerSec = nil
		}
	}
	p.Ports = pl.loads(flows)
	p.Bottleneck = pl.bottleneck(p, flows)
	return p
}

// flow shares the links among all pairs of consumer and port. Each pair weighs
// the same: so do connections that compete for a link.
func (pl *planner) flow() []planFlow {
	var pairs []planFlow
	var flows []maxmin.Flow
	for c, ports := range pl.given {
		for _, p := range ports {
			segments := pl.route(c, p).segments
			pairs = append(pairs, planFlow{consumer: c, port: p, segments: segments, limit: -1, basis: topo.BasisUnknown})
			flows = append(flows, maxmin.Flow{Segments: segments, Weight: 1})
		}
	}
	maxmin.New(pl.h.caps).Share(flows)
	for i := range flows {
		if flows[i].Unlimited() {
			continue
		}
		f, rate := &pairs[i], roundRate(flows[i].Rate)
		f.rate, f.limit, f.basis = &rate, flows[i].Limit, pl.h.segLinks[flows[i].Limit/2].Basis
		if pl.route(f.consumer, f.port).uncertain && rate > 0 {
			f.basis = topo.BasisAssumed
		}
	}
	return pairs
}

// planLimit is the link that keeps a consumer from more, -1 where none is known:
// a full one that all of its data crosses, else what bounds its slowest port.
func planLimit(flows []planFlow) segment {
	limit, least := segment(-1), topo.Rate(0)
	for i := range flows {
		f := &flows[i]
		if f.limit < 0 {
			continue
		}
		if !slices.ContainsFunc(flows, func(other planFlow) bool { return !slices.Contains(other.segments, f.limit) }) {
			return f.limit
		}
		if limit < 0 || *f.rate < least {
			limit, least = f.limit, *f.rate
		}
	}
	return limit
}

func (pl *planner) route(consumer, port int) *route {
	return &pl.h.routes[pl.consumers[consumer].loc][pl.ports[port].Index]
}

// assigned is what a consumer was given.
func (pl *planner) assigned(c int, flows []planFlow) Assignment {
	a := Assignment{Consumer: pl.consumers[c].Name, Location: pl.consumers[c].Location, Ports: []Candidate{}}
	shares, bases := []Share{}, []topo.Basis{}
	for i := range flows {
		shares, bases = append(shares, Share{BytesPerSec: flows[i].rate}), append(bases, flows[i].basis)
	}
	a.BytesPerSec, a.Basis = sum(shares), weakest(bases)
	if limit := planLimit(flows); limit >= 0 {
		a.Limit = pl.h.segLinks[limit/2].ID
	}
	ports := slices.Clone(pl.given[c])
	slices.SortStableFunc(ports, func(x, y int) int {
		if order := pl.compare(c, x, y); order != 0 {
			return order
		}
		return cmp.Compare(pl.ports[x].Index, pl.ports[y].Index)
	})
	for _, p := range ports {
		a.Ports = append(a.Ports, pl.explain(c, p))
	}
	if len(a.Ports) > 0 {
		a.Ports[0].Notes = append(a.Ports[0].Notes, pl.missed(c, &a.Ports[0])...)
	}
	return a
}

// missed names the port that a consumer would have if it were not broken: the
// nearest of those that a fault keeps from the plan, if it is nearer than what
// the consumer has.
func (pl *planner) missed(c int, has *Candidate) []Reason {
	class, missed := has.Class, (*Port)(nil)
	for i := range pl.h.ports {
		p := &pl.h.ports[i]
		if p.Usable || p.Software || p.Virtual || p.VF || !p.Reasons[0].Code.Repairable() || roleOrder[p.Role] > roleOrder[has.Role] {
			continue
		}
		if near := pl.h.routes[pl.consumers[c].loc][i].class; near.Compare(class) < 0 {
			class, missed = near, p
		}
	}
	if missed == nil {
		return nil
	}
	r := missed.Reasons[0]
	return []Reason{{r.Code, fmt.Sprintf("%s (%s) is nearer and takes no part: %s", missed.Name, class, r.Text), r.Evidence}}
}

// compare orders two ports for a consumer by how near they are to it: class,
// rate and hops.
func (pl *planner) compare(c, x, y int) int {
	a, b := &pl.cost[c*len(pl.ports)+x], &pl.cost[c*len(pl.ports)+y]
	return slices.Compare(a[assignClass:assignEvenClass], b[assignClass:assignEvenClass])
}

// explain says why a consumer has a port: nothing is better for it, or the
// best port that is serves others.
func (pl *planner) explain(c, p int) Candidate {
	port := pl.ports[p]
	out := pl.h.candidate(pl.consumers[c].loc, port)
	out.Notes = append(slices.Clone(port.Reasons), out.Notes...)
	best, taken, own := p, -1, false
	for other := range pl.ports {
		if pl.compare(c, other, best) < 0 {
			best = other
		}
		switch {
		case pl.compare(c, other, p) >= 0:
		case slices.Contains(pl.given[c], other):
			own = true
		case taken < 0 || pl.compare(c, other, taken) < 0:
			taken = other
		}
	}
	out.Verdict = Available
	if a, b := &pl.cost[c*len(pl.ports)+p], &pl.cost[c*len(pl.ports)+best]; slices.Equal(a[assignClass:assignHops], b[assignClass:assignHops]) {
		out.Verdict = Preferred
	}
	switch {
	case best == p:
		out.Reason = Reason{CodeBest, "nearest usable port" + about(&out), ""}
	case own:
		out.Reason = Reason{CodeSpare, fmt.Sprintf("idle otherwise%s, and no consumer nearer to it lacks ports", about(&out)), ""}
	default:
		before := pl.h.candidate(pl.consumers[c].loc, pl.ports[taken])
		before.doubt = out.doubt // which the comparison above leaves out, too
		code, _ := compare(&before, &out)
		out.Reason = Reason{codeBalance, fmt.Sprintf("%s; %s serves %s already", difference(code, &before, &out), before.Name, planNames(pl.names(taken))), ""}
	}
	return out
}

// names lists the consumers of a port.
func (pl *planner) names(port int) []string {
	out := make([]string, 0, len(pl.served[port]))
	for _, c := range pl.served[port] {
		out = append(out, pl.consumers[c].Name)
	}
	return out
}

// planNames shortens a long list of names.
func planNames(names []string) string {
	const most = 4
	if len(names) > most {
		names = append(slices.Clone(names[:most-1]), fmt.Sprintf("%d others", len(names)-most+1))
	}
	return text.Join(names, len(names))
}

// loads is what each port has to do.
func (pl *planner) loads(flows []planFlow) []PortLoad {
	out := make([]PortLoad, len(pl.ports))
	shares, bases := make([][]Share, len(pl.ports)), make([][]topo.Basis, len(pl.ports))
	for i := range flows {
		p := flows[i].port
		shares[p], bases[p] = append(shares[p], Share{BytesPerSec: flows[i].rate}), append(bases[p], flows[i].basis)
	}
	for i, p := range pl.ports {
		out[i] = PortLoad{Port: p.ID, Name: p.Name, Consumers: pl.names(i), BytesPerSec: sum(shares[i]), Basis: weakest(bases[i])}
		for _, c := range pl.served[i] {
			out[i].Share += 1 / float64(len(pl.given[c]))
		}
	}
	slices.SortStableFunc(out, func(a, b PortLoad) int {
		return cmp.Compare(pl.h.portIndex[a.Port], pl.h.portIndex[b.Port])
	})
	return out
}

// bottleneck finds the slowest consumer, the first among equals, and the link
// that keeps it from more.
func (pl *planner) bottleneck(p *Plan, flows []planFlow) *Bottleneck {
	var slow *Assignment
	limit, first := segment(-1), 0
	for c := range pl.consumers {
		mine := flows[first : first+len(pl.given[c])]
		first += len(mine)
		a := &p.Assignments[pl.consumers[c].given]
		if at := planLimit(mine); at >= 0 && a.BytesPerSec != nil && (slow == nil || *a.BytesPerSec < *slow.BytesPerSec) {
			slow, limit = a, at
		}
	}
	if slow == nil {
		return nil
	}
	link := &pl.h.segLinks[limit/2]
	b := &Bottleneck{Link: link.ID, BytesPerSec: link.BytesPerSec, Basis: slow.Basis, Consumers: []string{},
		SlowestBytesPerSec: *slow.BytesPerSec, AsSlow: []string{}}
	behind := make([]bool, len(pl.consumers))
	for i := range flows {
		f := &flows[i]
		behind[f.consumer] = behind[f.consumer] || slices.Contains(f.segments, limit)
	}
	for c := range pl.consumers {
		switch rate := p.Assignments[pl.consumers[c].given].BytesPerSec; {
		case behind[c]:
			b.Consumers = append(b.Consumers, pl.consumers[c].Name)
		case rate != nil && *rate == b.SlowestBytesPerSec:
			b.AsSlow = append(b.AsSlow, pl.consumers[c].Name)
		}
	}
	return b
}

// rejected are the ports that take no part. Their class depends on who asks,
// so none is given.
func (pl *planner) rejected() []Candidate {
	out := []Candidate{}
	for i := range pl.h.ports {
		p := &pl.h.ports[i]
		reasons := p.Reasons
		switch {
		case p.Usable && !pl.carries(p):
			reasons = append([]Reason{{codeNoRate, "a link on its way carries nothing", ""}}, reasons...)
		case p.Usable:
			continue
		}
		out = append(out, Candidate{Port: p.ID, NIC: p.NIC, Name: p.Name, Verdict: Rejected, Role: p.Role, Basis: topo.BasisUnknown,
			Reason: reasons[0], Notes: slices.Clone(reasons[1:]), index: i, doubt: p.doubt})
	}
	return out
}

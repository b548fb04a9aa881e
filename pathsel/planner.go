package pathsel

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/maxmin"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

// planner is a plan in the making. Consumers and ports are in an order that
// does not depend on the input's: consumers by location and name, ports by PCI
// address as the GPUs are, so that those of one card are together.
type planner struct {
	h           *Host
	consumers   []planConsumer
	ports       []*Port
	cost        []assignCost // [consumer*len(ports)+port]
	portsOf     [][]int      // the ports of each consumer, places in ports
	consumersOf [][]int      // the consumers of each port, places in consumers
}

func (h *Host) newPlanner(given []Consumer) (*planner, error) {
	consumers, err := h.planConsumers(given)
	if err != nil {
		return nil, err
	}
	pl := &planner{h: h, consumers: consumers}
	for i := range h.ports {
		if p := &h.ports[i]; p.Usable && pl.carries(p) {
			pl.ports = append(pl.ports, p)
		}
	}
	if len(pl.ports) > assignMax {
		return nil, pkgerr.Errorf("pathsel", "plan: %d usable ports: want at most %d", len(pl.ports), assignMax)
	}
	slices.SortFunc(pl.ports, planOrder)
	pl.price()
	return pl, nil
}

// planConsumer is a consumer in a plan.
type planConsumer struct {
	Consumer
	loc   int // place in Host.locations
	place int // in what the caller gave
}

// planConsumers checks the consumers, or finds the usual ones, and puts them in
// an order that does not depend on how they were given: that of locations, then
// of names.
func (h *Host) planConsumers(given []Consumer) ([]planConsumer, error) {
	if len(given) == 0 {
		locations := h.locations[:len(h.t.GPUs)]
		if len(locations) == 0 {
			locations = h.locations
		}
		for _, l := range locations {
			given = append(given, Consumer{Location: l})
		}
	}
	switch {
	case len(given) == 0:
		return nil, pkgerr.New("pathsel", "plan: this host has no GPU and no NUMA node with CPUs")
	case len(given) > assignMax:
		return nil, pkgerr.Errorf("pathsel", "plan: %d consumers: want at most %d", len(given), assignMax)
	}
	out := make([]planConsumer, len(given))
	seen := make(map[string]bool, len(given))
	for i, c := range given {
		loc, err := h.location(c.Location)
		if err != nil {
			return nil, err
		}
		if c.Name == "" {
			c.Name = string(c.Location)
		}
		if seen[c.Name] {
			return nil, pkgerr.Errorf("pathsel", "plan: consumer %q is given twice: want a name for each", c.Name)
		}
		seen[c.Name] = true
		out[i] = planConsumer{c, loc, i}
	}
	slices.SortFunc(out, func(a, b planConsumer) int {
		if c := cmp.Compare(a.loc, b.loc); c != 0 {
			return c
		}
		if c := topo.NaturalCompare(a.Name, b.Name); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return out, nil
}

// carries says whether a port carries anything for some consumer, for all that is known.
func (pl *planner) carries(p *Port) bool {
	return slices.ContainsFunc(pl.consumers, func(c planConsumer) bool { return pl.h.routes[c.loc][p.Index].rate != 0 })
}

// planOrder orders ports by PCI address, longer domains and ports without
// address last, then by name.
func planOrder(a, b *Port) int {
	x, y := string(a.pci()), string(b.pci())
	if x == "" || y == "" {
		if c := cmp.Compare(len(y), len(x)); c != 0 {
			return c
		}
	}
	if c := cmp.Compare(len(x), len(y)); c != 0 {
		return c
	}
	if c := cmp.Compare(x, y); c != 0 {
		return c
	}
	return cmp.Compare(a.Index, b.Index)
}

// price finds the cost of every pair of consumer and port.
func (pl *planner) price() {
	best := topo.Rate(0)
	for _, c := range pl.consumers {
		for _, p := range pl.ports {
			best = max(best, pl.h.routes[c.loc][p.Index].rate)
		}
	}
	best = min(best, assignDigitMax-2)
	n, g := len(pl.ports), len(pl.consumers)
	cards := planCards(pl.ports)
	pl.cost = make([]assignCost, n*g)
	for c := range pl.consumers {
		for j, p := range pl.ports {
			r := &pl.h.routes[pl.consumers[c].loc][p.Index]
			d := &pl.cost[c*n+j]
			d[assignDoubt] = int64(p.doubt)
			d[assignClass] = int64(topo.ClassSYS) + 1 // unknown
			if r.class.Known() {
				d[assignClass] = int64(r.class.Kind)
			}
			d[assignRate] = int64(best) + 1 // unknown
			if r.rate >= 0 {
				d[assignRate] = int64(best - min(best, r.rate))
			}
			d[assignHops] = 1 << 20 // unknown
			if r.hops >= 0 {
				d[assignHops] = int64(r.hops)
			}
			// Both orders are laid over the same stretch, 2*n*g long.
			at := (2*c + 1) * n
			d[assignCard] = square(at - cards[j]*g)
			d[assignPlace] = square(at - (2*j+1)*g)
		}
	}
}

func square(n int) int64 { return int64(n) * int64(n) }

// planCards is the place of each port's card, the middle of its ports, on a
// scale where the port at place j is 2*j+1.
func planCards(ports []*Port) []int {
	out := make([]int, len(ports))
	for i := 0; i < len(ports); {
		j := i + 1
		for j < len(ports) && ports[i].Card != "" && ports[j].Card == ports[i].Card {
			j++
		}
		for k := i; k < j; k++ {
			out[k] = i + j
		}
		i = j
	}
	return out
}

// assign shares the ports out.
func (pl *planner) assign() {
	n, g := len(pl.ports), len(pl.consumers)
	pl.portsOf, pl.consumersOf = make([][]int, g), make([][]int, n)
	give := func(consumer, port int) {
		pl.portsOf[consumer] = append(pl.portsOf[consumer], port)
		pl.consumersOf[port] = append(pl.consumersOf[port], consumer)
	}
	switch {
	case n == 0:
	case n < g:
		least, most := planQuotas(pl.portRates(), g)
		for c, p := range assign(g, least, most, pl.cost) {
			give(c, p)
		}
	default:
		least, most := make([]int, g), make([]int, g)
		for c := range g {
			least[c], most[c] = n/g, (n+g-1)/g
		}
		byPort := make([]assignCost, n*g)
		for c := range g {
			for p := range n {
				d := pl.cost[c*n+p]
				d[assignEvenClass], d[assignEvenRate] = d[assignClass], d[assignRate]/int64(topo.MBPerSec)
				byPort[p*g+c] = d
			}
		}
		for p, c := range assign(n, least, most, byPort) {
			give(c, p)
		}
	}
}

// portRates gives for each port the rate to the consumer that it serves best.
// Rates within a tenth of a faster one's count as that, so that noise in
// measurements moves no consumer. Where a rate is not known, all ports count alike.
func (pl *planner) portRates() []float64 {
	rates := make([]float64, len(pl.ports))
	for i, p := range pl.ports {
		best := topo.Rate(-1)
		for _, c := range pl.consumers {
			best = max(best, pl.h.routes[c.loc][p.Index].rate)
		}
		if rates[i] = float64(best); best < 0 {
			return slices.Repeat([]float64{1}, len(pl.ports))
		}
	}
	sorted := slices.Clone(rates)
	slices.Sort(sorted)
	slices.Reverse(sorted)
	leader := map[float64]float64{}
	head := sorted[0]
	for _, r := range sorted {
		if r < head*0.9 {
			head = r
		}
		leader[r] = head
	}
	for i, r := range rates {
		rates[i] = leader[r]
	}
	return rates
}

// planQuotas says how many of g consumers each port gets, in proportion to the
// ports' rates and at least one: consumers go one by one where each then has
// most (the method of D'Hondt, which makes the smallest part as large as can
// be). Ports that tie for the last ones may have one more or not; which of them
// do is left to the costs.
func planQuotas(rates []float64, g int) (least, most []int) {
	least = slices.Repeat([]int{1}, len(rates))
	for left := g - len(rates); ; {
		part, ties := 0.0, []int(nil)
		for i, r := range rates {
			switch p := r / float64(least[i]+1); {
			case p > part:
				part, ties = p, append(ties[:0], i)
			case p == part:
				ties = append(ties, i)
			}
		}
		if len(ties) >= left {
			most = slices.Clone(least)
			if left > 0 {
				for _, i := range ties {
					most[i]++
				}
			}
			return least, most
		}
		for _, i := range ties {
			least[i]++
		}
		left -= len(ties)
	}
}

// planFlows is the data of each consumer through each of its ports, in the order of consumers.
type planFlows struct {
	consumers, ports []int // places of both
	flows            []maxmin.Flow
	bases            []topo.Basis
}

// of gives the flows of one consumer, or of one port.
func (f *planFlows) of(list []int, place int) (flows []maxmin.Flow, bases []topo.Basis) {
	for k, at := range list {
		if at == place {
			flows, bases = append(flows, f.flows[k]), append(bases, f.bases[k])
		}
	}
	return flows, bases
}

// evaluate lets all consumers move data through their ports at once and says
// what each gets.
func (pl *planner) evaluate() *Plan {
	f := pl.flow()
	p := &Plan{Assignments: make([]Assignment, len(pl.consumers)), Rejected: pl.rejected()}
	p.BytesPerSec, p.Basis = pl.h.together(f.flows, f.bases)
	for c := range pl.consumers {
		p.Assignments[pl.consumers[c].place] = pl.assigned(c, f)
	}
	if len(pl.h.ports) == 0 { // the origin tells of no port: that is not to say that there is none
		p.BytesPerSec = nil
		for i := range p.Assignments {
			p.Assignments[i].BytesPerSec = nil
		}
	}
	p.Ports = pl.loads(f)
	p.Bottleneck = pl.bottleneck(p, f)
	p.Nearness = pl.nearness(p)
	return p
}

// flow shares the links among all pairs of consumer and port. Each pair weighs
// the same: so do connections that compete for a link.
func (pl *planner) flow() *planFlows {
	f := &planFlows{}
	var routes []*route
	var ports []*Port
	for c, of := range pl.portsOf {
		for _, p := range of {
			f.consumers, f.ports = append(f.consumers, c), append(f.ports, p)
			routes, ports = append(routes, pl.route(c, p)), append(ports, pl.ports[p])
		}
	}
	f.flows, f.bases = pl.h.flows(routes, ports)
	return f
}

// planLimit is the link that keeps a consumer from more, -1 if no such link is known:
// a full one that all of its data crosses, else what bounds its slowest port.
func planLimit(flows []maxmin.Flow) segment {
	limit, least := segment(-1), topo.Rate(0)
	for i := range flows {
		f := &flows[i]
		if f.Unlimited() {
			continue
		}
		if !slices.ContainsFunc(flows, func(other maxmin.Flow) bool { return !slices.Contains(other.Segments, f.Limit) }) {
			return f.Limit
		}
		if rate := roundRate(f.Rate); limit < 0 || rate < least {
			limit, least = f.Limit, rate
		}
	}
	return limit
}

func (pl *planner) route(consumer, port int) *route {
	return &pl.h.routes[pl.consumers[consumer].loc][pl.ports[port].Index]
}

// assigned is what a consumer was given.
func (pl *planner) assigned(c int, f *planFlows) Assignment {
	a := Assignment{Consumer: pl.consumers[c].Name, Location: pl.consumers[c].Location, Ports: []Candidate{}}
	flows, bases := f.of(f.consumers, c)
	a.BytesPerSec, a.Basis = pl.h.together(flows, bases)
	if limit := planLimit(flows); limit >= 0 {
		a.Limit = pl.h.linkOf(limit).ID
	}
	ports := slices.Clone(pl.portsOf[c])
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
		if p := pl.h.missed(pl.consumers[c].loc, &a.Ports[0]); p != nil {
			r := p.Reasons[0]
			r.Text = fmt.Sprintf("%s (%s) is nearer and takes no part: %s", p.Name, pl.h.routes[pl.consumers[c].loc][p.Index].class, r.Text)
			a.Ports[0].Notes = append(a.Ports[0].Notes, r)
		}
	}
	return a
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
		case slices.Contains(pl.portsOf[c], other):
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
		out.Reason = bestReason(pl.h.nearest(&out), &out)
	case own && !out.Class.Known():
		out.Reason = Reason{CodeSpare, fmt.Sprintf("idle otherwise%s; how near %s", about(&out), pl.h.Unseen()), ""}
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
	out := make([]string, 0, len(pl.consumersOf[port]))
	for _, c := range pl.consumersOf[port] {
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

// loads says for each port whom it serves and how much flows through it.
func (pl *planner) loads(f *planFlows) []PortLoad {
	out := make([]PortLoad, len(pl.ports))
	for i, p := range pl.ports {
		out[i] = PortLoad{Port: p.ID, Name: p.Name, Consumers: pl.names(i)}
		out[i].BytesPerSec, out[i].Basis = pl.h.together(f.of(f.ports, i))
		for _, c := range pl.consumersOf[i] {
			out[i].Share += 1 / float64(len(pl.portsOf[c]))
		}
	}
	slices.SortStableFunc(out, func(a, b PortLoad) int {
		return cmp.Compare(pl.h.portIndex[a.Port], pl.h.portIndex[b.Port])
	})
	return out
}

// bottleneck finds the slowest consumer, the first among equals, and the link that limits it.
func (pl *planner) bottleneck(p *Plan, f *planFlows) *Bottleneck {
	var slow *Assignment
	limit := segment(-1)
	for c := range pl.consumers {
		mine, _ := f.of(f.consumers, c)
		a := &p.Assignments[pl.consumers[c].place]
		if at := planLimit(mine); at >= 0 && a.BytesPerSec != nil && (slow == nil || *a.BytesPerSec < *slow.BytesPerSec) {
			slow, limit = a, at
		}
	}
	if slow == nil {
		return nil
	}
	link := pl.h.linkOf(limit)
	b := &Bottleneck{Link: link.ID, BytesPerSec: link.BytesPerSec, Basis: slow.Basis, Consumers: []string{},
		SlowestBytesPerSec: *slow.BytesPerSec, AsSlow: []string{}}
	behind := make([]bool, len(pl.consumers))
	for k, c := range f.consumers {
		behind[c] = behind[c] || slices.Contains(f.flows[k].Segments, limit)
	}
	for c := range pl.consumers {
		switch rate := p.Assignments[pl.consumers[c].place].BytesPerSec; {
		case behind[c]:
			b.Consumers = append(b.Consumers, pl.consumers[c].Name)
		case rate != nil && *rate == b.SlowestBytesPerSec:
			b.AsSlow = append(b.AsSlow, pl.consumers[c].Name)
		}
	}
	return b
}

// rejected are the ports that take no part. Their class depends on the
// memory location, so they have none.
func (pl *planner) rejected() []Candidate {
	out := []Candidate{}
	for i := range pl.h.ports {
		p := &pl.h.ports[i]
		reasons := p.Reasons
		switch {
		case p.Usable && !pl.carries(p):
			reasons = append([]Reason{{codeNoRate, "a link on its way carries no data", ""}}, reasons...)
		case p.Usable:
			continue
		}
		out = append(out, Candidate{Port: p.ID, NIC: p.NIC, Name: p.Name, Verdict: Rejected, Role: p.Role, Basis: topo.BasisUnknown,
			Reason: reasons[0], Notes: slices.Clone(reasons[1:]), index: i, doubt: p.doubt})
	}
	return out
}

package pathsel

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// planner is a plan in the making. Consumers and ports are in an order that
// does not depend on the input's: consumers by location and name, ports by PCI
// address as the GPUs are, so that those of one card are together.
type planner struct {
	h         *Host
	consumers []planConsumer
	ports     []*Port
	cost      []assignCost // [consumer*len(ports)+port]
	given     [][]int      // the ports of each consumer, places in ports
	served    [][]int      // the consumers of each port, places in consumers
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
		return nil, fmt.Errorf("pathsel: plan: %d usable ports: want at most %d", len(pl.ports), assignMax)
	}
	slices.SortFunc(pl.ports, planOrder)
	pl.price()
	return pl, nil
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
	pl.given, pl.served = make([][]int, g), make([][]int, n)
	give := func(consumer, port int) {
		pl.given[consumer] = append(pl.given[consumer], port)
		pl.served[port] = append(pl.served[port], consumer)
	}
	switch {
	case n == 0:
	case n < g:
		least, most := planQuotas(pl.portRates(), g)
		for c, p := range newAssignment(g, least, most, pl.cost).solve() {
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
		for p, c := range newAssignment(n, least, most, byPort).solve() {
			give(c, p)
		}
	}
}

// portRates is what each port can carry for the consumer that it is best for.
// Rates within a tenth of a faster one's count as that, so that noise in
// measurements moves nobody. Where a rate is not known, all ports count alike.
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

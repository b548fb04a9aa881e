package plan

import (
	"fmt"
	"math"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
	"github.com/topoctl/topoctl/probe"
)

// share lowers what is expected of pairs that share links in their round, to a max-min
// fair part: all grow alike until a link is full.
func (p *Plan) share(links map[probe.LinkKey]*probe.Link) {
	if p.Schedule == ByLink && p.Contend == "" || p.Schedule == Serial {
		return
	}
	for _, round := range p.Rounds {
		f := newFill(p.Pairs.Pairs, round, links)
		f.run()
		for n, i := range round {
			if f.apply(n, &p.Pairs.Pairs[i]) {
				p.Shared = append(p.Shared, i)
			}
		}
	}
}

// fill is the pairs of one round on the links that several of them cross.
type fill struct {
	flows []flow
	links []*shared
}

type flow struct {
	links []*shared
	alone float64 // infinite where it is not known
	part  float64 // of its rate that each direction has: half where both count
	rate  float64
	done  bool
	limit *shared // what stopped it, nil its own rate
}

type shared struct {
	link  *probe.Link
	left  float64
	users int
	grow  float64 // parts of the flows that still grow
}

func newFill(pairs []probe.Pair, round []int, links map[probe.LinkKey]*probe.Link) *fill {
	f := &fill{flows: make([]flow, len(round))}
	at := map[probe.LinkKey]*shared{}
	for n, i := range round {
		x := &f.flows[n]
		x.alone, x.part = math.Inf(1), 1
		if r := pairs[i].Expected.BytesPerSec; r != nil {
			x.alone = float64(*r)
		}
		if pairs[i].Kind == probe.Memory && pairs[i].Variant == probe.VariantCopy {
			x.part = 0.5
		}
		for _, c := range crossings(&pairs[i], links) {
			s := at[c.key]
			if s == nil {
				s = &shared{link: c.link, left: math.Inf(1)}
				if r := c.link.Payload(); r != nil {
					s.left = float64(*r)
				}
				at[c.key] = s
				f.links = append(f.links, s)
			}
			s.users++
			s.grow += x.part
			x.links = append(x.links, s)
		}
	}
	return f
}

// run grows the flows. One that is stopped by nothing keeps an infinite rate.
func (f *fill) run() {
	const tiny = 1e-9
	level := 0.0
	for {
		next := math.Inf(1)
		for i := range f.flows {
			if !f.flows[i].done {
				next = min(next, f.flows[i].alone)
			}
		}
		for _, s := range f.links {
			if s.grow > tiny {
				next = min(next, level+s.left/s.grow)
			}
		}
		if math.IsInf(next, 1) {
			break
		}
		for _, s := range f.links {
			if s.grow > tiny {
				s.left = max(0, s.left-(next-level)*s.grow)
			}
		}
		level = next
		if !f.stop(level) {
			break // rounding left nothing to stop: no progress, no end
		}
	}
	for i := range f.flows {
		if !f.flows[i].done {
			f.flows[i].rate = math.Inf(1)
		}
	}
}

// stop ends the flows that have all they can: of a full link, or their own rate.
func (f *fill) stop(level float64) bool {
	any := false
	for i := range f.flows {
		x := &f.flows[i]
		if x.done {
			continue
		}
		if x.alone <= level*(1+1e-9) {
			x.done, x.rate = true, x.alone
		}
		for _, s := range x.links {
			if !x.done && s.link.BytesPerSec != nil && s.left <= 1e-9*float64(*s.link.BytesPerSec) {
				x.done, x.rate, x.limit = true, level, s
			}
		}
	}
	for i := range f.flows {
		x := &f.flows[i]
		if x.done && x.part > 0 {
			any = true
			for _, s := range x.links {
				s.grow -= x.part
			}
			x.part = 0
		}
	}
	return any
}

// apply tells a pair what it has of the round; true where that is less than alone, or
// may be.
func (f *fill) apply(n int, p *probe.Pair) bool {
	x := &f.flows[n]
	if x.limit != nil && x.rate < x.alone*(1-1e-6) {
		rate, l := topo.Rate(math.Floor(x.rate+1e-3)), x.limit.link
		alone := "nothing is known of it alone"
		if p.Expected.BytesPerSec != nil {
			alone = "alone " + units.Rate(int64(*p.Expected.BytesPerSec), units.Gbyte)
		}
		e := probe.Expected{BytesPerSec: &rate, Basis: l.Basis, Limit: l.Key}
		if p.Expected.Basis == topo.BasisAssumed {
			e.Basis = topo.BasisAssumed
		}
		e.Why = fmt.Sprintf("%s: %s, %s, shared with %s: %s; %s", l.Name, units.Rate(int64(*l.BytesPerSec), units.Gbyte), l.Basis,
			plural(x.limit.users-1, "other pair"), units.Rate(int64(rate), units.Gbyte), alone)
		p.Expected = e
		p.Group += " shared " + units.Rate(int64(rate), units.Gbyte)
		return true
	}
	for _, s := range x.links {
		if s.users > 1 && s.link.BytesPerSec == nil && p.Expected.BytesPerSec != nil {
			p.Expected.Basis = topo.BasisAssumed
			p.Expected.Why += fmt.Sprintf("; at most: %s is shared with %s, and its rate is not known", s.link.Name, plural(s.users-1, "other pair"))
			p.Group += fmt.Sprintf(" shared by %d", s.users)
			return true
		}
	}
	return false
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

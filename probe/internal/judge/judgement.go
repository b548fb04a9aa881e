package judge

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
)

// tooFast is the part of a rate that was read above which a measurement is wrong.
const tooFast = 1.05

// judgement is a report with what judging it looks up.
type judgement struct {
	r        *probe.Report
	index    map[string]int // of results by ID
	links    map[probe.LinkKey]*probe.Link
	figures  []figure
	exceeded []float64 // the limit that a result is faster than, 0 none
	groups   map[string]*group
	filled   []probe.LinkKey // after fillLinks: the link that the pairs of the round filled, by result; "" none
}

// group are pairs that should do equally well.
type group struct {
	rates, latencies int     // how many were measured
	best             float64 // the best mean, and the lower end of its interval
	bestLo           float64
	fastest          float64 // the smallest latency, ns
}

func newJudgement(r *probe.Report) *judgement {
	c := &judgement{r: r, index: make(map[string]int, len(r.Results)), links: make(map[probe.LinkKey]*probe.Link, len(r.Links)),
		figures: make([]figure, len(r.Results)), exceeded: make([]float64, len(r.Results)), groups: make(map[string]*group)}
	for i := range r.Links {
		c.links[r.Links[i].Key] = &r.Links[i]
	}
	for i := range r.Results {
		res := &r.Results[i]
		c.index[res.ID] = i
		if res.Measurement.Waived != "" && res.Pair.Waived == "" {
			res.Pair.Waived = res.Measurement.Waived
		}
		if res.Err != nil && res.Error == "" {
			res.Error, res.ErrorCause = res.Err.Error(), probe.CauseOf(res.Err)
		}
		c.figures[i] = figureOf(&res.Measurement, &r.Spec)
		c.exceeded[i] = c.exceededLimit(i)
		c.addToGroup(i)
	}
	return c
}

// usable says whether the figures of a result are credible.
func (c *judgement) usable(i int) bool {
	res := &c.r.Results[i]
	return res.Pair.Waived == "" && res.Error == "" && c.exceeded[i] == 0 && (c.figures[i].measured || c.figures[i].latency > 0)
}

// addToGroup takes the figures of a result into account for the best of its group.
func (c *judgement) addToGroup(i int) {
	name := c.r.Results[i].Group
	if name == "" || !c.usable(i) {
		return
	}
	g := c.groups[name]
	if g == nil {
		g = &group{}
		c.groups[name] = g
	}
	f := &c.figures[i]
	if f.measured {
		g.rates++
		// By the lower end: a few scattered samples are no best for others to reach.
		if f.lo > g.bestLo {
			g.best, g.bestLo = f.mean, f.lo
		}
	}
	if f.latency > 0 {
		if g.latencies++; g.latencies == 1 || f.latency < g.fastest {
			g.fastest = f.latency
		}
	}
}

// exceededLimit is the limit on the path that was read from the hardware and that the figure exceeds, 0
// none.
func (c *judgement) exceededLimit(i int) float64 {
	f := &c.figures[i]
	if limit := c.lowestReadRate(i); f.measured && f.lo > tooFast*limit {
		return max(limit, 1)
	}
	return 0
}

// lowestReadRate is the smallest rate on the path that was read from the hardware.
func (c *judgement) lowestReadRate(i int) float64 {
	res, limit := &c.r.Results[i], math.Inf(1)
	// The rate of a link that the report lists counts itself: of it, a pair that shares it
	// is promised a part only.
	if e := res.Expected; e.Basis == topo.BasisRead && e.BytesPerSec != nil && c.links[e.Limit] == nil {
		limit = float64(*e.BytesPerSec)
	}
	for _, key := range res.Path {
		if l := c.links[key]; l != nil && l.Basis == topo.BasisRead && l.BytesPerSec != nil {
			limit = min(limit, float64(*l.BytesPerSec)/c.linkShare(i))
		}
	}
	return limit
}

// linkShare is how much of a result's rate crosses each of its links: a copy in memory counts bytes that
// are loaded and bytes that are stored, and each goes one way.
func (c *judgement) linkShare(i int) float64 {
	if res := &c.r.Results[i]; res.Kind == probe.Memory && res.Variant == probe.VariantCopy {
		return 0.5
	}
	return 1
}

// expected is the rate that a result is compared with: the one that the topology promises, or a lower rate
// limit. limited says that it is the limit.
func (c *judgement) expected(i int) (rate float64, limited bool) {
	e := c.r.Results[i].Expected.BytesPerSec
	if e == nil || *e <= 0 {
		return 0, false
	}
	if limit := c.rateLimit(i); limit < float64(*e) {
		return limit, true
	}
	return float64(*e), false
}

// rateLimit is the limit that the run or an agent put on a result.
func (c *judgement) rateLimit(i int) float64 {
	limit := math.Inf(1)
	for _, l := range []int64{c.r.Spec.RateLimit, c.r.Results[i].RateLimit} {
		if l > 0 {
			limit = min(limit, float64(l))
		}
	}
	return limit
}

// outlier compares with the best of the group, or with the rate limit of the pair: the whole interval must
// be below.
func (c *judgement) outlier(i int, f *figure) bool {
	g := c.groups[c.r.Results[i].Group]
	return g != nil && f.measured && g.rates > 1 && f.hi < c.r.Rules.OutlierUnder*min(g.bestLo, c.rateLimit(i))
}

// latencyOutlier says whether a latency is an outlier of its group. What a path adds is in each of its round
// trips: where the quickest took no longer than others' do, the ends were late.
func (c *judgement) latencyOutlier(i int, f *figure) bool {
	g := c.groups[c.r.Results[i].Group]
	return g != nil && f.latency > 0 && g.latencies > 1 && f.latency > c.r.Rules.OutlierOver*g.fastest && f.quickest >= g.fastest
}

// round is equal for results that were measured together, 0 for one that was not measured.
func (c *judgement) round(i int) int { return max(0, c.r.Results[i].Round) }

// fillLinks finds the links that the pairs of a round filled together. A pair that crosses such a link and
// had a fair share of it was slower than it would be alone, and nothing is wrong.
func (c *judgement) fillLinks() {
	c.filled = make([]probe.LinkKey, len(c.r.Results))
	together := make(map[int][]int)
	for i := range c.r.Results {
		if n := c.round(i); n > 0 && c.figures[i].measured && c.exceeded[i] == 0 {
			together[n] = append(together[n], i)
		}
	}
	for _, round := range together {
		if len(round) < 2 {
			continue
		}
		sum, users := make(map[probe.LinkKey]float64), make(map[probe.LinkKey]int)
		for _, i := range round {
			path := c.r.Results[i].Path
			for j, key := range path {
				if !slices.Contains(path[:j], key) {
					sum[key] += c.figures[i].mean * c.linkShare(i)
					users[key]++
				}
			}
		}
		for _, i := range round {
			for _, key := range c.r.Results[i].Path {
				if c.filledBy(key, sum[key], users[key], c.figures[i].mean*c.linkShare(i)) {
					c.filled[i] = key
					break
				}
			}
		}
	}
}

// filledBy says whether a link was full, and this user had its share. A link of unknown rate may have been, where
// pairs share links on purpose.
func (c *judgement) filledBy(key probe.LinkKey, sum float64, users int, mine float64) bool {
	l := c.links[key]
	if users < 2 || l == nil {
		return false
	}
	if l.BytesPerSec == nil {
		return !c.disjoint()
	}
	full := c.r.Rules.WarnUnder * float64(*l.Payload())
	return sum >= full && mine >= full/float64(users)
}

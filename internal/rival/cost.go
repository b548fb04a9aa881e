package rival

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Cost compares an engine's choice with pathsel's own: as many ports, taken from
// the head of pathsel's order, used together where the engine does so and one
// of them where it does that.
type Cost struct {
	Verdict CostVerdict `json:"verdict"`
	// BytesPerSec is pathsel's rate minus the engine's, below 0 where the
	// engine's is higher; null where it is not known.
	BytesPerSec *topo.Rate `json:"bytes_per_sec"`
	Percent     *float64   `json:"percent"` // of pathsel's rate
	Bound       Bound      `json:"bound"`   // what the difference is worth
	Text        string     `json:"text"`

	OwnPorts       []topo.ID  `json:"pathsel_ports"`
	OwnBytesPerSec *topo.Rate `json:"pathsel_bytes_per_sec"`
	OwnBasis       topo.Basis `json:"pathsel_basis"`
}

// CostVerdict sums a comparison up.
type CostVerdict string

// The outcomes of a comparison.
const (
	Same    CostVerdict = "same"    // the same ports
	Equal   CostVerdict = "equal"   // other ports, the same rate
	Slower  CostVerdict = "slower"  // the engine's choice carries less
	Faster  CostVerdict = "faster"  // the engine's choice carries more
	Unknown CostVerdict = "unknown" // a rate that decides is not known
)

// Bound says what a difference is worth where a rate is a bound or typical.
type Bound string

// What a difference can be.
const (
	Exact   Bound = "exact"
	AtLeast Bound = "at_least" // the engine's rate is an upper bound
	AtMost  Bound = "at_most"  // pathsel's rate is an upper bound
	About   Bound = "about"    // a rate is typical
	NoBound Bound = "unknown"
)

// weigh fills in what a choice carries and what it costs.
func (v *view) weigh(c *Choice) error {
	n := len(c.Chosen)
	c.Basis = topo.BasisUnknown
	c.Cost.OwnPorts, c.Cost.OwnBasis, c.Cost.Bound = []topo.ID{}, topo.BasisUnknown, NoBound
	if n == 0 {
		c.Cost.Verdict, c.Cost.Text = Unknown, "it chooses no RDMA port"
		if len(c.Notes) > 0 {
			c.Cost.Text = c.Notes[0].Text
		}
		return nil
	}
	for i := range v.own.Ranked[:min(n, len(v.own.Ranked))] {
		c.Cost.OwnPorts = append(c.Cost.OwnPorts, v.own.Ranked[i].Port)
	}
	if err := v.rates(c); err != nil {
		return err
	}
	c.compare()
	return nil
}

// rates fills in the rates of both sides.
func (v *view) rates(c *Choice) error {
	if c.Use == OneOf {
		c.BytesPerSec, c.Basis = mean(c.Chosen)
		if len(v.own.Ranked) > 0 {
			c.Cost.OwnBytesPerSec, c.Cost.OwnBasis = v.own.Ranked[0].BytesPerSec, v.own.Ranked[0].Basis
		}
		return nil
	}
	ids, weights := make([]topo.ID, len(c.Chosen)), make([]float64, len(c.Chosen))
	for i := range c.Chosen {
		ids[i], weights[i] = c.Chosen[i].Port, c.Chosen[i].Share
	}
	rate, basis, err := v.h.Split(v.loc, ids, weights)
	if err != nil {
		return pkgerr.Errorf("rival", "%w", err)
	}
	c.BytesPerSec, c.Basis = rate, basis
	if len(c.Cost.OwnPorts) == 0 {
		return nil
	}
	own, err := v.h.Capacity(v.loc, c.Cost.OwnPorts)
	if err != nil {
		return pkgerr.Errorf("rival", "%w", err)
	}
	c.Cost.OwnBytesPerSec, c.Cost.OwnBasis = own.BytesPerSec, own.Basis
	return nil
}

// mean is what transfers get on average that each take one of the ports.
func mean(picks []Pick) (*topo.Rate, topo.Basis) {
	sum, basis := 0.0, picks[0].Basis
	for i := range picks {
		p := &picks[i]
		if p.BytesPerSec == nil {
			return nil, topo.BasisUnknown
		}
		sum += p.Share * float64(*p.BytesPerSec)
		if p.Basis.Compare(basis) > 0 {
			basis = p.Basis
		}
	}
	rate := topo.Rate(math.Round(sum))
	return &rate, basis
}

// compare says what the engine's choice costs.
func (c *Choice) compare() {
	k := &c.Cost
	chosen := make([]topo.ID, len(c.Chosen))
	for i := range c.Chosen {
		chosen[i] = c.Chosen[i].Port
	}
	own := slices.Sorted(slices.Values(k.OwnPorts))
	slices.Sort(chosen)
	same := slices.Equal(own, chosen)
	switch {
	case len(own) == 0:
		k.Verdict, k.Text = Unknown, "pathsel has no usable port to compare with"
		return
	case same && c.Use == OneOf && len(own) > 1 && !equalRates(c.Chosen):
		same = false // it takes any of them, pathsel the best
	}
	if same && (c.BytesPerSec == nil || k.OwnBytesPerSec == nil || tiny(*c.BytesPerSec-*k.OwnBytesPerSec)) {
		k.Verdict, k.Text = Same, "the same choice"
		return
	}
	if c.BytesPerSec == nil || k.OwnBytesPerSec == nil {
		k.Verdict, k.Text = Unknown, "not known: a rate is not known"
		return
	}
	if tiny(*c.BytesPerSec-*k.OwnBytesPerSec) && !slices.ContainsFunc(c.Chosen, func(p Pick) bool { return !p.preferred }) {
		k.Verdict, k.Text = Equal, "other ports, which pathsel prefers as much"
		return
	}
	k.settle(*c.BytesPerSec, c.Basis)
}

// tiny says whether a difference is no more than rounding leaves.
func tiny(difference topo.Rate) bool {
	return difference > -topo.MBPerSec && difference < topo.MBPerSec
}

func equalRates(picks []Pick) bool {
	for i := range picks {
		a, b := picks[0].BytesPerSec, picks[i].BytesPerSec
		if (a == nil) != (b == nil) || a != nil && *a != *b {
			return false
		}
	}
	return true
}

// settle compares two known rates. A rate that is an upper bound decides
// nothing on its side.
func (k *Cost) settle(rate topo.Rate, basis topo.Basis) {
	difference := *k.OwnBytesPerSec - rate
	if tiny(difference) {
		difference = 0
	}
	mine, theirs := k.OwnBasis == topo.BasisBound, basis == topo.BasisBound
	switch {
	case mine && theirs:
		k.Verdict, k.Text = Unknown, "not known: the rates of both are upper bounds"
		return
	case theirs && difference <= 0:
		k.Verdict, k.Text = Unknown, "not known: the rate of its choice is an upper bound"
		return
	case mine && difference == 0:
		k.Verdict, k.Text = Unknown, "none: its choice carries at least as much as pathsel's upper bound"
		return
	case k.OwnBasis == topo.BasisTypical || basis == topo.BasisTypical:
		k.Bound = About
	case mine && difference > 0:
		k.Bound = AtMost
	case mine, theirs: // an upper bound on the lower side: the true difference is larger
		k.Bound = AtLeast
	default:
		k.Bound = Exact
	}
	k.BytesPerSec = &difference
	if *k.OwnBytesPerSec > 0 {
		percent := math.Round(1000*float64(difference)/float64(*k.OwnBytesPerSec)) / 10
		k.Percent = &percent
	}
	switch {
	case difference == 0:
		k.Verdict, k.Text = Equal, "other ports, the same rate"
	case difference > 0:
		k.Verdict, k.Text = Slower, k.words(difference, "slower")
	default:
		k.Verdict, k.Text = Faster, k.words(-difference, "faster")
	}
}

// words is the difference for people.
func (k *Cost) words(difference topo.Rate, word string) string {
	s := difference.String() + " " + word
	if k.Percent != nil {
		s += " (" + percent(math.Abs(*k.Percent)/100) + ")"
	}
	switch k.Bound {
	case AtLeast:
		return "at least " + s
	case AtMost:
		return topo.BasisBound.Text(s)
	case About:
		return topo.BasisTypical.Text(s)
	}
	return s
}

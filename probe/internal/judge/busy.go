package judge

import "github.com/topoctl/topoctl/probe"

// busyMargin is how many times as much a host must have moved, as busy, with another end: only then is its
// being busy no reason.
const busyMargin = 2

// busiest is the busiest of the hosts at the ends of a pair that were too busy; nil: none was.
func busiest(p *probe.Pair, loads []probe.ProcessorLoad) *probe.ProcessorLoad {
	var most *probe.ProcessorLoad
	for i := range loads {
		if l := &loads[i]; l.TooBusy(p) && (most == nil || l.Busy > most.Busy) {
			most = l
		}
	}
	return most
}

// heldUp is a busy host that may be why result i moved no more than hi; nil if no end was
// busy, or each that was moved far more with others at another time, and was as busy then.
func (c *judgement) heldUp(i int, hi float64, loads []probe.ProcessorLoad) *probe.ProcessorLoad {
	p := &c.r.Results[i].Pair
	for k := range loads {
		if l := &loads[k]; l.TooBusy(p) && !c.movedMore(i, l.Host, busyMargin*hi) {
			return l
		}
	}
	return nil
}

// movedMore says whether a busy host moved more than a rate in a pair like result i.
func (c *judgement) movedMore(i int, host string, rate float64) bool {
	for j := range c.r.Results {
		res, f := &c.r.Results[j], &c.figures[j]
		if j == i || res.Group != c.r.Results[i].Group || !c.usable(j) || !f.measured || f.lo <= rate {
			continue
		}
		for k := range res.Processors {
			if l := &res.Processors[k]; l.Host == host && l.TooBusy(&res.Pair) {
				return true
			}
		}
	}
	return false
}

// busyText says that a host was busy.
func busyText(l *probe.ProcessorLoad) string {
	return "the processors of " + clean(l.Host) + " were " + percent(l.Busy, 1) + " busy"
}

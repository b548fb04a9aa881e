package judge

import (
	"slices"

	"github.com/topoctl/topoctl/probe"
)

// Processors that have something else to do move bytes later than the path would. How busy they may be
// depends on what a measurement needs: one between hosts takes a core or two at each end and lives with
// what is left of the others, one within a host may take all of them.
const (
	busyBetween = 0.9 // part of the processors' time that all processes take
	busyWithin  = 0.1 // and that others take
	// busyMargin is how many times as much a host must have moved, as busy, with another end: only then
	// is its being busy no reason.
	busyMargin = 2
)

// isBusy says whether a host was too busy for a measurement of a pair to tell what the path carries.
func isBusy(p *probe.Pair, l *probe.ProcessorLoad) bool {
	if p.From.Host != p.To.Host {
		return l.Busy >= busyBetween
	}
	return l.Busy-l.Own >= busyWithin
}

// BusyHosts are the hosts at the ends of a result that were too busy to tell.
func BusyHosts(x *probe.Result) []probe.ProcessorLoad {
	return slices.DeleteFunc(slices.Clone(x.Processors), func(l probe.ProcessorLoad) bool { return !isBusy(&x.Pair, &l) })
}

// busiest is the busiest of the hosts at the ends of a pair that were too busy; nil: none was.
func busiest(p *probe.Pair, loads []probe.ProcessorLoad) *probe.ProcessorLoad {
	var most *probe.ProcessorLoad
	for i := range loads {
		if l := &loads[i]; isBusy(p, l) && (most == nil || l.Busy > most.Busy) {
			most = l
		}
	}
	return most
}

// heldUp is a busy host that may be why result i moved no more than hi; nil if there is none: no end was
// busy, or each that was moved far more with others at another time, and was as busy then.
func (c *judgement) heldUp(i int, hi float64, loads []probe.ProcessorLoad) *probe.ProcessorLoad {
	p := &c.r.Results[i].Pair
	for k := range loads {
		if l := &loads[k]; isBusy(p, l) && !c.movedMore(i, l.Host, busyMargin*hi) {
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
			if l := &res.Processors[k]; l.Host == host && isBusy(&res.Pair, l) {
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

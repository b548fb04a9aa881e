package audit

import (
	"fmt"
	"time"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

// tally adds up what one port or interface carried.
type tally struct {
	last    *counters.Port // the latest reading of it
	lastNS  int64
	readNS  int64 // of the latest sample, with it or without
	total   Traffic
	times   int // it was read
	resets  int
	resetNS int64
	state   string
	rate    *topo.Rate
	// begun says that the port was in the first sample. What a later one carried before is not known.
	begun bool
}

// add takes in a sample that has the port, or nil where it has not.
func (t *tally) add(at int64, first bool, p *counters.Port) {
	t.readNS = at
	if p == nil {
		return
	}
	if t.last == nil {
		t.begun = first
	} else {
		t.count(at, p)
	}
	t.last, t.lastNS, t.state = p, at, p.State
	t.times++
	if p.BytesPerSec != nil {
		t.rate = p.BytesPerSec
	}
}

// count adds what was carried since the reading before. Where any counter went back, all of them
// began anew: they belong to one device.
func (t *tally) count(at int64, p *counters.Port) {
	was := t.last
	pairs := []struct {
		before, after *uint64
		total         **uint64
	}{
		{was.SentBytes, p.SentBytes, &t.total.SentBytes}, {was.ReceivedBytes, p.ReceivedBytes, &t.total.ReceivedBytes},
		{was.SentPackets, p.SentPackets, &t.total.SentPackets}, {was.ReceivedPackets, p.ReceivedPackets, &t.total.ReceivedPackets},
	}
	for _, c := range pairs {
		if c.before != nil && c.after != nil && *c.after < *c.before {
			t.resets++
			t.resetNS = at
			return
		}
	}
	for _, c := range pairs {
		if c.before == nil || c.after == nil {
			continue
		}
		if *c.total == nil {
			*c.total = new(uint64)
		}
		**c.total += *c.after - *c.before
	}
}

// in is what the port carried in both directions, in a unit. It is unknown if either direction is.
func (t Traffic) in(u Unit) (n uint64, known bool) {
	sent, received := t.SentBytes, t.ReceivedBytes
	if u == Packets {
		sent, received = t.SentPackets, t.ReceivedPackets
	}
	if sent == nil || received == nil {
		return 0, false
	}
	return *sent + *received, true
}

// doubt is why the port's total is not all that it carried; "" where it is.
func (t *tally) doubt(u Unit, begunNS int64) string {
	since := func(at int64) string { return time.Duration(at - begunNS).Round(100 * time.Millisecond).String() }
	_, known := t.total.in(u)
	switch {
	case t.last == nil:
		return "it has no counters that could be read"
	case t.lastNS < t.readNS:
		return fmt.Sprintf("it vanished: its counters were last read %s into the run", since(t.lastNS))
	case !t.begun:
		return "it appeared during the run"
	case t.resets > 0:
		return fmt.Sprintf("its counters were reset %s into the run: it carried at least what is shown", since(t.resetNS))
	case known:
		return ""
	case t.times == 1:
		return "its counters were read once"
	case u == Bytes && t.last.SentPackets != nil:
		return "its driver counts packets and no bytes"
	}
	return fmt.Sprintf("its driver counts no %s, or the counters stand at their limit", u)
}

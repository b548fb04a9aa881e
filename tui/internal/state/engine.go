package state

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/record"
)

// laneKey is what a lane is known by from one answer of its engine to the next.
type laneKey struct {
	peer, lane string
	id         uint32
}

// connKey is what a connection is known by: two peers may give theirs the same number.
type connKey struct {
	conn                    uint64
	peer, transport, remote string
}

func connKeyOf(c *engine.ServedStats) connKey {
	return connKey{c.Conn, c.Peer, string(c.Transport), c.RemoteAddress}
}

// engine takes in an engine's answer.
func (s *State) engine(source string, now *record.Engine) {
	i, found := s.findEngine(source)
	if !found {
		s.Engines = slices.Insert(s.Engines, i, &Engine{Source: source, Last: now})
	}
	e, ns := s.Engines[i], s.Now-s.Engines[i].LastNS
	switch {
	case e.Last.Name != now.Name: // another engine at the same address
		*e, ns = Engine{Source: source, Last: now}, 0
	case !found || restarted(e.Last, now):
		ns = 0 // what it counts began: differences mean nothing
	}
	e.ReadBytesPerSec.Push(perSec(e.Last.ServedReadBytes, now.ServedReadBytes, ns))
	e.WrittenBytesPerSec.Push(perSec(e.Last.ServedWrittenBytes, now.ServedWrittenBytes, ns))
	e.lanes(now, ns)
	e.served(now, ns)
	e.Last, e.LastNS = now, s.Now
}

// restarted says whether an engine counts from the beginning again.
func restarted(was, now *record.Engine) bool {
	return now.Batches < was.Batches || now.Slices < was.Slices || now.Retries < was.Retries ||
		now.ServedReadBytes < was.ServedReadBytes || now.ServedWrittenBytes < was.ServedWrittenBytes
}

// perSec is the rate of a counter over a time, NaN where it went back or no time has
// passed.
func perSec(before, after, ns int64) float64 {
	if before < 0 || after < before || ns <= 0 {
		return math.NaN()
	}
	return float64(after-before) / (float64(ns) / 1e9)
}

func perSecOrUnknown(before, after *int64, ns int64) float64 {
	if before == nil || after == nil {
		return math.NaN()
	}
	return perSec(*before, *after, ns)
}

// lanes finds the histories of the lanes that there are now, ns after the last answer;
// 0: that one is not to be compared with.
func (e *Engine) lanes(now *record.Engine, ns int64) {
	was := map[laneKey]*Lane{}
	for _, l := range slices.Backward(e.Lanes) { // of two of one name the first
		was[laneKey{l.Peer, l.Lane, l.ID}] = l
	}
	list := make([]*Lane, min(len(now.Lanes), MaxLanes))
	for i := range list {
		x := &now.Lanes[i]
		k := laneKey{x.Peer, x.Lane, x.ID}
		l := was[k]
		delete(was, k) // a second one of that name has a history of its own
		switch {
		case l == nil:
			l = &Lane{}
			l.Throughput.addGap(1)
		default:
			l.Throughput.Push(perSec(l.Bytes, x.Bytes, ns))
			if ns > 0 && l.Retries >= 0 && x.Retries > l.Retries {
				l.Retried += x.Retries - l.Retries
			}
		}
		l.LaneStats = *x
		list[i] = l
	}
	e.Lanes = list
}

// served does the same for the connections of peers.
func (e *Engine) served(now *record.Engine, ns int64) {
	was := map[connKey]*Served{}
	for _, c := range slices.Backward(e.Served) {
		was[connKeyOf(&c.ServedStats)] = c
	}
	list := make([]*Served, min(len(now.Served), MaxLanes))
	for i := range list {
		x := &now.Served[i]
		k := connKeyOf(x)
		c := was[k]
		delete(was, k)
		switch {
		case c == nil:
			c = &Served{}
			c.Throughput.addGap(1)
		default:
			c.Throughput.Push(perSecOrUnknown(c.ReadBytes, x.ReadBytes, ns) + perSecOrUnknown(c.WrittenBytes, x.WrittenBytes, ns))
		}
		c.ServedStats = *x
		list[i] = c
	}
	e.Served = list
}

// addGap says that n answers of the engine did not come.
func (e *Engine) addGap(n int) {
	e.ReadBytesPerSec.addGap(n)
	e.WrittenBytesPerSec.addGap(n)
	for _, l := range e.Lanes {
		l.Throughput.addGap(n)
	}
	for _, c := range e.Served {
		c.Throughput.addGap(n)
	}
}

// clone is a copy that shares what answers hold, which never changes.
func (e *Engine) clone() *Engine {
	out := *e
	out.Lanes, out.Served = cloned(e.Lanes), cloned(e.Served)
	return &out
}

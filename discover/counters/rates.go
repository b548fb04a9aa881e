package counters

import (
	"math"
	"math/bits"

	"github.com/topoctl/topoctl/discover/topo"
)

// Rates are the rates between two samples of a host. Devices that are not in both samples are
// missing.
type Rates struct {
	IntervalNS int64                 `json:"interval_ns"` // 0: no time passed between the samples, and there are no rates
	Ports      map[topo.ID]PortRates `json:"ports"`
	GPUs       map[topo.ID]GPURates  `json:"gpus"`
}

// PortRates is what a port carried, averaged over the interval. nil: not known, because one
// of the samples lacks the counter, or the port's counters were reset between them.
type PortRates struct {
	SentBytesPerSec       *topo.Rate `json:"sent_bytes_per_sec"`
	ReceivedBytesPerSec   *topo.Rate `json:"received_bytes_per_sec"`
	SentPacketsPerSec     *int64     `json:"sent_packets_per_sec"`
	ReceivedPacketsPerSec *int64     `json:"received_packets_per_sec"`
	// Errors are the increments of the error counters that changed.
	Errors map[string]uint64 `json:"errors,omitempty"`
}

// GPURates is what a GPU's NVLinks carried together, averaged over the interval.
type GPURates struct {
	NVLinkSentBytesPerSec     *topo.Rate `json:"nvlink_sent_bytes_per_sec"`
	NVLinkReceivedBytesPerSec *topo.Rate `json:"nvlink_received_bytes_per_sec"`
}

// Between computes the rates between two samples; nil is a missing sample. Counters that went
// back were reset, wrapped, or belong to another device now: what was counted meanwhile is not
// known and not guessed.
func Between(before, after *Sample) Rates {
	r := Rates{Ports: map[topo.ID]PortRates{}, GPUs: map[topo.ID]GPURates{}}
	if before == nil || after == nil {
		return r
	}
	r.IntervalNS = elapsed(before.AtNS, after.AtNS)
	ports := make(map[topo.ID]*Port, len(before.Ports))
	for i := range before.Ports {
		ports[before.Ports[i].ID] = &before.Ports[i]
	}
	for i := range after.Ports {
		if was := ports[after.Ports[i].ID]; was != nil {
			r.Ports[was.ID] = portRates(was, &after.Ports[i], r.IntervalNS)
		}
	}
	gpus := make(map[topo.ID]*GPU, len(before.GPUs))
	for i := range before.GPUs {
		gpus[before.GPUs[i].ID] = &before.GPUs[i]
	}
	for i := range after.GPUs {
		is := &after.GPUs[i]
		if was := gpus[is.ID]; was != nil {
			sent, received := change{was.NVLinkSentBytes, is.NVLinkSentBytes}, change{was.NVLinkReceivedBytes, is.NVLinkReceivedBytes}
			if wasReset(sent, received) {
				sent, received = change{}, change{}
			}
			r.GPUs[is.ID] = GPURates{
				NVLinkSentBytesPerSec:     perSecond[topo.Rate](sent, r.IntervalNS),
				NVLinkReceivedBytesPerSec: perSecond[topo.Rate](received, r.IntervalNS),
			}
		}
	}
	return r
}

// elapsed is the time from one moment to another, 0 where it did not advance.
func elapsed(before, after int64) int64 {
	if d := after - before; after > before && d > 0 {
		return d
	}
	return 0
}

// change is a counter before and after.
type change struct{ before, after *uint64 }

func (p change) both() bool { return p.before != nil && p.after != nil }

// wasReset says whether any of the counters of one device went back: then all of them were
// reset in between.
func wasReset(counters ...change) bool {
	for _, c := range counters {
		if c.both() && *c.after < *c.before {
			return true
		}
	}
	return false
}

// portRates compares two readings of a port. Error counters are compared one by one: some are
// only 32 bits wide and wrap on their own.
func portRates(was, is *Port, ns int64) PortRates {
	sent, received := change{was.SentBytes, is.SentBytes}, change{was.ReceivedBytes, is.ReceivedBytes}
	sentPackets, receivedPackets := change{was.SentPackets, is.SentPackets}, change{was.ReceivedPackets, is.ReceivedPackets}
	var r PortRates
	if !wasReset(sent, received, sentPackets, receivedPackets) {
		r.SentBytesPerSec, r.ReceivedBytesPerSec = perSecond[topo.Rate](sent, ns), perSecond[topo.Rate](received, ns)
		r.SentPacketsPerSec, r.ReceivedPacketsPerSec = perSecond[int64](sentPackets, ns), perSecond[int64](receivedPackets, ns)
	}
	for name, n := range is.Errors {
		if before, known := was.Errors[name]; known && n > before {
			if r.Errors == nil {
				r.Errors = map[string]uint64{}
			}
			r.Errors[name] = n - before
		}
	}
	return r
}

// perSecond is the counter's rate, nil where it is not known or does not fit, as of a counter
// that went wrong.
func perSecond[T ~int64](c change, ns int64) *T {
	if !c.both() || *c.after < *c.before || ns <= 0 {
		return nil
	}
	const second = 1_000_000_000
	high, low := bits.Mul64(*c.after-*c.before, second)
	if high >= uint64(ns) {
		return nil
	}
	n, _ := bits.Div64(high, low, uint64(ns))
	if n > math.MaxInt64 {
		return nil
	}
	v := T(n)
	return &v
}

// Share is a rate as a part of the line rate: 1 is all of it. It is above 1 where the counter
// includes what the line rate does not, or was read at another moment than the clock. It is
// not known where either rate is not known or the line rate is 0.
func Share(rate, line *topo.Rate) (part float64, known bool) {
	if rate == nil || line == nil || *line <= 0 {
		return 0, false
	}
	return float64(*rate) / float64(*line), true
}

package bench

import (
	"cmp"
	"regexp"
	"slices"
	"time"
)

// addResults puts a group into the report, as far as it was measured.
func (r *run) addResults(g *group) {
	rdma := false
	for _, c := range g.cells {
		if len(c.samples) == 0 && c.err == nil {
			continue
		}
		res, byRDMA := c.result(), c.usesTransport("rdma")
		rdma = rdma || byRDMA
		for _, way := range g.ceilings {
			of := map[string]**float64{RawSocket: &res.OfRawSocket, Memcpy: &res.OfMemcpy, StreamingCopy: &res.OfStreamingCopy}[way.kind]
			comparable := way.streams == r.copyThreads()
			if way.kind == RawSocket {
				comparable = !byRDMA
			}
			if most := way.samples.sum().bytesPerSec(); comparable && most > 0 && !r.o.Check {
				q := round(float64(res.BytesPerSec) / float64(most))
				*of = &q
			}
		}
		r.report.Results = append(r.report.Results, res)
	}
	ceilings := g.ceilings
	if rdma {
		ceilings = slices.Insert(slices.Clone(ceilings), 1, &ceiling{kind: RawVerbs, streams: ceilings[0].streams, unavailable: noRawVerbs})
	}
	for _, way := range ceilings {
		r.report.Ceilings = append(r.report.Ceilings, r.ceiling(g, way))
	}
}

// noRawVerbs is why there is no ceiling for RDMA.
const noRawVerbs = "could not be measured: bench has no program of its own for verbs; ib_write_bw and ib_read_bw of perftest have"

func (r *run) ceiling(g *group, way *ceiling) Ceiling {
	c := Ceiling{Kind: way.kind, Op: g.op.String(), SizeBytes: g.size, Streams: way.streams, RoundsBytesPerSec: way.samples.rates(), WorkingSetBytes: 2 * r.memory}
	if way.kind == RawSocket && r.rawCongestion != "" {
		c.CongestionControl = &r.rawCongestion
	}
	if len(way.samples) == 0 {
		why := cmp.Or(way.unavailable, "the run ended before")
		c.Reason = &why
		return c
	}
	all := way.samples.sum()
	rate := all.bytesPerSec()
	c.BytesPerSec = &rate
	if all.peerKnown {
		c.CPUSecondsPerGB = perGB(all.self+all.peer, all.bytes)
	}
	return c
}

// congestionWord is the congestion control in the description of a connection.
var congestionWord = regexp.MustCompile(`\b(cubic|reno|bbr|dctcp)\b`)

// Tick is how often progress is reported.
const Tick = time.Second

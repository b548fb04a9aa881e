package bench

import "time"

// addResults puts a group into the report, as far as it was measured.
func (r *run) addResults(g *group) {
	ratio := func(v int64, s samples) *float64 {
		most := s.sum().bytesPerSec()
		if most == 0 || r.o.Check {
			return nil
		}
		q := round(float64(v) / float64(most))
		return &q
	}
	rdma := false
	for _, c := range g.cells {
		if len(c.samples) == 0 && c.err == nil {
			continue
		}
		res := c.result()
		if c.usesTransport("rdma") {
			rdma = true
		} else {
			res.OfRawSocket = ratio(res.BytesPerSec, g.raw)
		}
		for _, way := range g.copies {
			switch {
			case way.threads != r.copyThreads():
			case way.kind == Memcpy:
				res.OfMemcpy = ratio(res.BytesPerSec, way.samples)
			default:
				res.OfStreamingCopy = ratio(res.BytesPerSec, way.samples)
			}
		}
		r.report.Results = append(r.report.Results, res)
	}
	raw := r.ceiling(RawSocket, g, g.raw, g.streams)
	switch {
	case !r.raw.IsValid():
		raw.Reason = &r.rawUnavailable
	case r.rawCongestion != "":
		raw.CongestionControl = &r.rawCongestion
	}
	r.report.Ceilings = append(r.report.Ceilings, raw)
	if rdma {
		verbs := r.ceiling(RawVerbs, g, nil, g.streams)
		why := noRawVerbs
		verbs.Reason = &why
		r.report.Ceilings = append(r.report.Ceilings, verbs)
	}
	for _, way := range g.copies {
		r.report.Ceilings = append(r.report.Ceilings, r.ceiling(way.kind, g, way.samples, way.threads))
	}
}

// noRawVerbs is why there is no ceiling for RDMA.
const noRawVerbs = "could not be measured: bench has no program of its own for verbs; ib_write_bw and ib_read_bw of perftest have"

func (r *run) ceiling(kind string, g *group, s samples, streams int) Ceiling {
	c := Ceiling{Kind: kind, Op: g.op.String(), SizeBytes: g.size, Streams: streams, RoundsBytesPerSec: s.rates(), WorkingSetBytes: 2 * r.memory}
	if len(s) == 0 {
		why := "the run ended before"
		c.Reason = &why
		return c
	}
	all := s.sum()
	rate := all.bytesPerSec()
	c.BytesPerSec = &rate
	if all.peerKnown {
		c.CPUSecondsPerGB = perGB(all.self+all.peer, all.bytes)
	}
	return c
}

// congestionIn finds the congestion control in the description of a connection.
func congestionIn(connection string) string {
	for _, name := range []string{"cubic", "reno", "bbr", "dctcp"} {
		if containsWord(connection, name) {
			return name
		}
	}
	return ""
}

// Tick is how often progress is told.
const Tick = time.Second

package kv

// samples are those of the requests of a bucket, in nanoseconds.
type samples struct {
	ttft, itl, e2e                                                         []int64
	tpot                                                                   []float64
	queue, compute, memoryWait, linkWait, wire, wireExposed, exposed, rest []int64
	before, all                                                            int64 // sums: moving before the first token, TTFT
}

// newSamples has room for the gaps of all times, which are millions.
func newSamples(times []Times) *samples {
	gaps := 0
	for i := range times {
		gaps += max(0, len(times[i].TokensNS)-1)
	}
	return &samples{itl: make([]int64, 0, gaps)}
}

func (s *samples) add(t *Times, p *Parts) {
	first, last := t.TokensNS[0], t.TokensNS[len(t.TokensNS)-1]
	s.ttft = append(s.ttft, first-t.SentNS)
	s.e2e = append(s.e2e, last-t.SentNS)
	if perToken, ok := tpot(t); ok {
		s.tpot = append(s.tpot, perToken)
	}
	for i := 1; i < len(t.TokensNS); i++ {
		s.itl = append(s.itl, t.TokensNS[i]-t.TokensNS[i-1])
	}
	s.queue = append(s.queue, p.QueueNS)
	s.compute = append(s.compute, p.ComputeNS)
	s.memoryWait = append(s.memoryWait, p.MemoryWaitNS)
	s.linkWait = append(s.linkWait, p.LinkWaitNS)
	s.wire = append(s.wire, p.WireNS)
	s.wireExposed = append(s.wireExposed, p.WireExposedNS)
	s.exposed = append(s.exposed, p.ExposedNS)
	s.rest = append(s.rest, p.RestNS)
	s.before += p.BeforeFirstNS
	s.all += first - t.SentNS
}

func (s *samples) latencies() Latencies {
	return Latencies{TTFT: summarize(s.ttft), TPOT: summarize(s.tpot), ITL: summarize(s.itl), E2E: summarize(s.e2e)}
}

func (s *samples) split() Split {
	split := Split{Queue: summarize(s.queue), Compute: summarize(s.compute), MemoryWait: summarize(s.memoryWait), LinkWait: summarize(s.linkWait),
		Wire: summarize(s.wire), WireExposed: summarize(s.wireExposed), Exposed: summarize(s.exposed), Rest: summarize(s.rest)}
	if s.all > 0 {
		share := float64(s.before) / float64(s.all)
		split.KVShareOfTTFT = &share
	}
	return split
}

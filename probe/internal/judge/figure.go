package judge

import (
	"math"

	"github.com/topoctl/topoctl/probe"
)

// figure is what was measured of a pair, with its confidence interval.
type figure struct {
	measured bool
	mean     float64 // bytes per second
	lo, hi   float64 // hi is infinite with a single sample, lo 0
	wide     bool    // the requested interval was not reached
	latency  float64 // median in ns, 0 not measured
	quickest float64 // of what latency is the median of
}

// figureOf reads the judged size, the largest that was requested. A measurement that was stopped may have
// only smaller ones, which are not judged.
func figureOf(m *probe.Measurement, spec *probe.Spec) figure {
	var f figure
	if _, p := m.Typical(); p != nil && p.N > 0 {
		f.latency, f.quickest = float64(p.P50), float64(p.Min)
	}
	if len(m.Bandwidth) == 0 {
		return f
	}
	b, asked := &m.Bandwidth[len(m.Bandwidth)-1], spec.SizesBytes
	if len(b.SamplesBytesPerSec) == 0 || len(asked) > 0 && b.SizeBytes < asked[len(asked)-1] {
		return f
	}
	f.measured, f.mean, f.wide = true, float64(b.MeanBytesPerSec), b.Stopped != probe.StoppedCI
	if b.CI95BytesPerSec == nil {
		f.hi, f.wide = math.Inf(1), true
		return f
	}
	half := float64(*b.CI95BytesPerSec)
	f.lo, f.hi = max(0, f.mean-half), f.mean+half
	if f.wide && spec.CI > 0 && half <= spec.CI*f.mean {
		f.wide = false // it ended because of time, but with enough samples
	}
	return f
}

// retestFigure is the figure of a retest. Where its interval is not stored, it is the widest that a
// measurement may have.
func retestFigure(t *probe.Retest, spec *probe.Spec) figure {
	var f figure
	if t.BytesPerSec != nil {
		f.measured, f.mean = true, float64(*t.BytesPerSec)
		half := f.mean * spec.CI
		if t.CI95BytesPerSec != nil {
			half = float64(*t.CI95BytesPerSec)
		}
		f.lo, f.hi, f.wide = max(0, f.mean-half), f.mean+half, half > spec.CI*f.mean
	}
	if t.LatencyNS != nil {
		f.latency, f.quickest = float64(*t.LatencyNS), float64(*t.LatencyNS)
	}
	return f
}

// decisive is a figure of a retest to judge by: a retest must confirm or not, so that a wide interval is
// its mean.
func (f figure) decisive() figure {
	if f.wide {
		f.hi = f.mean
	}
	return f
}

// slowness says how far a pair misses what is expected of it.
type slowness int

const (
	notSlow slowness = iota
	belowWarn
	belowFail
)

// slow compares a figure with the expected rate: the whole interval must be below.
func slow(f *figure, expected float64, rules *probe.Rules) slowness {
	switch {
	case !f.measured || expected <= 0:
		return notSlow
	case f.hi < rules.FailUnder*expected:
		return belowFail
	case f.hi < rules.WarnUnder*expected:
		return belowWarn
	}
	return notSlow
}

// rank orders verdicts: the worst reason decides.
func rank(v probe.Verdict) int {
	switch v {
	case probe.Fail:
		return 4
	case probe.Warn:
		return 3
	case probe.Inconclusive:
		return 2
	case probe.Measured:
		return 1
	}
	return 0
}

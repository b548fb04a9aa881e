package run

import (
	"fmt"
	"math"
	"slices"

	"github.com/topoctl/topoctl/internal/measure/judge"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/probe"
)

// errImpossible is the error of measurements that are impossible.
var errImpossible = pkgerr.New("probe", "the prober's answer makes no sense")

// maxSamples bounds the samples that one answer may hold.
const maxSamples = 1 << 16

// checkMeasurement refuses an impossible measurement. Nothing of it is kept, because nobody knows which
// part of it is true.
func checkMeasurement(m *probe.Measurement, spec *probe.Spec) error {
	if m.Err == nil && m.Waived == "" && len(m.Bandwidth) == 0 && m.Latency == nil {
		return fmt.Errorf("%w: nothing was measured, and no reason is given", errImpossible)
	}
	for i := range m.Bandwidth {
		b := &m.Bandwidth[i]
		switch {
		case !slices.Contains(spec.SizesBytes, b.SizeBytes):
			return fmt.Errorf("%w: ops of %d bytes, which was not requested", errImpossible, b.SizeBytes)
		case i > 0 && b.SizeBytes <= m.Bandwidth[i-1].SizeBytes:
			return fmt.Errorf("%w: ops of %d bytes twice or out of order", errImpossible, b.SizeBytes)
		}
		if err := checkSamples(b, m.Err != nil); err != nil {
			return err
		}
	}
	if c := m.CPUSecondsPerGB; c != nil && !(*c >= 0 && !math.IsInf(*c, 1)) {
		return fmt.Errorf("%w: %g CPU seconds for a GB", errImpossible, *c)
	}
	if l := m.Latency; l != nil {
		for _, p := range []*probe.Percentiles{l.RTT, l.OneWay, l.Load, l.Copy} {
			if p != nil && !judge.InOrder(p, math.MaxInt64) {
				return fmt.Errorf("%w: latencies of %d samples are not in order", errImpossible, p.N)
			}
		}
	}
	return nil
}

// checkSamples checks the samples of one size; partial: there may be none.
func checkSamples(b *probe.Bandwidth, partial bool) error {
	s := b.SamplesBytesPerSec
	switch {
	case len(s) > maxSamples:
		return fmt.Errorf("%w: %d samples of %d bytes", errImpossible, len(s), b.SizeBytes)
	case len(s) == 0 && (partial || b.Stopped == probe.StoppedTime || b.Stopped == probe.StoppedInterrupted):
		return nil
	case len(s) == 0:
		return fmt.Errorf("%w: no samples of %d bytes, and no reason is given", errImpossible, b.SizeBytes)
	}
	low, high := slices.Min(s), slices.Max(s)
	for _, v := range []int64{b.MeanBytesPerSec, b.MedianBytesPerSec} {
		if low < 0 || v < low || v > high {
			return fmt.Errorf("%w: a mean of %d bytes/s of samples from %d to %d", errImpossible, v, low, high)
		}
	}
	if b.CI95BytesPerSec != nil && *b.CI95BytesPerSec < 0 || b.Bytes < 0 || b.DurationNS < 0 {
		return fmt.Errorf("%w: figures of %d bytes are below zero", errImpossible, b.SizeBytes)
	}
	return nil
}

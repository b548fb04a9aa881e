package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/probe"
)

// errClaim says that what an agent claims is impossible.
var errClaim = errors.New("this is impossible")

// measurement is the result of a pair, after all checks.
func (t *controllerRound) measurement(ctx context.Context, x *pairRun) probe.Measurement {
	m := probe.Measurement{Bandwidth: []probe.Bandwidth{}, Links: []probe.LinkState{}}
	if x.waived != "" {
		m.Waived = x.waived
		return m
	}
	if x.err == nil && x.result != nil {
		m = t.accepted(x)
	} else {
		m = x.partial()
		m.Err = x.failure(ctx)
	}
	m.Notes = append(slices.Clone(x.notes), m.Notes...)
	if x.spec.RateLimit != t.spec.RateLimit {
		m.RateLimit = x.spec.RateLimit
	}
	if m.Err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(m.Err, cause) {
			m.Err = fmt.Errorf("%w: %w", cause, m.Err)
		}
		m.Err = pkgerr.Errorf("probe", "%s: %w", x.pair.ID, m.Err)
	}
	return m
}

// failure is the reason why a pair has no result.
func (x *pairRun) failure(ctx context.Context) error {
	err := x.err
	for _, s := range []*roundHost{x.from, x.to} {
		if s != nil {
			err = cmp.Or(err, s.err)
		}
	}
	return cmp.Or(err, context.Cause(ctx), errors.New("no result arrived"))
}

// partial is what was received of a pair whose result never came.
func (x *pairRun) partial() probe.Measurement {
	m := probe.Measurement{Bandwidth: []probe.Bandwidth{}, Links: []probe.LinkState{}}
	for _, size := range x.spec.SizesBytes {
		var rates []int64
		sum := 0.0
		for _, s := range x.samples {
			if s.SizeBytes == size {
				rates = append(rates, s.BytesPerSec)
				sum += float64(s.BytesPerSec)
			}
		}
		if len(rates) > 0 {
			took := time.Duration(len(rates)) * x.spec.SampleTime
			m.Bandwidth = append(m.Bandwidth, probe.NewBandwidth(size, rates, int64(sum*x.spec.SampleTime.Seconds()), int64(took), probe.StoppedError))
		}
	}
	if len(m.Bandwidth) > 0 {
		m.Notes = append(m.Notes, "bytes and duration are calculated from the samples that arrived: the result did not arrive")
	}
	return m
}

// ranOutOfTime says whether the time for a pair was over before it had its samples.
func (x *pairRun) ranOutOfTime() bool {
	return slices.ContainsFunc(x.result.Bandwidth, func(b probe.Bandwidth) bool { return b.Stopped == probe.StoppedTime })
}

// accepted is the result of a pair, as far as it can be believed.
func (t *controllerRound) accepted(x *pairRun) probe.Measurement {
	m := probe.Measurement{Bandwidth: []probe.Bandwidth{}, Links: t.linksOf(x)}
	r := x.result
	if r.Waived != "" {
		m.Waived = fmt.Sprintf("%s: %s", x.from.a.name, clip(r.Waived, maxErrorText))
		return m
	}
	err, note := x.checkClaims(), ""
	if err == nil {
		note, err = t.compareWithServed(x)
	}
	if err != nil {
		m = x.partial()
		m.Err = fmt.Errorf("%s: its result is refused: %w", x.from.a.name, err)
		return m
	}
	for i := range r.Bandwidth {
		b := &r.Bandwidth[i]
		m.Bandwidth = append(m.Bandwidth, probe.NewBandwidth(b.SizeBytes, b.SamplesBytesPerSec, b.Bytes, b.DurationNS, b.Stopped))
	}
	if r.Latency != nil {
		m.Latency = &probe.Latency{SizeBytes: r.Latency.SizeBytes, RTT: r.Latency.RTT, OneWay: r.Latency.OneWay}
	}
	m.CPUSecondsPerGB, m.Processors = r.CPUSecondsPerGB, x.processors()
	m.Binding = probe.Binding{CPUs: clip(r.Binding.CPUs, maxText), Threads: r.Binding.Threads, FromMemory: r.Binding.FromMemory, ToMemory: x.region.Node}
	for _, n := range r.Notes[:min(len(r.Notes), maxNotes)] {
		m.Notes = append(m.Notes, clip(n, maxText))
	}
	if x.region.Note != "" {
		m.Notes = append(m.Notes, clip(x.region.Note, maxText))
	}
	if note != "" {
		m.Notes = append(m.Notes, note)
	}
	switch {
	case x.to.err != nil && (r.Error != "" || x.ranOutOfTime()): // because its target was gone
		m.Err = x.to.err
	case r.Error != "":
		m.Err = fmt.Errorf("%s: %s", x.from.a.name, clip(r.Error, maxErrorText))
		if r.Cause.OnTheWay() {
			m.Err = probe.Because(r.Cause, m.Err)
		}
	}
	return m
}

// processors are how busy the hosts at the ends of a pair were during its round.
func (x *pairRun) processors() []probe.ProcessorLoad {
	var out []probe.ProcessorLoad
	for _, s := range []*roundHost{x.from, x.to} {
		out = append(out, s.load[1].Since(s.load[0], s.a.name)...)
		if x.from == x.to {
			break
		}
	}
	return out
}

const maxNotes = 16

// slack is by how much clocks of two hosts may differ, as a part.
const slack = 0.02

// checkClaims refuses an impossible result: more bytes, or more time, than there was time for.
func (x *pairRun) checkClaims() error {
	r := x.result
	if len(r.Bandwidth) > len(x.spec.SizesBytes) {
		return fmt.Errorf("%d sizes, %d were requested: %w", len(r.Bandwidth), len(x.spec.SizesBytes), errClaim)
	}
	if len(r.Bandwidth) == 0 && r.Latency == nil && r.Error == "" {
		return fmt.Errorf("neither figures nor a reason why there are none: %w", errClaim)
	}
	elapsed := int64(float64(x.elapsed)*(1+slack)) + int64(time.Millisecond)
	left := elapsed
	for i := range r.Bandwidth {
		b := &r.Bandwidth[i]
		if !slices.Contains(x.spec.SizesBytes, b.SizeBytes) || i > 0 && b.SizeBytes <= r.Bandwidth[i-1].SizeBytes {
			return fmt.Errorf("ops of %d bytes: these sizes were not requested: %w", b.SizeBytes, errClaim)
		}
		if err := x.checkBandwidth(b, left); err != nil {
			return fmt.Errorf("ops of %d bytes: %w", b.SizeBytes, err)
		}
		left -= b.DurationNS
	}
	if err := x.checkLatency(r.Latency, elapsed); err != nil {
		return err
	}
	if cpu := r.CPUSecondsPerGB; cpu != nil && !(*cpu >= 0 && *cpu < 1e9) {
		return fmt.Errorf("%v s of processor time for 1 GB: %w", *cpu, errClaim)
	}
	for _, node := range []*int{r.Binding.FromMemory, x.region.Node} {
		if node != nil && (*node < 0 || *node > 1<<16) {
			return fmt.Errorf("NUMA node %d: %w", *node, errClaim)
		}
	}
	if r.Binding.Threads < 0 || r.Binding.Threads > 1<<20 {
		return fmt.Errorf("%d threads: %w", r.Binding.Threads, errClaim)
	}
	return nil
}

// checkBandwidth checks the samples of one size, which took at most left ns.
func (x *pairRun) checkBandwidth(b *probe.Bandwidth, left int64) error {
	n := len(b.SamplesBytesPerSec)
	if n > x.spec.MaxSamples {
		return fmt.Errorf("%d samples, at most %d were requested: %w", n, x.spec.MaxSamples, errClaim)
	}
	if b.Bytes < 0 || b.DurationNS < 0 {
		return fmt.Errorf("%d bytes in %d ns: %w", b.Bytes, b.DurationNS, errClaim)
	}
	if b.DurationNS > left {
		return fmt.Errorf("it took %v, but there were only %v: %w", time.Duration(b.DurationNS), time.Duration(max(left, 0)), errClaim)
	}
	if !slices.Contains([]string{probe.StoppedCI, probe.StoppedMaxSamples, probe.StoppedTime, probe.StoppedInterrupted, probe.StoppedError, ""}, b.Stopped) {
		return fmt.Errorf("it stopped for %.40q: %w", b.Stopped, errClaim)
	}
	if n == 0 {
		if b.Bytes > 0 || b.DurationNS > 0 {
			return fmt.Errorf("%d bytes without a sample: %w", b.Bytes, errClaim)
		}
		if x.result.Error == "" && b.Stopped != probe.StoppedTime && b.Stopped != probe.StoppedInterrupted {
			return fmt.Errorf("no sample, and no reason why: %w", errClaim)
		}
		return nil
	}
	if low := int64(n-1) * int64(x.spec.SampleTime); float64(b.DurationNS) < float64(low)*(1-slack) {
		return fmt.Errorf("%d samples of %v in %v: %w", n, x.spec.SampleTime, time.Duration(b.DurationNS), errClaim)
	}
	least, most := slices.Min(b.SamplesBytesPerSec), slices.Max(b.SamplesBytesPerSec)
	if least < 0 || most > maxRate {
		return fmt.Errorf("samples of %d to %d bytes/s: %w", least, most, errClaim)
	}
	took := float64(b.DurationNS) / 1e9
	if bytes := float64(b.Bytes); bytes < float64(least)*took*(1-slack)-1 || bytes > float64(most)*took*(1+slack)+1 {
		return fmt.Errorf("%d bytes in %v with samples of %d to %d bytes/s: %w", b.Bytes, time.Duration(b.DurationNS), least, most, errClaim)
	}
	if limit := x.spec.RateLimit; limit > 0 && float64(b.Bytes) > 2*float64(limit)*took+limitSlack {
		return fmt.Errorf("%d bytes in %v, at most %d bytes/s were allowed: %w", b.Bytes, time.Duration(b.DurationNS), limit, errClaim)
	}
	return nil
}

// limitSlack is how many bytes may exceed a rate limit: batches that were under way.
const limitSlack = 128 << 20

// checkLatency checks round trips, which took at most most ns together.
func (x *pairRun) checkLatency(l *probe.Latency, most int64) error {
	if l == nil {
		return nil
	}
	for _, p := range []*probe.Percentiles{l.RTT, l.OneWay} {
		if p == nil || x.spec.LatencySamples == 0 {
			return fmt.Errorf("latency without round trips: %w", errClaim)
		}
		if p.N > x.spec.LatencySamples || !inOrder(p, most) || p.P999 != nil && p.N < 1000 || float64(p.N)*float64(p.Min) > float64(most) {
			return fmt.Errorf("%d round trips of %d to %d ns: %w", p.N, p.Min, p.Max, errClaim)
		}
	}
	if math.Abs(float64(l.RTT.P50)/2-float64(l.OneWay.P50)) > 1 || l.SizeBytes < 0 || l.SizeBytes > maxOp {
		return fmt.Errorf("half a round trip of %d ns is %d ns: %w", l.RTT.P50, l.OneWay.P50, errClaim)
	}
	return nil
}

// compareWithServed compares what the initiators of a target claim with what the target served. Warm-up
// and round trips are served too, so it is never less.
func (t *controllerRound) compareWithServed(x *pairRun) (note string, err error) {
	to := x.to
	switch {
	case to.began == nil || to.end == nil:
		return "", nil // the target is lost: an error says so, or will
	case slices.Contains(to.end.Uncounted, x.pair.Transport):
		return fmt.Sprintf("the bytes are those that %s reports: %s does not count bytes over %s", x.from.a.name, to.a.name, x.pair.Transport), nil
	case x.claimed() == 0:
		return "", nil
	}
	var by []string
	claimed, served := int64(0), to.end.WrittenBytes-to.began.WrittenBytes
	for _, other := range to.to {
		// What is refused for another reason says nothing of the others.
		if other.result == nil || slices.Contains(to.end.Uncounted, other.pair.Transport) || other.checkClaims() != nil {
			continue
		}
		if n := other.claimed(); n > 0 {
			claimed += min(n, math.MaxInt64-claimed)
			by = append(by, other.from.a.name)
		}
	}
	if claimed <= served {
		return "", nil
	}
	slices.Sort(by)
	return "", fmt.Errorf("%s says that it took %d bytes, %s: %d are claimed: %w", to.a.name, served, strings.Join(slices.Compact(by), ", "), claimed, errClaim)
}

// claimed is how many bytes a result claims to have moved.
func (x *pairRun) claimed() int64 {
	sum := int64(0)
	for i := range x.result.Bandwidth {
		sum += min(max(0, x.result.Bandwidth[i].Bytes), math.MaxInt64-sum)
	}
	return sum
}

// linksOf are the states of the links between both ends, as these report them.
func (t *controllerRound) linksOf(x *pairRun) []probe.LinkState {
	out := []probe.LinkState{}
	seen := map[probe.LinkKey]bool{}
	for _, s := range []*roundHost{x.from, x.to} {
		for _, l := range s.links[x.place] {
			if seen[l.Link] || !slices.Contains(x.pair.Path, l.Link) || len(l.Counters) > maxCounters {
				continue
			}
			seen[l.Link] = true
			state := probe.LinkState{Link: l.Link, State: clip(l.State, 64)}
			for name, n := range l.Counters {
				if checkText("counter", name) != nil || n <= 0 {
					continue
				}
				if state.Counters == nil {
					state.Counters = map[string]int64{}
				}
				state.Counters[name] = n
			}
			out = append(out, state)
		}
	}
	return out
}

// maxCounters bounds the counters of one link.
const maxCounters = 1024

// inOrder says whether percentiles are of at least one sample, do not fall, and end at most.
func inOrder(p *probe.Percentiles, most int64) bool {
	list := []int64{0, p.Min, p.P50, p.P90, p.P99, p.Max, most}
	if p.P999 != nil {
		list = slices.Insert(list, 5, *p.P999)
	}
	return p.N > 0 && slices.IsSorted(list)
}

package bench

import (
	"sync"
	"time"
)

// The phases of a measurement with a fault.
const (
	beforeFault = iota
	duringFault
	afterFault
	phases
)

// meter counts the batches of one round. There are few enough of them for a lock.
type meter struct {
	mu      sync.Mutex
	start   time.Time
	latency *recorder
	bytes   int64
	ops     int64
	last    time.Time // the end of the last batch

	phase   int
	entered [phases]time.Duration // since start; the first is 0
	moved   [phases]int64
	gap     time.Duration // the longest time without a finished batch, since the fault
}

func newMeter(start time.Time, latency *recorder) *meter {
	return &meter{start: start, latency: latency, last: start}
}

// done counts a batch.
func (m *meter) done(submitted, ended time.Time, bytes, ops int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latency.add(int64(ended.Sub(submitted)))
	m.bytes += bytes
	m.ops += ops
	m.moved[m.phase] += bytes
	m.noteGap(ended)
	if ended.After(m.last) {
		m.last = ended
	}
}

func (m *meter) noteGap(now time.Time) {
	from := m.last
	if fault := m.start.Add(m.entered[duringFault]); from.Before(fault) {
		from = fault
	}
	if gap := now.Sub(from); m.phase > beforeFault && gap > m.gap {
		m.gap = gap
	}
}

// setPhase starts a phase.
func (m *meter) setPhase(phase int, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phase = phase
	m.entered[phase] = now.Sub(m.start)
}

// bytesSoFar is for progress.
func (m *meter) bytesSoFar() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// fault sums up what a fault did to a round that ended at end.
func (m *meter) fault(lane string, end time.Time) *Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase == beforeFault {
		return nil // it ended before the fault was due
	}
	m.noteGap(end)
	f := &Fault{Lane: lane, AtNS: int64(m.entered[duringFault])}
	gap := int64(m.gap)
	f.LongestGapNS = &gap
	stops := [phases]time.Duration{m.entered[duringFault], end.Sub(m.start), end.Sub(m.start)}
	rates := [phases]**int64{&f.BeforeBytesPerSec, &f.DuringBytesPerSec, &f.AfterBytesPerSec}
	if m.phase == afterFault {
		stops[duringFault] = m.entered[afterFault]
		at := int64(m.entered[afterFault])
		f.ResumedAtNS = &at
	}
	for p := range m.phase + 1 {
		rate := sample{bytes: m.moved[p], elapsed: stops[p] - m.entered[p]}.bytesPerSec()
		*rates[p] = &rate
	}
	return f
}

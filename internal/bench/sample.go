package bench

import (
	"context"
	"time"

	"github.com/topoctl/topoctl/internal/self"
)

// sample is what one round of a measurement moved and took.
type sample struct {
	bytes      int64
	elapsed    time.Duration
	self, peer time.Duration // processor time of this process and of the other end
	peerKnown  bool
}

func (s sample) bytesPerSec() int64 {
	if s.elapsed <= 0 {
		return 0
	}
	return int64(float64(s.bytes) / s.elapsed.Seconds())
}

// samples are the rounds of one measurement.
type samples []sample

// sum is all rounds as one.
func (s samples) sum() sample {
	all := sample{peerKnown: len(s) > 0}
	for _, one := range s {
		all.bytes += one.bytes
		all.elapsed += one.elapsed
		all.self += one.self
		all.peer += one.peer
		all.peerKnown = all.peerKnown && one.peerKnown
	}
	return all
}

// rates are the rates of the rounds, in their order.
func (s samples) rates() []int64 {
	out := []int64{}
	for _, one := range s {
		out = append(out, one.bytesPerSec())
	}
	return out
}

// perGB is processor time in seconds for 10^9 bytes, nil where nothing moved.
func perGB(cpu time.Duration, bytes int64) *float64 {
	if bytes == 0 {
		return nil
	}
	v := round(cpu.Seconds() / (float64(bytes) / 1e9))
	return &v
}

// round keeps four decimals: more is noise.
func round(v float64) float64 { return float64(int64(v*1e4+0.5)) / 1e4 }

// selfCPU is the user and system time that this process has taken.
func selfCPU() time.Duration {
	taken, _ := self.CPU(context.Background()) // 0 where it is not known
	return taken
}

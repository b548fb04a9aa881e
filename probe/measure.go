package probe

import (
	"errors"
	"time"
)

// Spec says how pairs are measured.
type Spec struct {
	Warmup     time.Duration `json:"warmup_ns"`
	SampleTime time.Duration `json:"sample_ns"` // of one sample of bandwidth
	MinSamples int           `json:"min_samples"`
	MaxSamples int           `json:"max_samples"`
	// CI is the half width of the 95 % confidence interval of the mean, as a part of
	// the mean, at which a measurement has enough samples.
	CI float64 `json:"ci"`
	// SizesBytes are the sizes of one op, ascending; the last one is judged.
	// None: no bandwidth.
	SizesBytes []int64 `json:"sizes_bytes"`
	// LatencySamples is how many round trips (or loads, or copies) are timed; 0 none.
	LatencySamples int `json:"latency_samples"`
	// RateLimit bounds what one pair moves; 0 no bound.
	RateLimit int64 `json:"rate_limit_bytes_per_sec"`
	// PairTime bounds the time for one pair, all sizes together; 0 no bound.
	PairTime time.Duration `json:"pair_time_ns"`
}

// DefaultSpec is how pairs are measured by default: a pair takes at most 4 s, and up to 2 s
// more if allocating its memory takes long.
func DefaultSpec() Spec {
	return Spec{
		Warmup: 200 * time.Millisecond, SampleTime: 100 * time.Millisecond, MinSamples: 5, MaxSamples: 30, CI: 0.025,
		SizesBytes: []int64{1 << 20}, LatencySamples: 1000, PairTime: 4 * time.Second,
	}
}

// Sample is one sample as it comes in.
type Sample struct {
	SizeBytes   int64 `json:"size_bytes"`
	BytesPerSec int64 `json:"bytes_per_sec"`
}

// Measurement is what was measured of one pair.
type Measurement struct {
	Bandwidth []Bandwidth `json:"bandwidth"` // by size, ascending
	Latency   *Latency    `json:"latency"`   // nil: not measured
	// CPUSecondsPerGB is the processor time of both ends' processes for 10^9 bytes;
	// nil where an end's is not known, or where other pairs of the round share its process.
	CPUSecondsPerGB *float64 `json:"cpu_seconds_per_gb"`
	// RateLimit is what the pair was held to in each direction where that is less than
	// Spec.RateLimit: an agent allows no more. 0: as the Spec says.
	RateLimit int64   `json:"rate_limit_bytes_per_sec,omitempty"`
	Binding   Binding `json:"binding"`
	// Processors are how busy the hosts at the ends were meanwhile; those of which it is not known are left out.
	Processors []ProcessorLoad `json:"processors,omitempty"`
	// Links are the states of ports and PCIe links on the way at that time, and what
	// their counters counted meanwhile.
	Links []LinkState `json:"link_states"`
	Notes []string    `json:"notes,omitempty"`
	// Waived says why it could not be measured here: hardware, driver, permission.
	Waived string `json:"-"`
	Err    error  `json:"-"` // why it was not measured, or not to the end
}

// Cause is what an error of a measurement is about; "" is none of these: an agent that
// refuses, memory that is not there, an answer that makes no sense.
type Cause string

// The causes.
const (
	CauseConnect Cause = "connect" // the ends did not connect
	CauseMove    Cause = "move"    // bytes did not come over
)

// OnTheWay says whether a cause may lie on the way between the ends, and not in one of them.
func (c Cause) OnTheWay() bool { return c == CauseConnect || c == CauseMove }

// causedError is an error with its cause.
type causedError struct {
	error
	cause Cause
}

func (e *causedError) Unwrap() error { return e.error }

// Because says what an error of a measurement is about; nil stays nil.
func Because(c Cause, err error) error {
	if err == nil {
		return nil
	}
	return &causedError{err, c}
}

// CauseOf is what Because said that an error is about, "" nothing.
func CauseOf(err error) Cause {
	var e *causedError
	if errors.As(err, &e) {
		return e.cause
	}
	return ""
}

// Bandwidth is what a pair carried with ops of one size.
type Bandwidth struct {
	SizeBytes int64 `json:"size_bytes"`
	// SamplesBytesPerSec are the samples in the order in which they were taken.
	SamplesBytesPerSec []int64 `json:"samples_bytes_per_sec"`
	MeanBytesPerSec    int64   `json:"mean_bytes_per_sec"`
	MedianBytesPerSec  int64   `json:"median_bytes_per_sec"`
	// CI95BytesPerSec is the half width of the confidence interval of the mean
	// (Student's t); nil with fewer than two samples.
	CI95BytesPerSec *int64 `json:"ci95_bytes_per_sec"`
	Bytes           int64  `json:"bytes"`
	DurationNS      int64  `json:"duration_ns"`
	// Stopped says why there are no more samples.
	Stopped string `json:"stopped"`
}

// Why sampling stopped.
const (
	StoppedCI          = "ci"          // the interval is narrow enough
	StoppedMaxSamples  = "max-samples" // it is not, and these were the most
	StoppedTime        = "time"        // Spec.PairTime or the run's end
	StoppedInterrupted = "interrupted"
	StoppedError       = "error"
)

// Latency holds times of single small ops, each named for what it is.
type Latency struct {
	SizeBytes int64 `json:"size_bytes"`
	// RTT is from posting an op to its completion here: there and back.
	RTT *Percentiles `json:"rtt_ns,omitempty"`
	// OneWay is half of it, which holds where both ways are equally long.
	OneWay *Percentiles `json:"oneway_ns_assumed_half,omitempty"`
	Load   *Percentiles `json:"load_ns,omitempty"` // one dependent load of memory
	Copy   *Percentiles `json:"copy_ns,omitempty"` // one copy, from its start to its event
}

// Percentiles are by nearest rank.
type Percentiles struct {
	N    int    `json:"n"`
	Min  int64  `json:"min"`
	P50  int64  `json:"p50"`
	P90  int64  `json:"p90"`
	P99  int64  `json:"p99"`
	P999 *int64 `json:"p99_9"` // nil below 1,000 samples
	Max  int64  `json:"max"`
}

// Binding is where the work was done.
type Binding struct {
	CPUs    string `json:"cpus,omitempty"` // "0-15": of the end that posts
	Threads int    `json:"threads"`
	// FromMemory and ToMemory are the NUMA nodes that memory was taken from, nil where it was not bound.
	FromMemory *int `json:"from_numa_node"`
	ToMemory   *int `json:"to_numa_node"`
}

// ProcessorLoad is how busy all processors of a host together were during a measurement, as parts of their time.
type ProcessorLoad struct {
	Host string  `json:"host"`
	Busy float64 `json:"busy"` // not idle, or taken by a hypervisor for others
	Own  float64 `json:"own"`  // in the process that measured
}

// Processors that have something else to do move bytes later than the path would. How busy they may be
// depends on what a measurement needs: one between hosts takes a core or two at each end and lives with
// what is left of the others, one within a host may take all of them.
const (
	busyBetween = 0.9 // part of the processors' time that all processes take
	busyWithin  = 0.1 // and that others take
)

// TooBusy says whether the host was too busy for a measurement of a pair to tell what the path carries.
func (l *ProcessorLoad) TooBusy(p *Pair) bool {
	if p.From.Host != p.To.Host {
		return l.Busy >= busyBetween
	}
	return l.Busy-l.Own >= busyWithin
}

// LinkState is what a link was like while it was measured.
type LinkState struct {
	Link  LinkKey `json:"link"`
	State string  `json:"state,omitempty"` // "ACTIVE", "up", "gen5 x16"
	// Counters are the differences of the error counters that moved, by their kernel names.
	Counters map[string]int64 `json:"counters,omitempty"`
}

package probe

import (
	"time"

	"github.com/topoctl/topoctl/discover/topo"
)

// Schema is the name and major version of a report.
const Schema = "topoctl.probe/v1"

// Report is what a run measured.
type Report struct {
	Schema    string    `json:"schema"`
	Tool      topo.Tool `json:"tool"`
	Mode      string    `json:"mode"` // "local" or "fabric"
	StartedAt time.Time `json:"started_at"`
	// DurationNS is by a clock that is never set back.
	DurationNS int64 `json:"duration_ns"`
	// Complete is false where the run was interrupted or ran out of time: what is
	// there was measured.
	Complete bool   `json:"complete"`
	Hosts    []Host `json:"hosts"`
	Spec     Spec   `json:"spec"`
	Rules    Rules  `json:"rules"`
	Plan     Plan   `json:"plan"`
	// Devices and Links are those that pairs cross, by key.
	Devices []Device `json:"devices"`
	Links   []Link   `json:"links"`
	Results []Result `json:"results"` // by ID
	Blame   []Blame  `json:"blame"`
	Summary Summary  `json:"summary"`
	Notes   []string `json:"notes,omitempty"`
}

// PartialNote begins a note of a report on what is there and was not measured.
const PartialNote = "partial: "

// Host is a host that took part.
type Host struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"` // of its agent
	// Fingerprint is that of its topology (topo.Topology.Fingerprint).
	Fingerprint string `json:"topology_fingerprint,omitempty"`
	Error       string `json:"error,omitempty"` // why it took no part, or stopped to
}

// Rules are the limits by which verdicts are given.
type Rules struct {
	// FailUnder and WarnUnder are parts of the expected rate.
	FailUnder float64 `json:"fail_under"`
	WarnUnder float64 `json:"warn_under"`
	// OutlierUnder is a part of the best rate of the pair's group, OutlierOver a multiple of
	// its smallest latency.
	OutlierUnder float64 `json:"outlier_under"`
	OutlierOver  float64 `json:"outlier_over"`
	Retests      int     `json:"retests"` // of an outlier, alone; 0 none
}

// DefaultRules are those of the command.
func DefaultRules() Rules {
	return Rules{FailUnder: 0.80, WarnUnder: 0.90, OutlierUnder: 0.93, OutlierOver: 2.1, Retests: 1}
}

// Plan is how a run was laid out.
type Plan struct {
	Schedule string `json:"schedule"` // "link", "endpoint", "serial"
	Contend  string `json:"contend,omitempty"`
	Rounds   int    `json:"rounds"`
	// LowerBound is the number of rounds that the links allow at best, for "link".
	LowerBound int   `json:"lower_bound"`
	Pairs      int   `json:"pairs"`
	TimeNS     int64 `json:"estimated_time_ns"`
	Bytes      int64 `json:"estimated_bytes"`
}

// Verdict is the judgement of a pair.
type Verdict string

// The verdicts. A pair of which nothing is expected and that has no peers is MEASURED: there is nothing
// to judge it by. INCONCLUSIVE is one that there is something to judge by, and was not measured well enough.
const (
	Pass         Verdict = "PASS"
	Measured     Verdict = "MEASURED"
	Warn         Verdict = "WARN"
	Fail         Verdict = "FAIL"
	Inconclusive Verdict = "INCONCLUSIVE"
	Waived       Verdict = "WAIVED"
	Error        Verdict = "ERROR"
)

// Result is a pair, what was measured of it in its round, and the verdict. What was
// measured of it again is in Retests.
type Result struct {
	Pair
	Measurement
	// Round counts from 1, 0 was not measured. Pairs with the same number were measured
	// at the same time.
	Round int `json:"round"`
	// Efficiency is the measured part of the expected rate, OfBest that of the best rate of
	// the group; nil without one.
	Efficiency *float64 `json:"efficiency"`
	OfBest     *float64 `json:"of_best"`
	Verdict    Verdict  `json:"verdict"`
	Reasons    []Reason `json:"reasons"`
	Retests    []Retest `json:"retests,omitempty"`
	Error      string   `json:"error,omitempty"`
	// ErrorCause is what Error is about. Only those that may lie on the way are held
	// against its links.
	ErrorCause Cause `json:"error_cause,omitempty"`
}

// Reason is one reason for a verdict.
type Reason struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Codes of reasons. They are stable: scripts match on them.
const (
	CodeWaived         = "waived"
	CodeError          = "error"
	CodeNotMeasured    = "not-measured"
	CodeNoExpectation  = "no-expectation"  // no rate is expected and no other pair is comparable
	CodeBelowFail      = "below-fail"      // below Rules.FailUnder of the expected rate
	CodeBelowWarn      = "below-warn"      // below Rules.WarnUnder of the expected rate
	CodeOutlier        = "outlier"         // below Rules.OutlierUnder of the best of its group
	CodeLatencyOutlier = "latency-outlier" // above Rules.OutlierOver of the smallest latency of its group
	CodeConfirmed      = "confirmed"       // as bad when measured again alone
	CodeAlone          = "measured-alone"  // the rate alone, where the first measurement could not be judged
	CodeContended      = "contended"       // others, or chance, made it slow: alone it is fine
	CodeWideInterval   = "wide-interval"   // the requested interval was not reached
	CodeBusy           = "busy-processors" // the hosts' processors were too busy to tell
	CodeTooFast        = "faster-than-possible"
	CodeRateLimited    = "rate-limited"   // Spec.RateLimit is below what is expected
	CodeErrorsCounted  = "errors-counted" // error counters moved during the measurement
	CodeLinkDegraded   = "link-degraded"  // slower while it was measured than the topology says
	CodeLinkDown       = "link-down"      // a port was not up while it was measured
)

// How a pair is retested.
const (
	RetestAlone        = "alone"         // the same pair, nothing else meanwhile
	RetestOtherPartner = "other-partner" // one of its ends with another, in reports of earlier versions
)

// Retest is another measurement of a pair, or of one of its ends with another partner.
type Retest struct {
	How  string `json:"how"`  // RetestAlone or RetestOtherPartner
	Pair string `json:"pair"` // what was measured: the ID of this pair or of another
	// BytesPerSec is the mean, nil where it could not be measured.
	BytesPerSec *int64 `json:"bytes_per_sec"`
	// CI95BytesPerSec is the half width of its confidence interval, nil not known.
	CI95BytesPerSec *int64 `json:"ci95_bytes_per_sec,omitempty"`
	LatencyNS       *int64 `json:"latency_ns"` // the median
	Error           string `json:"error,omitempty"`
	// Confirms says whether it is as bad as before.
	Confirms bool `json:"confirms"`
}

// BlameKind says what a Blame is about.
type BlameKind string

// The kinds of Blame.
const (
	Fault      BlameKind = "fault"      // a part is slow or broken
	Congestion BlameKind = "congestion" // pairs are slow next to other traffic, and fine alone
)

// Blame is one cause that explains bad pairs.
type Blame struct {
	Kind BlameKind `json:"kind"` // documents of earlier versions have none: a Fault
	// Suspects are the parts that the evidence cannot tell apart: one of them is it. One
	// entry is a culprit.
	Suspects []Suspect `json:"suspects"`
	Pairs    []string  `json:"pairs"` // the bad pairs that it explains, by ID
	Evidence []string  `json:"evidence"`
	// Next says what would tell the suspects apart; "" if there is nothing more to tell.
	Next string `json:"next,omitempty"`
}

// Suspect is a part that may be at fault.
type Suspect struct {
	Kind  string    `json:"kind"` // a Device's kind, "link" (both directions) or "direction"
	Key   string    `json:"key"`  // a Device's key or a LinkKey; for "link" that of one direction
	Name  string    `json:"name"`
	Links []LinkKey `json:"links"`
	// BytesPerSec is what it was seen to carry at most.
	BytesPerSec *topo.Rate `json:"bytes_per_sec"`
}

// Summary counts results by verdict.
type Summary struct {
	Pass         int `json:"pass"`
	Measured     int `json:"measured"`
	Warn         int `json:"warn"`
	Fail         int `json:"fail"`
	Inconclusive int `json:"inconclusive"`
	Waived       int `json:"waived"`
	Error        int `json:"error"`
}

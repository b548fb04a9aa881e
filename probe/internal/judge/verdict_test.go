package judge_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/judge"
)

// oneOf is a report of a pair and of n peers that all give best; 100 GB/s is the link's rate.
func oneOf(mean, half float64, basis topo.Basis, peers int, best float64) *probe.Report {
	rate := 100 * gig
	path := []probe.LinkKey{probe.Key("n1", "port:a/1", "down")}
	r := &probe.Report{Complete: true, Rules: probe.DefaultRules(), Spec: probe.Spec{CI: 0.025, SizesBytes: []int64{4096}},
		Links: []probe.Link{{Key: path[0], Host: "n1", Link: "port:a/1", Kind: topo.LinkPort, Direction: "down", Name: "wire of a", BytesPerSec: &rate, Basis: basis}}}
	for i := range peers + 1 {
		m, h := best, 0.1
		if i == 0 {
			m, h = mean, half
		}
		ci := int64(h * 1e9)
		stopped := probe.StoppedCI
		if h > r.Spec.CI*m {
			stopped = probe.StoppedMaxSamples
		}
		r.Results = append(r.Results, probe.Result{
			Pair: probe.Pair{ID: fmt.Sprint("p", i), Kind: probe.Port, Path: path, PathKnown: true, Group: "g",
				Expected: probe.Expected{BytesPerSec: &rate, Basis: basis, Limit: path[0]}},
			Measurement: probe.Measurement{Bandwidth: []probe.Bandwidth{{SizeBytes: 4096, MeanBytesPerSec: int64(m * 1e9), CI95BytesPerSec: &ci, Stopped: stopped, SamplesBytesPerSec: []int64{1, 2}}}},
			Round:       i + 1})
	}
	return r
}

func codes(r *probe.Result) string {
	var out []string
	for _, reason := range r.Reasons {
		out = append(out, reason.Code)
	}
	return strings.Join(out, " ")
}

func TestVerdicts(t *testing.T) {
	constant, read, measured := topo.BasisTypical, topo.BasisRead, topo.BasisMeasured
	one := int64(80e9)
	for _, tt := range []struct {
		name       string
		mean, half float64
		basis      topo.Basis
		peers      int
		best       float64
		change     func(r *probe.Report)
		want       probe.Verdict
		codes      string
	}{
		{"as expected", 97, 1, read, 0, 0, nil, probe.Pass, ""},
		{"between the lines", 85, 1, read, 0, 0, nil, probe.Warn, "below-warn"},
		{"below", 70, 1, read, 0, 0, nil, probe.Fail, "below-fail"},
		{"below what was measured once", 70, 1, measured, 0, 0, nil, probe.Fail, "below-fail"},
		{"below a constant", 70, 1, constant, 0, 0, nil, probe.Warn, "below-fail"},
		{"below an assumption", 70, 1, topo.BasisBound, 0, 0, nil, probe.Warn, "below-fail"},
		{"the interval reaches the line of failing", 79.5, 1, read, 0, 0, nil, probe.Warn, "below-warn"},
		{"the interval reaches the line of warning", 89.5, 1, read, 0, 0, nil, probe.Pass, ""},
		{"wide and above", 97, 5, read, 0, 0, nil, probe.Pass, "wide-interval"},
		{"wide and below", 60, 10, read, 0, 0, nil, probe.Warn, "below-fail wide-interval"},
		{"wide and below, confirmed", 60, 10, read, 0, 0, retested(60, true), probe.Fail, "below-fail wide-interval confirmed"},
		{"wide and below, milder alone", 60, 10, read, 0, 0, retested(85, true), probe.Warn, "below-fail wide-interval confirmed"},
		{"wide, and below a constant", 60, 10, constant, 0, 0, nil, probe.Warn, "below-fail wide-interval"},
		{"wide, between the lines", 85, 3, read, 0, 0, nil, probe.Warn, "below-warn wide-interval"},
		{"wide, failing or not", 80, 8, read, 0, 0, nil, probe.Warn, "below-warn wide-interval"},
		{"wide", 88, 8, read, 0, 0, nil, probe.Inconclusive, "wide-interval"},
		{"one sample", 97, 1, read, 0, 0, func(r *probe.Report) {
			r.Results[0].Bandwidth[0].CI95BytesPerSec = nil
		}, probe.Inconclusive, "wide-interval"},
		{"narrow enough when time was up", 97, 1, read, 0, 0, func(r *probe.Report) {
			r.Results[0].Bandwidth[0].Stopped = probe.StoppedTime
		}, probe.Pass, ""},
		{"an outlier that is well enough", 91, 0.5, read, 2, 100, nil, probe.Warn, "outlier"},
		{"the same, confirmed", 91, 0.5, read, 2, 100, retested(90, true), probe.Fail, "outlier confirmed"},
		{"the same by a constant", 91, 0.5, constant, 2, 100, retested(90, true), probe.Warn, "outlier confirmed"},
		{"fine alone", 60, 0.5, read, 2, 100, retested(99, false), probe.Warn, "contended"},
		{"milder alone", 60, 0.5, read, 0, 0, retested(85, true), probe.Warn, "below-fail confirmed"},
		{"a retest without an answer", 60, 0.5, read, 0, 0, func(r *probe.Report) {
			r.Results[0].Retests = []probe.Retest{{How: probe.RetestAlone, Pair: "p0", Error: "timeout"}}
		}, probe.Fail, "below-fail"},
		{"faster than the wire", 110, 1, read, 2, 97, nil, probe.Warn, "faster-than-possible"},
		{"faster than a constant", 110, 1, constant, 0, 0, nil, probe.Pass, ""},
		{"within the tolerance of a rate", 104, 1, read, 0, 0, nil, probe.Pass, ""},
		{"nothing expected, no peers", 50, 0.1, read, 0, 0, unexpected, probe.Measured, "no-expectation"},
		{"nothing expected, as good as peers", 50, 0.1, read, 1, 50, unexpected, probe.Pass, ""},
		{"nothing expected, worse than peers", 40, 0.1, read, 1, 50, unexpected, probe.Warn, "outlier"},
		{"nothing expected, wide, peers", 50, 4, read, 1, 50, unexpected, probe.Inconclusive, "wide-interval"},
		{"wide, nothing expected, no peers", 50, 20, read, 0, 0, unexpected, probe.Measured, "wide-interval no-expectation"},
		{"slow, on a busy host", 60, 0.5, read, 0, 0, busy(0.95, 0.2), probe.Inconclusive, "busy-processors"},
		{"slow, on a host that is not busy enough", 60, 0.5, read, 0, 0, busy(0.6, 0.2), probe.Fail, "below-fail"},
		{"slow, as busy as a pair that moved more", 60, 0.5, read, 1, 97, busy(0.95, 0.2), probe.Inconclusive, "busy-processors"},
		{"slow, as busy as a pair that moved far more", 40, 0.5, read, 1, 97, busy(0.95, 0.2), probe.Fail, "below-fail outlier"},
		{"slow, where a pair moved far more when the host was not busy", 40, 0.5, read, 1, 97, func(r *probe.Report) {
			busy(0.95, 0.2)(r)
			r.Results[1].Processors = nil
		}, probe.Inconclusive, "busy-processors"},
		{"well, on a busy host", 97, 1, read, 0, 0, busy(0.95, 0.2), probe.Pass, ""},
		{"wide, on a busy host", 90, 15, read, 0, 0, busy(0.95, 0.2), probe.Inconclusive, "busy-processors"},
		{"slow, within a host, which it keeps busy itself", 60, 0.5, read, 0, 0, within(busy(1, 0.95)), probe.Fail, "below-fail"},
		{"slow, within a host that others keep busy", 60, 0.5, read, 0, 0, within(busy(1, 0.5)), probe.Inconclusive, "busy-processors"},
		{"waived", 0, 0, read, 0, 0, func(r *probe.Report) {
			r.Results[0].Measurement = probe.Measurement{Waived: "no GPU"}
		}, probe.Waived, "waived"},
		{"error", 97, 1, read, 0, 0, func(r *probe.Report) { r.Results[0].Err = errors.New("gone") }, probe.Error, "error"},
		{"never measured", 0, 0, read, 0, 0, func(r *probe.Report) {
			r.Results[0].Measurement, r.Results[0].Round = probe.Measurement{}, 0
		}, probe.Inconclusive, "not-measured"},
		{"latency alone, of two", 0, 0, read, 1, 0, late(5000, 1000), probe.Warn, "latency-outlier"},
		{"latency alone, but the quickest took no longer", 0, 0, read, 1, 0, func(r *probe.Report) {
			late(5000, 1000)(r)
			r.Results[0].Latency.Load.Min = 900
		}, probe.Pass, ""},
		{"latency on a busy host", 0, 0, read, 1, 0, func(r *probe.Report) {
			late(5000, 1000)(r)
			r.Results[0].Processors = []probe.ProcessorLoad{{Host: "n1", Busy: 0.95}}
		}, probe.Pass, ""},
		{"latency alone, none like it", 0, 0, read, 0, 0, late(5000), probe.Measured, "no-expectation"},
		{"rate limited", 79, 0.5, read, 0, 0, func(r *probe.Report) { r.Spec.RateLimit = one }, probe.Pass, "rate-limited"},
		{"rate limited by an agent", 79, 0.5, read, 0, 0, func(r *probe.Report) { r.Results[0].RateLimit = one }, probe.Pass, "rate-limited"},
		{"rate limited by both", 79, 0.5, read, 0, 0, func(r *probe.Report) {
			r.Results[0].RateLimit, r.Spec.RateLimit = one, 2*one
		}, probe.Pass, "rate-limited"},
		{"rate limited by an agent, best of others", 40, 0.5, read, 1, 97, func(r *probe.Report) { r.Results[0].RateLimit = one / 2 }, probe.Pass, "rate-limited"},
		{"less than the agent's limit", 20, 0.5, read, 1, 97, func(r *probe.Report) { r.Results[0].RateLimit = one / 2 }, probe.Fail, "rate-limited below-fail outlier"},
		{"errors of the link", 97, 1, read, 0, 0, counted("symbol_error"), probe.Warn, "errors-counted"},
		{"errors of PCIe", 97, 1, read, 0, 0, counted("aer_dev_correctable/BadTLP"), probe.Warn, "errors-counted"},
		{"signs of load", 97, 1, read, 0, 0, counted("port_xmit_wait"), probe.Pass, "errors-counted"},
		{"signs of loss somewhere", 97, 1, read, 0, 0, counted("local_ack_timeout_err"), probe.Pass, "errors-counted"},
		{"a port that is not up", 97, 1, read, 0, 0, func(r *probe.Report) {
			r.Results[0].Links = []probe.LinkState{{Link: r.Links[0].Key, State: "INIT"}}
		}, probe.Warn, "link-down"},
		{"filled together", 49, 0.5, read, 1, 49, together, probe.Warn, "contended"},
		{"filled together on purpose", 49, 0.5, read, 1, 49, func(r *probe.Report) {
			together(r)
			r.Plan.Schedule = "endpoint"
		}, probe.Pass, "contended"},
		{"copies cross each link with half of what they count", 60, 0.5, read, 1, 60, func(r *probe.Report) {
			together(r)
			for i := range r.Results {
				r.Results[i].Kind, r.Results[i].Variant = probe.Memory, probe.VariantCopy
			}
		}, probe.Fail, "below-fail"},
		{"a copy that counts more than a link carries", 150, 0.5, read, 0, 0, func(r *probe.Report) {
			r.Results[0].Kind, r.Results[0].Variant = probe.Memory, probe.VariantCopy
		}, probe.Pass, ""},
		{"less than its share of what was filled", 20, 0.5, read, 1, 78, together, probe.Fail, "below-fail outlier"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := oneOf(tt.mean, tt.half, tt.basis, tt.peers, tt.best)
			if tt.change != nil {
				tt.change(r)
			}
			judge.Verdicts(r)
			if got := &r.Results[0]; got.Verdict != tt.want || codes(got) != tt.codes {
				t.Errorf("%s %q, want %s %q\n%+v", got.Verdict, codes(got), tt.want, tt.codes, got.Reasons)
			}
			if s := r.Summary; s.Pass+s.Measured+s.Warn+s.Fail+s.Inconclusive+s.Waived+s.Error != len(r.Results) {
				t.Errorf("summary %+v", s)
			}
		})
	}
}

// busy gives the hosts of all results a load.
func busy(busy, own float64) func(r *probe.Report) {
	return func(r *probe.Report) {
		for i := range r.Results {
			x := &r.Results[i]
			x.From.Host, x.To.Host = "n1", "n2"
			x.Processors = []probe.ProcessorLoad{{Host: "n1", Busy: busy, Own: own}, {Host: "n2", Busy: 0.05}}
		}
	}
}

// within makes pairs of ends of one host.
func within(change func(r *probe.Report)) func(r *probe.Report) {
	return func(r *probe.Report) {
		change(r)
		for i := range r.Results {
			r.Results[i].To.Host = "n1"
		}
	}
}

func retested(mean int64, confirms bool) func(r *probe.Report) {
	return func(r *probe.Report) {
		v := mean * 1e9
		r.Results[0].Retests = []probe.Retest{{How: probe.RetestAlone, Pair: "p0", BytesPerSec: &v, Confirms: confirms}}
	}
}

func unexpected(r *probe.Report) {
	for i := range r.Results {
		r.Results[i].Expected = probe.Expected{Basis: topo.BasisUnknown}
	}
}

// late replaces bandwidths by median latencies.
func late(ns ...int64) func(r *probe.Report) {
	return func(r *probe.Report) {
		r.Spec.SizesBytes = nil
		for i := range r.Results {
			r.Results[i].Measurement = probe.Measurement{Latency: &probe.Latency{Load: &probe.Percentiles{N: 9, Min: ns[i] / 2, P50: ns[i]}}}
		}
	}
}

func counted(name string) func(r *probe.Report) {
	return func(r *probe.Report) {
		r.Results[0].Links = []probe.LinkState{{Link: r.Links[0].Key, State: "ACTIVE", Counters: map[string]int64{name: 3}}}
	}
}

func together(r *probe.Report) {
	r.Results[0].Round, r.Results[1].Round = 1, 1
}

// What a pair is measured against: parts of the expectation and of the best of its group.
func TestParts(t *testing.T) {
	r := oneOf(80, 1, topo.BasisRead, 2, 100)
	judge.Verdicts(r)
	if res := &r.Results[0]; *res.Efficiency != 0.8 || *res.OfBest != 0.8 {
		t.Errorf("efficiency %v, of best %v", *res.Efficiency, *res.OfBest)
	}
	r = oneOf(80, 1, topo.BasisRead, 0, 0)
	unexpected(r)
	judge.Verdicts(r)
	if res := &r.Results[0]; res.Efficiency != nil || res.OfBest != nil {
		t.Errorf("efficiency %v, of best %v, want none", res.Efficiency, res.OfBest)
	}
}

// A report that was written and read again is judged alike, and judging it twice
// changes nothing.
func TestJudgedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(shapes(t), rapid.Uint64().Draw(t, "seed"))
		m.plant(rapid.SampledFrom(m.faults()).Draw(t, "fault"), 0.5)
		m.plant(rapid.SampledFrom(m.faults()).Draw(t, "fault"), 0.7)
		m.measure()
		m.r.Results[0].Measurement = probe.Measurement{Err: probe.Because(probe.CauseConnect, errors.New("gone"))}
		m.r.Results[1].Measurement = probe.Measurement{Waived: "not here"}
		judge.Verdicts(m.r)
		m.retest(t)
		judge.Judge(m.r)
		first, err := json.Marshal(m.r)
		if err != nil {
			t.Fatal(err)
		}
		judge.Judge(m.r)
		second, err := json.Marshal(m.r)
		if err != nil {
			t.Fatal(err)
		}
		var back probe.Report
		if err := json.Unmarshal(first, &back); err != nil {
			t.Fatal(err)
		}
		judge.Judge(&back)
		third, err := json.Marshal(&back)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) || !bytes.Equal(first, third) {
			t.Fatal(cmp.Diff(string(first), string(second)), cmp.Diff(string(first), string(third)))
		}
	})
}

// Pairs of different rounds were not there at the same time: their rates are not added up.
func TestOtherRound(t *testing.T) {
	r := oneOf(49, 0.5, topo.BasisRead, 1, 49)
	r.Results[0].Round, r.Results[1].Round = 1, 2
	judge.Verdicts(r)
	if res := &r.Results[0]; res.Verdict != probe.Fail {
		t.Errorf("%s %s, want FAIL: nothing filled the link", res.Verdict, codes(res))
	}
}

// What a peer made up as names and errors cannot move the cursor or fill the screen.
func TestHostileText(t *testing.T) {
	evil := "\x1b[2J" + strings.Repeat("x", 5000)
	r := oneOf(60, 1, topo.BasisRead, 0, 0)
	r.Links[0].Name, r.Links[0].Host = evil, evil
	r.Results[0].Links = []probe.LinkState{{Link: r.Links[0].Key, State: evil, Counters: map[string]int64{evil: 1}}}
	r.Results = append(r.Results, probe.Result{Pair: probe.Pair{ID: "q"}, Error: evil})
	judge.Judge(r)
	var all []string
	for _, res := range r.Results {
		for _, reason := range res.Reasons {
			all = append(all, reason.Text)
		}
	}
	for _, b := range r.Blame {
		all = append(append(all, b.Evidence...), b.Next)
		for _, s := range b.Suspects {
			all = append(all, s.Name)
		}
	}
	for _, s := range all {
		if strings.ContainsRune(s, '\x1b') || len(s) > 1500 {
			t.Errorf("%d bytes: %q", len(s), s)
		}
	}
}

// A document that contradicts itself is judged all the same.
func TestContradictions(t *testing.T) {
	all := []string{probe.CodeBelowFail, probe.CodeOutlier, probe.CodeLatencyOutlier, probe.CodeConfirmed, probe.CodeContended}
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(shapes(t), 1)
		m.measure()
		judge.Judge(m.r)
		any := func(name string, n int) int { return rapid.IntRange(0, n-1).Draw(t, name) }
		for range 1 + any("changes", 12) {
			res := &m.r.Results[any("result", len(m.r.Results))]
			other := &m.r.Results[any("other", len(m.r.Results))]
			rate := int64(any("rate", 1<<40)) - 1<<20
			switch any("change", 10) {
			case 0:
				res.Verdict = rapid.SampledFrom([]probe.Verdict{probe.Fail, probe.Warn, probe.Error, "", "?"}).Draw(t, "verdict")
			case 1:
				res.Reasons = append(res.Reasons, probe.Reason{Code: rapid.SampledFrom(all).Draw(t, "code")})
			case 2:
				res.Retests = append(res.Retests, probe.Retest{How: probe.RetestAlone, Pair: other.ID, BytesPerSec: &rate, LatencyNS: &rate, Confirms: rate%2 == 0})
			case 3:
				res.Measurement = probe.Measurement{}
			case 4:
				res.Path = append(append([]probe.LinkKey{"?"}, res.Path...), other.Path...)
			case 5:
				res.Group, res.Round = "", other.Round
			case 6:
				res.ID = other.ID
			case 7:
				res.Latency = nil
			case 8:
				m.r.Links = m.r.Links[any("links", len(m.r.Links)+1):]
			case 9:
				if len(res.Bandwidth) > 0 {
					b := &res.Bandwidth[0]
					b.MeanBytesPerSec, b.CI95BytesPerSec, b.SamplesBytesPerSec = rate, &rate, nil
				}
			}
		}
		judge.Blame(m.r)
		for _, q := range judge.Retests(m.r) {
			judge.AddRetest(m.r, q.ID, probe.Measurement{})
		}
		judge.Judge(m.r)
		if _, err := json.Marshal(m.r); err != nil {
			t.Fatal(err)
		}
	})
}

// A retest whose interval stays wide answers all the same, by its mean; one that
// fails answers nothing.
func TestDigest(t *testing.T) {
	for _, tt := range []struct {
		mean, half float64
		err        error
		want       probe.Verdict
	}{{60, 40, nil, probe.Fail}, {97, 10, nil, probe.Warn}, {60, 1, nil, probe.Fail}, {60, 1, errors.New("gone"), probe.Fail}} {
		r := oneOf(60, 1, topo.BasisRead, 0, 0)
		judge.Verdicts(r)
		again := judge.Retests(r)
		if len(again) != 1 {
			t.Fatalf("%+v", again)
		}
		m := oneOf(tt.mean, tt.half, topo.BasisRead, 0, 0).Results[0].Measurement
		m.Err = tt.err
		judge.AddRetest(r, again[0].ID, m)
		judge.Verdicts(r)
		res := &r.Results[0]
		if got := res.Retests[0]; got.How != probe.RetestAlone || got.Confirms != (tt.mean == 60 && tt.err == nil) || (got.BytesPerSec == nil) != (tt.err != nil) || res.Verdict != tt.want {
			t.Errorf("%+v: %+v, %s", tt, got, res.Verdict)
		}
		if len(judge.Retests(r)) > 0 {
			t.Errorf("%+v: measured again twice", tt)
		}
	}
}

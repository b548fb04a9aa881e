package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/serve"

	"github.com/topoctl/topoctl/internal/kv/report"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const schemaFile = "schema/kv.v1.schema.json"

var generator = schematest.Generator{Types: map[reflect.Type]schematest.Object{
	reflect.TypeFor[report.Basis](): {"enum": []any{report.Modelled, report.Simulated, report.Measured}},
	reflect.TypeFor[serve.Basis]():  {"enum": []any{serve.Published, serve.Assumed}},
}}

// The published schema says what the types say.
func TestSchemaMatchesTheTypes(t *testing.T) {
	schematest.Compare(t, schemaFile, generator.Document(report.Schema, reflect.TypeFor[report.Report]()))
}

func ptr[T any](v T) *T { return &v }

const ms = 1_000_000

// answered is a request that prefill works off for 100 ms, and whose cache takes 20 ms, the
// link not being free for 5 ms.
func answered(id int, sent, queue int64) kv.Times {
	prefill := sent + queue
	done := prefill + 100*ms
	x := kv.Times{Request: id, SentNS: sent, PrefillNS: prefill, PrefilledNS: done, AdmittedNS: done, WireNS: done + 5*ms, ArrivedNS: done + 25*ms, KVBytes: 64 << 20}
	for i := range int64(3) {
		x.TokensNS = append(x.TokensNS, x.ArrivedNS+(i+1)*30*ms)
	}
	return x
}

func sum(t testing.TB, w *kv.Workload, times []kv.Times, slo kv.SLO) *kv.Metrics {
	t.Helper()
	m, err := kv.Compute(w, times, kv.Options{SLO: slo})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// small is a run of four requests, of which the last has no answer.
func small(t testing.TB) *report.Report {
	w := &kv.Workload{Name: "trace small.jsonl", Requests: []kv.Request{
		{ID: 0, Input: 512, Output: 3, Line: 1}, {ID: 1, ArriveNS: 50 * ms, Input: 512, Output: 3, Line: 2},
		{ID: 2, ArriveNS: 60 * ms, Input: 2000, Output: 3, Line: 3}, {ID: 3, ArriveNS: 70 * ms, Input: 1 << 20, Output: 3, Line: 5}}}
	times := []kv.Times{answered(0, 0, 0), answered(1, 50*ms, 50*ms), answered(2, 60*ms, 140*ms), {Request: 3, SentNS: 70 * ms, Failed: &kv.Failure{Err: errors.New("no memory")}}}
	slow := []kv.Times{answered(0, 0, 0), answered(1, 50*ms, 90*ms), answered(2, 60*ms, 240*ms), {Request: 3, SentNS: 70 * ms, Failed: &kv.Failure{Err: errors.New("no memory")}}}
	params, err := serve.Find("Qwen3-32B", "H20", 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	pool := report.Pool{Instances: []report.Instance{{Ranks: []string{"p:gpu:0", "p:gpu:1"}}}, TP: 2, PP: 1, GPU: "H20", CacheBytes: 10 << 30, PageTokens: 16, Pages: 5120,
		MaxBatchedTokens: 8192, MaxSequences: ptr(256), Compute: report.ComputeOf(&params)}
	decode := pool
	decode.Instances = []report.Instance{{Ranks: []string{"d:gpu:0", "d:gpu:1"}}, {Ranks: []string{"d:gpu:2", "d:gpu:3"}}}
	decode.Busy, decode.Preempted = ptr(0.5), ptr[int64](1)
	pool.PrefixBytes, pool.PrefixTokens, pool.PrefixHitRatio = ptr[int64](8<<30), ptr[int64](512), ptr(0.1693)
	pool.Busy, pool.Preempted = ptr(0.25), ptr[int64](0)
	own := sum(t, w, times, kv.SLO{TTFTNS: ptr[int64](200 * ms)})
	return &report.Report{Tool: topo.Tool{Name: "topoctl", Version: "test"}, ComputeBasis: report.Modelled, NetworkBasis: report.Simulated,
		Workload: report.Workload{Name: w.Name, Trace: ptr("small.jsonl"), Requests: 4, Seed: 1 << 60},
		Model:    report.Model{Name: "Qwen3-32B", Layers: 64, KVBytesPerToken: 262144, Source: "config.json"}, Prefill: pool, Decode: &decode,
		Serving: report.Serving{Move: "push-layers", LayersPerMove: ptr(4), Admit: "beside", FirstToken: "decode", Router: "least-tokens", SetupNS: 50_000, PieceNS: 300},
		Hosts:   []report.Host{{Name: "p", Source: "p.json", Prefill: true}, {Name: "d", Source: "fixture:hgx-h20-8nic", Decode: true}},
		Network: report.Network{FabricFile: ptr("fabric.json"), Leaves: ptr(2), Spines: ptr(1), Choice: "pathsel", Policy: "adaptive", WhatIf: []string{"p/mlx5_1 is down"}, SliceBytes: ptr[int64](1 << 20)},
		Metrics: own,
		Lanes: []report.Lane{{Lane: "p:mlx5_0 > d:mlx5_0", Bytes: 160 << 20, Share: ptr(0.8333), BytesPerSec: ptr[int64](50_000_000_000), Use: ptr(0.25), Slices: 160},
			{Lane: "p:mlx5_2 > d:mlx5_0", Bytes: 32 << 20, Share: ptr(0.1667), Slices: 32, Retries: 1}},
		Compared: []report.Compared{{Name: "random NIC", Choice: "random-nic", Policy: "adaptive", WhatIf: []string{"p/mlx5_1 is down"}, Metrics: sum(t, w, slow, kv.SLO{}), TTFTRatio: ptr(1.25)}},
		Failures: []report.Failure{{Requests: 1, First: 3, Line: ptr(5), Reason: "no memory"}},
		Notes:    []string{"the rate of d/mlx5_2 is not known: it limits nothing here"}}
}

// nothing is a run without an answer, of which nothing is known that may be unknown.
func nothing(t testing.TB) *report.Report {
	w := &kv.Workload{Name: "one", Requests: []kv.Request{{Input: 1, Output: 1}}}
	r := &report.Report{ComputeBasis: report.Modelled, NetworkBasis: report.Simulated, Metrics: sum(t, w, nil, kv.SLO{})}
	params, err := serve.Find("Llama-3.1-8B", "A10", 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.Prefill.Compute = report.ComputeOf(&params)
	r.Lanes = []report.Lane{{Lane: "a:x > b:y"}}
	r.Compared = []report.Compared{{Name: "other", Metrics: r.Metrics}}
	return r
}

// The document and the table are as they were, and the document is valid by its schema.
func TestReports(t *testing.T) {
	schema := schematest.Open(t, schemaFile)
	for name, r := range map[string]*report.Report{"small": small(t), "nothing": nothing(t)} {
		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(data, []byte("{\"schema\":\""+report.Schema+"\",\n")) {
			t.Errorf("%s: begins with %.40q", name, data)
		}
		if err := schema.Validate(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		golden.Check(t, "testdata/"+name+".json", data)
		golden.Check(t, "testdata/"+name+".txt", r.Text(report.Options{All: true}))
		golden.Check(t, "testdata/"+name+".short.txt", r.Text(report.Options{}))
		golden.Check(t, "testdata/"+name+".svg", r.SVG())
	}
}

// The first line is the answer: the time to the first token, what it is mostly, whether the system
// keeps up; the second what other networks would change.
func TestAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*report.Report)
		want   string
	}{
		"as it is": {func(*report.Report) {}, "The first token takes 218 ms on average (P99 293 ms), the largest part prefill (45.8 %); moving the KV cache is 11.5 % of it. 1 of 4 requests failed.\n" +
			"A random NIC would add 46.7 ms (25.0 %).\nCompute is "},
		"the wire alone": {func(r *report.Report) { r.Serving = report.Serving{} }, "At best, the first token takes 218 ms on average (P99 293 ms), the largest part prefill (45.8 %); moving the KV cache is 11.5 % of it. " +
			"That is the wire alone: published systems took "},
		"a real network": {func(r *report.Report) { r.NetworkBasis = report.Measured }, "The first token takes 218 ms"},
		"prefill queues": {func(r *report.Report) { r.Metrics.Load.GrowingWait = kv.ForPrefill }, "Overloaded: 42.9 requests arrive each second, and 7.23 are served; what grows is the wait for prefill. " +
			"The first token takes 218 ms on average (P99 293 ms) in this run, and ever longer in a longer one. "},
		"memory is short": {func(r *report.Report) { r.Metrics.Load.GrowingWait = kv.ForMemory }, "what grows is the wait for KV memory. "},
		"a side cannot": {func(r *report.Report) { r.Prefill.CapacityPerSec, r.Decode.CapacityPerSec = ptr(50.), ptr(40.) },
			"Overloaded: 42.9 requests arrive each second, and decode can compute 40.0 at most. "},
		"both can":                {func(r *report.Report) { r.Prefill.CapacityPerSec, r.Decode.CapacityPerSec = ptr(50.), ptr(43.) }, "The first token takes 218 ms"},
		"at once":                 {func(r *report.Report) { r.Metrics.Load = nil }, "All 4 requests arrive at once, and the first token takes 218 ms on average (P99 293 ms), the largest "},
		"no ratio means anything": {func(r *report.Report) { r.Compared[0].TTFTRatio = nil }, "requests failed.\nCompute is "},
		"both on one instance":    {func(r *report.Report) { r.Decode, r.Compared = nil, nil }, "the largest part prefill (45.8 %). 1 of 4 requests failed.\nCompute is "},
		"unknown":                 {func(r *report.Report) { *r = *nothing(t) }, "No request was answered.\nCompute is "},
	} {
		r := small(t)
		tt.change(r)
		if got := r.Text(report.Options{}); !strings.Contains(got, tt.want) || strings.Index(got, "Compute is ") > len(strings.Join(r.Answer(), "\n"))+1 {
			t.Errorf("%s: no %q in\n%s", name, tt.want, got)
		}
	}
}

// An instance is named by the first and last rank on each of its hosts, of many hosts by three.
func TestInstancesOnSeveralHosts(t *testing.T) {
	r := small(t)
	ranks := func(hosts, each int) report.Instance {
		var x report.Instance
		for h := range hosts {
			for g := range each {
				x.Ranks = append(x.Ranks, fmt.Sprintf("n%d:gpu:%d", h, g))
			}
		}
		return x
	}
	r.Prefill.Instances = []report.Instance{ranks(2, 8), ranks(1, 1), ranks(6, 2), {}}
	want := "4 x TP2 of H20 (n0:gpu:0 to n0:gpu:7, n1:gpu:0 to n1:gpu:7; n0:gpu:0; n0:gpu:0 to n0:gpu:1, n1:gpu:0 to n1:gpu:1, n2:gpu:0 to n2:gpu:1, and 3 more hosts; -), "
	if text := r.Text(report.Options{All: true}); !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
}

// A reader gets the figures by the names that the documentation promises.
func TestKeys(t *testing.T) {
	data, err := small(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	type summary struct{ Mean, Median, P99 *float64 }
	var doc struct {
		Metrics struct {
			TTFT summary `json:"ttft_ms"`
			TPOT summary `json:"tpot_ms"`
			ITL  summary `json:"itl_ms"`
			E2E  summary `json:"e2e_ms"`
			Good float64 `json:"goodput_requests_per_s"`
		}
		Workload struct{ Seed string }
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	// TTFT: 155, 205 and 295 ms; gaps of 30 ms; the last token 60 ms later.
	for name, x := range map[string]struct {
		got          summary
		mean, median float64
	}{"ttft": {doc.Metrics.TTFT, 655. / 3, 205}, "tpot": {doc.Metrics.TPOT, 30, 30}, "itl": {doc.Metrics.ITL, 30, 30}, "e2e": {doc.Metrics.E2E, 655./3 + 60, 265}} {
		if x.got.Mean == nil || x.got.Median == nil || x.got.P99 == nil || math.Abs(*x.got.Mean-x.mean) > 1e-6 || math.Abs(*x.got.Median-x.median) > 1e-6 {
			t.Errorf("%s: %+v, want mean %v and median %v", name, x.got, x.mean, x.median)
		}
	}
	if want := 1 / 0.415; math.Abs(doc.Metrics.Good-want) > 1e-9 { // one request of 415 ms meets 200 ms
		t.Errorf("goodput %v, want %v", doc.Metrics.Good, want)
	}
	if doc.Workload.Seed != "1152921504606846976" {
		t.Errorf("seed %q was rounded", doc.Workload.Seed)
	}
}

// What is not known is never a number, for programs or people.
func TestUnknown(t *testing.T) {
	r := nothing(t)
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"ttft_ms", "tpot_ms", "queue_ms", "duration_ns", "requests_per_s", "goodput_requests_per_s", "use", "share", "ttft_mean_ratio", "max_sequences", "trace", "fabric_file", "prefix_bytes", "prefix_tokens", "prefix_hit_ratio"} {
		if !bytes.Contains(data, []byte(`"`+key+`":null`)) {
			t.Errorf("%s is not null:\n%s", key, data)
		}
	}
	for _, line := range strings.Split(r.Text(report.Options{All: true}), "\n") {
		if strings.HasPrefix(line, "TTFT") && strings.ContainsAny(line, "0123456789") {
			t.Errorf("a number nobody knows: %q", line)
		}
	}
	bad := small(t)
	bad.Lanes[0].Use = ptr(math.NaN())
	if _, err := bad.Encode(); err == nil {
		t.Error("NaN was written")
	}
}

// Rates are printed in the unit that is asked for; the report is not changed by printing it.
func TestUnits(t *testing.T) {
	r := small(t)
	for unit, want := range map[units.System]string{"": " 50.0 GB/s ", units.Gbit: " 400 Gb/s ", units.Gibyte: " 46.6 GiB/s "} {
		if text := r.Text(report.Options{Units: unit, All: true}); !strings.Contains(text, want) {
			t.Errorf("units %q: no %q in\n%s", unit, want, text)
		}
	}
	if _, err := r.Encode(); err != nil || !reflect.DeepEqual(r, small(t)) {
		t.Errorf("printing changed the report (%v)", err)
	}
}

// Drawing and page are well formed, whatever names a file has, and load nothing.
func TestHostileNames(t *testing.T) {
	r := small(t)
	const evil = "<script>alert(1)</script>&\"'\x1b[2J\u202e"
	r.Model.Name, r.Workload.Name, r.Lanes[0].Lane, r.Compared[0].Name, r.Notes = evil, evil, evil, strings.Repeat(evil, 50), []string{evil}
	page, err := r.HTML(report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"svg": r.SVG(), "html": page} {
		for _, bad := range []string{"<script", "\x1b", "\u202e", "src=", "href=", "url("} {
			if bytes.Contains(data, []byte(bad)) {
				t.Errorf("%s holds %q", name, bad)
			}
		}
		if n := bytes.Count(data, []byte("http")); n != 1+strings.Count(name, "html") { // the namespace, and http-equiv
			t.Errorf("%s: %d addresses", name, n)
		}
	}
	dec := xml.NewDecoder(bytes.NewReader(r.SVG()))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Bars are as long as what they stand for: parts of a run add up to its mean TTFT.
func TestBars(t *testing.T) {
	text := string(small(t).SVG())
	for _, want := range []string{">218 ms<", ">265 ms<", ">180 ms<", ">25.0 %<", ">?<", "this run: prefill 100 ms", "random NIC: queue 110 ms"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
}

package cli

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	kvreport "github.com/topoctl/topoctl/internal/kv/report"
	"github.com/topoctl/topoctl/internal/sim"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/schematest"
)

func TestParseShape(t *testing.T) {
	for text, want := range map[string]kvShape{"1xtp1": {1, 1}, "2xtp4": {2, 4}, "tp16": {1, 16}, "12XTP4": {12, 4}} {
		if got, err := parseShape(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "2x4", "0xtp1", "1xtp0", "-1xtp1", "5000xtp1", "1xtp2000", "1xtp1 ", "tp", "99999999999999999999xtp1"} {
		if got, err := parseShape(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

func TestParseSLO(t *testing.T) {
	got, err := parseSLO([]string{"ttft=1.5s", " TPOT=50ms", "e2e=2m"})
	if err != nil || *got.TTFTNS != 1.5e9 || *got.TPOTNS != 5e7 || *got.E2ENS != 120e9 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := parseSLO(nil); err != nil || got.TTFTNS != nil || got.TPOTNS != nil || got.E2ENS != nil {
		t.Errorf("nothing: %+v, %v", got, err)
	}
	for _, text := range []string{"ttft", "ttft=", "ttft=5", "ttft=-5ms", "ttft=0s", "itl=5ms", "=5ms"} {
		if _, err := parseSLO([]string{text}); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	if _, err := parseSLO([]string{"ttft=1s", "ttft=2s"}); err == nil {
		t.Error("ttft was taken twice")
	}
}

// kvPredicted runs the command and gives the document.
func kvPredicted(t *testing.T, args ...string) (*kvreport.Report, []byte) {
	t.Helper()
	f := newStreams()
	args = append([]string{"kv", "predict", "--model", "llama-3.1-8b", "-o", "json"}, args...)
	if code := runFake(t.Context(), f, args...); code != 0 {
		t.Fatalf("%v: code %d: %s", args, code, f.Stderr.String())
	}
	var r kvreport.Report
	if err := json.Unmarshal(f.Stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return &r, f.Stdout.Bytes()
}

// Documents are valid by the published schema and the same for equal seeds, and their parts fit together.
func TestKVPredict(t *testing.T) {
	schema := schematest.Open(t, "../../../../internal/kv/report/schema/kv.v1.schema.json")
	hosts := []string{"--host", "p=fixture:a10-2nic", "--host", "d=fixture:a10-2nic", "--requests", "40", "--rate", "2", "--output-len", "4"}
	for _, args := range [][]string{nil, {"--mode", "layers"}, {"--mode", "pull", "--compare"}, {"--down", "p/mlx5_0"}, {"--slo", "ttft=300ms"}} {
		args = append(args, hosts...)
		r, data := kvPredicted(t, args...)
		if err := schema.Validate(data); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		if _, again := kvPredicted(t, args...); string(again) != string(data) {
			t.Errorf("%v: another run gives another document", args)
		}
		for name, x := range map[string]*float64{"prefill": r.Prefill.Busy, "decode": r.Decode.Busy} {
			if x == nil || *x <= 0 || *x > 1 {
				t.Errorf("%v: %s is busy %v", args, name, x)
			}
		}
		want, lanes := int64(40*1024)*r.Model.KVBytesPerToken, int64(0)
		for _, l := range r.Lanes {
			lanes += l.Bytes
			if l.Use == nil || *l.Use <= 0 || *l.Use > 1 {
				t.Errorf("%v: use of %s: %v", args, l.Lane, l.Use)
			}
		}
		if r.Metrics.Completed != 40 || r.Metrics.KVBytes != want || lanes != want {
			t.Errorf("%v: %d answered; moved %d bytes, lanes %d: want 40 and %d", args, r.Metrics.Completed, r.Metrics.KVBytes, lanes, want)
		}
	}
}

// Without a network there is nothing to wait for, and a slower lane costs more.
func TestKVPredictNetworks(t *testing.T) {
	r, _ := kvPredicted(t, "--host", "p=fixture:a10-2nic", "--host", "d=fixture:a10-2nic", "--requests", "40", "--rate", "1", "--output-len", "4", "--down", "p/mlx5_0", "--compare")
	by := map[string]*kvreport.Compared{}
	for i := range r.Compared {
		by[r.Compared[i].Name] = &r.Compared[i]
	}
	var names []string
	for i := range r.Compared {
		names = append(names, r.Compared[i].Name)
	}
	if diff := cmp.Diff([]string{"without what-ifs", "infinite network", "best NIC alone", "random NIC"}, names); diff != "" {
		t.Fatal(diff)
	}
	own, plain, none := r.Metrics.Exposed.Mean, by["without what-ifs"].Metrics.Exposed.Mean, by["infinite network"].Metrics.Exposed.Mean
	if none != 0 || plain <= 0 || own <= plain {
		t.Errorf("KV exposed: %v ms with the near NIC down, %v ms as it is, %v ms without a network", own, plain, none)
	}
	if len(by["without what-ifs"].WhatIf) != 0 || len(by["random NIC"].WhatIf) != 1 {
		t.Errorf("what-ifs: %+v", r.Compared)
	}
}

// On a terminal it says which network is predicted, and takes the line away; elsewhere nothing.
func TestKVPredictProgress(t *testing.T) {
	for _, tt := range []struct {
		terminal bool
		args     []string
		want     bool
	}{{true, nil, true}, {false, nil, false}, {true, []string{"-q"}, false}} {
		f := newStreams()
		f.ErrTTY = tt.terminal
		args := append([]string{"kv", "predict", "--model", "llama-3.1-8b", "--host", "p=fixture:a10-2nic", "--host", "d=fixture:a10-2nic", "--requests", "2", "--compare"}, tt.args...)
		if code := runFake(t.Context(), f, args...); code != 0 {
			t.Fatal(f.Stderr.String())
		}
		said := f.Stderr.String()
		if !tt.want && said != "" || tt.want && (!strings.Contains(said, "predicting 2 requests: random NIC (4 of 4)") || !strings.HasSuffix(said, clearLine)) {
			t.Errorf("terminal %v, %v: %q", tt.terminal, tt.args, said)
		}
	}
}

// A block that an earlier prompt has is not computed again: by hand, from the document's own parameters.
func TestKVPredictPrefixes(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "t.jsonl")
	lines := `{"timestamp": 0, "input_length": 1000, "output_length": 2, "hash_ids": [1, 2]}
{"timestamp": 5000, "input_length": 600, "output_length": 2, "hash_ids": [1, 3]}`
	if err := os.WriteFile(trace, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--host", "p=fixture:a10-2nic", "--host", "d=fixture:a10-2nic", "--trace", trace}
	for _, kept := range []bool{false, true} {
		with := args
		found, left := 0.0, 600.0
		if kept {
			with, found, left = append(args, "--prefix-memory", "64MiB"), 512, 88 // one block
		}
		r, data := kvPredicted(t, with...)
		if err := schematest.Open(t, "../../../../internal/kv/report/schema/kv.v1.schema.json").Validate(data); err != nil {
			t.Error(err)
		}
		p := r.Prefill.Compute.Prefill
		want := (2*p.ANS + p.BNSPerToken*(1000+left) + p.CNSPerSquare*(1000*1000+left*(left+2*found))) / 2e6
		if got := r.Metrics.Compute.Mean; math.Abs(got/want-1) > 1e-6 {
			t.Errorf("prefix memory %v: prompts are computed in %v ms, want %v", kept, got, want)
		}
		if want := 1600 * r.Model.KVBytesPerToken; r.Metrics.KVBytes != want {
			t.Errorf("prefix memory %v: %d bytes moved, want %d: all of each prompt", kept, r.Metrics.KVBytes, want)
		}
		if x := r.Prefill; kept != (x.PrefixTokens != nil) || kept && (*x.PrefixTokens != 512 || *x.PrefixHitRatio != 0.32 || *x.PrefixBytes != 64<<20) {
			t.Errorf("prefix memory %v: %v of %v tokens, ratio %v", kept, x.PrefixTokens, x.PrefixBytes, x.PrefixHitRatio)
		}
	}
}

// A fabric file becomes the simulator's fabric.
func TestFabricOf(t *testing.T) {
	kind, err := sim.NewKind(fixturetest.Topology(t, "a10-2nic"), "")
	if err != nil {
		t.Fatal(err)
	}
	hosts := []sim.HostSpec{{Name: "a", Kind: kind}, {Name: "b", Kind: kind}}
	const head = `{"schema": "topoctl.fabric/v1", `
	both := func(leafA, leafB string) string {
		return `"hosts": [{"host": "a", "ports": [{"port": "mlx5_0", ` + leafA + `}, {"port": "mlx5_1", ` + leafA + `}]}, {"host": "b", "ports": [{"port": "mlx5_0", ` + leafB + `}, {"port": "mlx5_1", ` + leafB + `}]}]`
	}
	tests := []struct {
		name, file     string
		leaves, spines int
		cables         int
		note, err      string
		uplinks        []sim.Uplink
	}{
		{name: "one leaf", file: head + both(`"leaf": "x"`, `"leaf": "x"`) + `}`, leaves: 1, cables: 4},
		{name: "rails on one switch", file: head + `"hosts": [{"host": "*", "ports": [{"port": "mlx5_0", "rail": 0}, {"port": "mlx5_1", "rail": 1}]}]}`, leaves: 1, cables: 4},
		{name: "separate rails", file: head + `"rail_only": true, "hosts": [{"host": "*", "ports": [{"port": "mlx5_0", "rail": 0}, {"port": "mlx5_1", "rail": 1}]}]}`, leaves: 2, cables: 4},
		{name: "no uplinks", file: head + both(`"leaf": "x"`, `"leaf": "y"`) + `}`, leaves: 2, spines: 1, cables: 4, note: "no uplinks", uplinks: []sim.Uplink{{Leaf: 0, Links: 1}, {Leaf: 1, Links: 1}}},
		{name: "uplinks", file: head + both(`"leaf": "x"`, `"leaf": "y"`) + `, "uplinks": [{"leaf": "x", "spine": "s", "count": 2, "bytes_per_sec": 7}, {"leaf": "y", "spine": "s", "count": 2, "bytes_per_sec": 7}]}`,
			leaves: 2, spines: 1, cables: 4, uplinks: []sim.Uplink{{Leaf: 0, Links: 2, BytesPerSec: 7}, {Leaf: 1, Links: 2, BytesPerSec: 7}}},
		{name: "uplinks of nobody", file: head + both(`"leaf": "x"`, `"leaf": "y"`) + `, "uplinks": [{"leaf": "x", "spine": "s"}, {"leaf": "y", "spine": "s"}]}`, leaves: 2, spines: 1, cables: 4, note: "no rates", uplinks: []sim.Uplink{{Leaf: 0, Links: 1}, {Leaf: 1, Links: 1}}},
		{name: "a missing uplink", file: head + both(`"leaf": "x"`, `"leaf": "y"`) + `, "uplinks": [{"leaf": "x", "spine": "s"}, {"leaf": "x", "spine": "r"}, {"leaf": "y", "spine": "s"}]}`,
			leaves: 2, spines: 2, cables: 4, note: "no rates", uplinks: []sim.Uplink{{Leaf: 0, Spine: 0, Links: 1}, {Leaf: 0, Spine: 1, Links: 1}, {Leaf: 1, Spine: 1, Links: 1}}},
		{name: "uneven uplinks", file: head + both(`"leaf": "x"`, `"leaf": "y"`) + `, "uplinks": [{"leaf": "x", "spine": "s", "bytes_per_sec": 9}, {"leaf": "y", "spine": "s", "count": 2, "bytes_per_sec": 7}]}`,
			leaves: 2, spines: 1, cables: 4, uplinks: []sim.Uplink{{Leaf: 0, Links: 1, BytesPerSec: 9}, {Leaf: 1, Links: 2, BytesPerSec: 7}}},
		{name: "a rate that is not known", file: head + both(`"leaf": "x"`, `"leaf": "y"`) + `, "uplinks": [{"leaf": "x", "spine": "s", "bytes_per_sec": 9}, {"leaf": "y", "spine": "s"}]}`,
			leaves: 2, spines: 1, cables: 4, note: "without a rate in the fabric file (1)", uplinks: []sim.Uplink{{Leaf: 0, Links: 1, BytesPerSec: 9}, {Leaf: 1, Links: 1}}},
		{name: "a port without leaf", file: head + `"hosts": [{"host": "*", "ports": [{"port": "mlx5_0", "leaf": "x"}, {"port": "mlx5_1", "rail": 1}]}]}`, leaves: 1, cables: 2, note: "a/mlx5_1,"},
		{name: "nothing known", file: head + `"hosts": [{"host": "*", "ports": [{"port": "mlx5_0"}]}]}`, err: "any usable port"},
		{name: "another host's", file: head + `"hosts": [{"host": "a", "ports": [{"port": "mlx5_9", "leaf": "x"}]}]}`, err: "no such port"},
	}
	for _, tt := range tests {
		file, err := pathsel.ParseFabric([]byte(tt.file))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		f, notes, err := fabricOf(file, hosts)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if f.Leaves != tt.leaves || f.Spines != tt.spines || len(f.Cables) != tt.cables || f.RailOnly != file.RailOnly {
			t.Errorf("%s: %+v", tt.name, f)
		}
		if diff := cmp.Diff(tt.uplinks, f.Uplinks); diff != "" {
			t.Errorf("%s: uplinks (-want +got)\n%s", tt.name, diff)
		}
		if text := strings.Join(notes, "\n"); (tt.note == "") != (text == "") || !strings.Contains(text, tt.note) {
			t.Errorf("%s: notes %q, want %q", tt.name, text, tt.note)
		}
		if _, err := sim.New(sim.Spec{Hosts: hosts, Fabric: f}); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

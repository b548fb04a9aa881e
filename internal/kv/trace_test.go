package kv_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/internal/kv"
)

const good = `{"timestamp": 0, "input_length": 700, "output_length": 52, "hash_ids": [0, 1]}
{"timestamp": 0, "input_length": 512, "output_length": 26, "hash_ids": [0], "other": {"a": [1]}}

{"timestamp": 3000.25, "input_length": 513, "output_length": 1}
`

func TestReadTrace(t *testing.T) {
	for name, text := range map[string]string{"lines": good, "no newline at the end": strings.TrimRight(good, "\n"),
		"other line ends": strings.ReplaceAll(good, "\n", "\r\n")} {
		w, err := kv.ReadTrace(strings.NewReader(text), "test")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := &kv.Workload{Name: "test", Requests: []kv.Request{
			{ID: 0, Input: 700, Output: 52, Blocks: []int64{0, 1}, Line: 1},
			{ID: 1, Input: 512, Output: 26, Blocks: []int64{0}, Line: 2},
			{ID: 2, ArriveNS: 3_000_250_000, Input: 513, Output: 1, Line: 4},
		}}
		if d := cmp.Diff(want, w); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestBadTraces(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{`{"timestamp": -1, "input_length": 5, "output_length": 1}`, "line 2: timestamp is not between 0 and 1000000000 ms since the trace began"},
		{`{"timestamp": 1e300, "input_length": 5, "output_length": 1}`, "line 2: timestamp is not between"},
		{`{"timestamp": 999.5, "input_length": 5, "output_length": 1}`, "line 2: timestamp 999.5 is before that of line 1, 1000: sort the trace by timestamp"},
		{`{"timestamp": 1000, "input_length": 0, "output_length": 1}`, "line 2: input_length is 0: want 1 to 16777216 tokens"},
		{`{"timestamp": 1000, "input_length": -7, "output_length": 1}`, "line 2: input_length is -7: want"},
		{`{"timestamp": 1000, "input_length": 16777217, "output_length": 1}`, "line 2: input_length is 16777217: want"},
		{`{"timestamp": 1000, "input_length": 7, "output_length": -1}`, "line 2: output_length is -1: want"},
		{`{"timestamp": 1000, "input_length": 7}`, "line 2: output_length is missing"},
		{`{"timestamp": 1000, "output_length": 7}`, "line 2: input_length is missing"},
		{`{"input_length": 7, "output_length": 7}`, "line 2: timestamp is missing"},
		{`{"timestamp": null, "input_length": 7, "output_length": 7}`, "line 2: timestamp is missing"},
		{`{"timestamp": 1000, "input_length": 1.5, "output_length": 7}`, "line 2: input_length is not an integer of 64 bits"},
		{`{"timestamp": 1000, "input_length": "7", "output_length": 7}`, "line 2: input_length: a JSON string where a number is expected"},
		{`{"timestamp": 1000, "input_length": 513, "output_length": 7, "hash_ids": [1]}`, "line 2: 1 hash_ids for 513 tokens: blocks of 512 tokens make 2"},
		{`{"timestamp": 1000, "input_length": 512, "output_length": 7, "hash_ids": [1, 2]}`, "line 2: 2 hash_ids for 512 tokens: blocks of 512 tokens make 1"},
		{`{"timestamp": 1000, "input_length": 512, "output_length": 7, "hash_ids": []}`, "line 2: 0 hash_ids for 512 tokens"},
		{`{"timestamp": 1000, "input_length": 512, "output_length": 7, "hash_ids": [1.5]}`, "line 2: hash_ids is not an integer"},
		{`{"timestamp": 1000, "input_length": 512, "output_length": 7, "hash_ids": [9223372036854775807]}`, "line 2: hash_ids holds 9223372036854775807: at most"},
		{`[1, 2]`, "line 2: a JSON array where an object is expected"},
		{"\x1b[31mgarbage", "line 2: not JSON, at byte 1"},
		{`{"timestamp": 1000`, "line 2: not JSON, at byte 18"},
		{`{"timestamp": 1000, "input_length": 7, "output_length": 7} {}`, "line 2: not JSON, at byte 60"},
		{`{"timestamp": 1000, "x": "` + strings.Repeat("x", 1<<20) + `"}`, "line 2: longer than 1048576 bytes"},
	} {
		text := `{"timestamp": 1000, "input_length": 5, "output_length": 1}` + "\n" + tt.line + "\n"
		_, err := kv.ReadTrace(strings.NewReader(text), "test")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.60s: error %v, want %q", tt.line, err, tt.want)
		}
	}
	for _, text := range []string{"", "\n\n \n"} {
		if _, err := kv.ReadTrace(strings.NewReader(text), "test"); err == nil || err.Error() != "the trace has no requests" {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

// A reader that fails is no end of the trace.
func TestBrokenReader(t *testing.T) {
	broken := errors.New("the disk is gone")
	_, err := kv.ReadTrace(io.MultiReader(strings.NewReader(good), iotest.ErrReader(broken)), "test")
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "line 5: ") {
		t.Errorf("error %v", err)
	}
}

func TestWriteRefusesConcurrency(t *testing.T) {
	w := generate(t, spec(2, kv.Arrivals{Concurrency: 1}))
	if err := kv.WriteTrace(&bytes.Buffer{}, w); err == nil {
		t.Error("a concurrency was written")
	}
}

func TestWriteTrace(t *testing.T) {
	w := &kv.Workload{Requests: []kv.Request{{Input: 513, Output: 2, Blocks: []int64{4, 9}}, {ID: 1, ArriveNS: 1_500_000, Input: 600, Output: 1}}}
	var out bytes.Buffer
	if err := kv.WriteTrace(&out, w); err != nil {
		t.Fatal(err)
	}
	want := `{"timestamp": 0, "input_length": 513, "output_length": 2, "hash_ids": [4,9]}
{"timestamp": 1.5, "input_length": 600, "output_length": 1, "hash_ids": [10,11]}
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}

// What is generated and saved is read back to the nanosecond.
func TestWriteAndRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := kv.Spec{Requests: rapid.IntRange(1, 40).Draw(t, "requests"), Seed: rapid.Uint64().Draw(t, "seed"),
			Arrivals: kv.Arrivals{RatePerSec: rapid.SampledFrom([]float64{1e-4, 0.3, 1, 16, 1e6, math.Inf(1)}).Draw(t, "rate"),
				Burstiness: rapid.SampledFrom([]float64{0.2, 1, 5}).Draw(t, "burstiness")},
			Input: kv.LognormalP90(700, 3000, 100_000), Output: kv.Uniform(100, 0.9)}
		w, err := kv.Generate(s)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := kv.WriteTrace(&out, w); err != nil {
			t.Fatal(err)
		}
		back, err := kv.ReadTrace(&out, w.Name)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(w.Requests, back.Requests, cmpopts.IgnoreFields(kv.Request{}, "Blocks", "Line")); d != "" {
			t.Fatal(d)
		}
		seen := map[int64]bool{}
		for _, r := range back.Requests {
			for _, b := range r.Blocks {
				if seen[b] {
					t.Fatal("requests that shared nothing share a block")
				}
				seen[b] = true
			}
		}
	})
}

func FuzzReadTrace(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"timestamp": 1.5e3, "input_length": 1, "output_length": 1, "hash_ids": [-1]}`))
	f.Add([]byte("{\"timestamp\": 0}\n[]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := kv.ReadTrace(bytes.NewReader(data), "fuzz")
		if err != nil {
			var line int
			if _, scan := fmt.Sscanf(err.Error(), "line %d: ", &line); scan != nil && err.Error() != "the trace has no requests" {
				t.Fatalf("error without a line: %v", err)
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("an error that is no plain text: %q", err)
			}
			return
		}
		for i, r := range w.Requests {
			if r.ID != i || r.Input < 1 || r.Output < 1 || r.ArriveNS < 0 || i > 0 && r.ArriveNS < w.Requests[i-1].ArriveNS {
				t.Fatalf("request %+v", r)
			}
		}
		var out bytes.Buffer
		if err := kv.WriteTrace(&out, w); err != nil {
			t.Fatal(err)
		}
		back, err := kv.ReadTrace(bytes.NewReader(out.Bytes()), "fuzz")
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v\n%s", err, out.Bytes())
		}
		ignore := []cmp.Option{cmpopts.IgnoreFields(kv.Request{}, "Line")}
		for _, r := range w.Requests {
			if r.Blocks == nil {
				ignore = append(ignore, cmpopts.IgnoreFields(kv.Request{}, "Blocks"))
				break
			}
		}
		if d := cmp.Diff(w.Requests, back.Requests, ignore...); d != "" {
			t.Fatal(d)
		}
	})
}

package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/kv/preset"
	"github.com/topoctl/topoctl/testkit/schematest"
)

func TestKVPreset(t *testing.T) {
	f := newStreams()
	if code := runFake(t.Context(), f, "kv", "preset"); code != 0 {
		t.Fatal(f.Stderr.String())
	}
	for _, name := range preset.Names() {
		if !strings.Contains(f.Stdout.String(), name) {
			t.Errorf("%s is not listed", name)
		}
	}
	if code := runFake(t.Context(), f, "kv", "preset", "a10-qwen2.5-7b-base", "a10-qwen2.5-7b-1nic", "-o", "json"); code != 0 {
		t.Fatal(f.Stderr.String())
	}
	if err := schematest.Open(t, "../../../../internal/kv/preset/schema/kv-preset.v1.schema.json").Validate(f.Stdout.Bytes()); err != nil {
		t.Error(err)
	}
	var r preset.Report
	if err := json.Unmarshal(f.Stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Schema != preset.Schema || len(r.Comparisons) != 2 || r.Comparisons[1].Software == nil || r.Score.Hits == 0 || r.Score.Hits+r.Score.Misses != len(r.Orders) {
		t.Errorf("%+v", r)
	}
	if code := runFake(t.Context(), f, "kv", "preset", "a10-qwen2.5-7b-1nic"); code != 0 {
		t.Fatal(f.Stderr.String())
	}
	for _, want := range []string{"modelled: prefill", "software: ", "assumed: ", "held out", "fitted: software", "network's share", "held-out rows is within 20 %"} {
		if !strings.Contains(f.Stdout.String(), want) {
			t.Errorf("no %q in:\n%s", want, f.Stdout.String())
		}
	}
	for want, args := range map[string][]string{
		`no preset "b300"`:     {"b300"},
		"h20-r1-tp16 is given": {"h20-r1-tp16", "h20-r1-tp16"},
		`-o "svg"`:             {"h20-r1-tp16", "-o", "svg"},
	} {
		if code := runFake(t.Context(), f, append([]string{"kv", "preset"}, args...)...); code != exitFailed || !strings.Contains(f.Stderr.String(), want) {
			t.Errorf("%v: code %d, %s: want %q", args, code, f.Stderr.String(), want)
		}
	}
}

package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/app/kv/preset"
	"github.com/topoctl/topoctl/internal/base/schematest"
)

func TestKVPreset(t *testing.T) {
	f := newFake()
	if code := run(t, f, "kv", "preset"); code != 0 {
		t.Fatal(f.err.String())
	}
	for _, name := range preset.Names() {
		if !strings.Contains(f.out.String(), name) {
			t.Errorf("%s is not listed", name)
		}
	}
	if code := run(t, f, "kv", "preset", "a10-qwen2.5-7b-base", "a10-qwen2.5-7b-1nic", "-o", "json"); code != 0 {
		t.Fatal(f.err.String())
	}
	if err := schematest.Open(t, "../kv/preset/schema/kv-preset.v1.schema.json").Validate(f.out.Bytes()); err != nil {
		t.Error(err)
	}
	var r preset.Report
	if err := json.Unmarshal(f.out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Schema != preset.Schema || len(r.Comparisons) != 2 || r.Comparisons[1].Software == nil || r.Score.Hits == 0 || r.Score.Hits+r.Score.Misses != len(r.Orders) {
		t.Errorf("%+v", r)
	}
	if code := run(t, f, "kv", "preset", "a10-qwen2.5-7b-1nic"); code != 0 {
		t.Fatal(f.err.String())
	}
	for _, want := range []string{"modelled: prefill", "software: ", "assumed: ", "held out", "fitted: software", "network's share", "held-out rows is within 20 %"} {
		if !strings.Contains(f.out.String(), want) {
			t.Errorf("no %q in:\n%s", want, f.out.String())
		}
	}
	for want, args := range map[string][]string{
		`no preset "b300"`:     {"b300"},
		"h20-r1-tp16 is given": {"h20-r1-tp16", "h20-r1-tp16"},
		`-o "svg"`:             {"h20-r1-tp16", "-o", "svg"},
	} {
		if code := run(t, f, append([]string{"kv", "preset"}, args...)...); code != exitFailed || !strings.Contains(f.err.String(), want) {
			t.Errorf("%v: code %d, %s: want %q", args, code, f.err.String(), want)
		}
	}
}

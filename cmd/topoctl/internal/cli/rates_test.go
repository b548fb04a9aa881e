package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// TestRatesSayHowTheyAreKnown walks over what the commands print of fixtures (longtest.Sample): each rate in JSON has
// a basis, or is what a device says of itself, and text and drawings have no rate that looks like
// another kind than the documents give.
func TestRatesSayHowTheyAreKnown(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: many commands")
	}
	for _, name := range longtest.Sample(fixtures.Names(), 8) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := rateWalk{t: t, fixture: name, looks: map[string]bool{}}
			w.document("discover", "-o", "json")
			w.document("matrix", "--show", "expected", "-o", "json")
			host := w.document("path", "--plan", "-o", "json").(map[string]any)
			w.document("doctor", "-o", "json")
			w.text("path", "--plan")
			locations := []string{"cpu:0"}
			assigned := host["assignments"].([]any)
			for i, a := range assigned {
				if i < 4 || i == len(assigned)-1 { // on large hosts those between are like these
					locations = append(locations, a.(map[string]any)["location"].(string))
				}
			}
			for _, l := range locations {
				w.document("path", l, "-o", "json")
				w.text("path", l)
				w.text("path", l, "--verbose")
			}
			w.text("summary")
			w.text("topo")
			w.text("matrix", "--show", "expected")
			w.text("doctor")
			for _, format := range []string{"svg", "dot", "mooncake", "nccl-xml", "prometheus"} {
				w.text("export", format)
			}
			for _, engine := range []string{"nccl", "ucx", "nvshmem", "vllm", "sglang", "mooncake"} {
				w.text("export", "env", "--for", engine)
			}
		})
	}
}

// rateWalk holds what rates of a host may look like, by the documents about it.
type rateWalk struct {
	t       *testing.T
	fixture string
	looks   map[string]bool
}

func (w *rateWalk) run(args []string) string {
	w.t.Helper()
	f := newStreams()
	code := runFake(w.t.Context(), f, append(args, "--fixture", w.fixture)...)
	if code > 1 && code != 3 || f.Stdout.Len() == 0 {
		w.t.Logf("%v: exit code %d: %s", args, code, f.Stderr.String())
	}
	return f.Stdout.String()
}

// document checks that each rate has a basis, and notes how it may look.
func (w *rateWalk) document(args ...string) any {
	w.t.Helper()
	out := w.run(args)
	var doc any
	if out == "" {
		return map[string]any{"assignments": []any{}}
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		w.t.Fatalf("%v: %v", args, err)
	}
	w.rates(args, doc)
	return doc
}

var (
	ownRate   = map[string]bool{"port": true, "netdev": true} // kinds of node that tell a rate of their own
	rateWords = regexp.MustCompile(`(at most |[~<])?([0-9]+(?:\.[0-9]+)?) (GB/s|Gb/s)`)
)

// eachLink is what one of several links carries, in the note on them together, or what several ports
// that are read carry together.
var eachLink = regexp.MustCompile(`(links of|[0-9]+ x) [0-9.]+ GB/s|one card have [0-9.]+ GB/s`)

func (w *rateWalk) rates(args []string, v any) {
	w.t.Helper()
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			w.rates(args, x)
		}
	case map[string]any:
		for key, x := range v {
			rate, isRate := x.(float64)
			if !isRate || !strings.HasSuffix(key, "bytes_per_sec") {
				w.rates(args, x)
				continue
			}
			kind, _ := v["kind"].(string)
			_, lanes := v["speed_mts"]
			basis, ok := v["basis"].(string)
			prefix := strings.TrimSuffix(strings.TrimSuffix(key, "bytes_per_sec"), "_")
			if b, has := v[prefix+"_basis"].(string); has {
				basis, ok = b, true
			}
			switch {
			case ownRate[kind] && !ok, lanes, key == "bound_bytes_per_sec":
				basis = string(topo.BasisRead)
			case !ok:
				w.t.Errorf("%v: %s has no basis in %v", args, key, keysOf(v))
				continue
			}
			switch b := topo.Basis(basis); b {
			case topo.BasisMeasured, topo.BasisRead, topo.BasisBound, topo.BasisTypical:
				for _, system := range []units.System{units.Gbyte, units.Gbit} {
					figure := units.Rate(int64(rate), system)
					w.looks[b.Text(figure)], w.looks[b.Mark(figure)] = true, true
				}
			default:
				w.t.Errorf("%v: %s %.0f has basis %q", args, key, rate, basis)
			}
		}
	}
}

func keysOf(m map[string]any) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// text checks that no rate looks like another kind than the documents give.
func (w *rateWalk) text(args ...string) {
	w.t.Helper()
	for line := range strings.Lines(w.run(args)) {
		for _, m := range rateWords.FindAllString(eachLink.ReplaceAllString(line, ""), -1) {
			if !w.looks[m] {
				w.t.Errorf("%v: no document has %q: %s", args, m, fmt.Sprintf("%.300s", strings.TrimSpace(line)))
			}
		}
	}
}

package preset

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const schemaFile = "schema/kv-preset.v1.schema.json"

// described says what each field of the document is, and in which unit. Sides and two settings
// have the same fields.
var described = map[string]string{
	"": "Predictions beside published serving benchmarks (topoctl kv preset). Computing is modelled and the network simulated: nothing was measured. null is unknown.",

	"comparisons":                           "the presets that were asked for, in that order",
	"comparisons[].preset":                  "name of the preset",
	"comparisons[].about":                   "the published system, for people",
	"comparisons[].model":                   "whose cache moves, by its usual name",
	"comparisons[].gpu":                     "what computes",
	"comparisons[].host":                    "the fixture that each host is an instance of",
	"comparisons[].hosts":                   "how many hosts there are",
	"comparisons[].prefill":                 "where the times of prefill are from",
	"comparisons[].prefill.basis":           "published: fitted to rows of a published table; assumed: from data sheets, or scaled from a setting next to it",
	"comparisons[].prefill.source":          "which rows or data sheets, for people",
	"comparisons[].decode":                  "where the times of decode are from",
	"comparisons[].decode.basis":            "as that of prefill",
	"comparisons[].decode.source":           "as that of prefill",
	"comparisons[].software":                "what the system's software takes to move a cache, beside the network; null: nothing was fitted",
	"comparisons[].software.what":           "what it stands for, for people",
	"comparisons[].software.piece_ns":       "nanoseconds for each contiguous piece, one after the other on a rank; 0: the cost is that of a prompt",
	"comparisons[].software.handoff_ns":     "nanoseconds once for a prompt; 0: the cost is that of pieces",
	"comparisons[].software.fitted_table":   "table of the figure that it was fitted to",
	"comparisons[].software.fitted_row":     "row of that figure",
	"comparisons[].software.fitted_metric":  "column of that figure",
	"comparisons[].assumed":                 "what the report does not tell, in sentences",
	"comparisons[].rows":                    "the published rows",
	"comparisons[].rows[].table":            "file of the table, without .csv",
	"comparisons[].rows[].row":              "the cells that name the row",
	"comparisons[].rows[].workload":         "the requests; equal where rows of two presets may be compared",
	"comparisons[].rows[].requests":         "how many requests were predicted",
	"comparisons[].rows[].held_out":         "no parameter was fitted to any figure of the row, and no input was computed from them",
	"comparisons[].rows[].declared_input":   "the input that was computed from published results of the row itself, so that it is not held out; empty: none",
	"comparisons[].rows[].columns":          "the published figures of the row, with ours",
	"comparisons[].rows[].columns[].metric": "which figure; keys and units as in topoctl.kv/v1: _ms milliseconds, _s seconds, _per_s each second",

	"comparisons[].rows[].columns[].published":  "in the unit of the metric",
	"comparisons[].rows[].columns[].predicted":  "in the unit of the metric; null: no request was answered",
	"comparisons[].rows[].columns[].error_pct":  "predicted / published - 1, in percent; null: not compared",
	"comparisons[].rows[].columns[].fitted":     "what was fitted to the published figure; empty: nothing (held_out says whether that holds for the whole row)",
	"comparisons[].rows[].columns[].uncompared": "why the column is not compared; empty: it is",

	"comparisons[].rows[].ttft_ms_mean_without_software": "the mean time to first token without the software cost, in milliseconds; null: the preset has none",
	"comparisons[].rows[].network_share_of_ttft":         "waiting for the link and the wire, as far as nothing hides them and without the software cost, in parts of the mean time to first token, 0 to 1; null: no cache moves. With pipeline stages: the activations of a mean prompt, by formula",
	"comparisons[].rows[].moving_share_of_ttft":          "the same with the software cost; null: no cache moves",
	"comparisons[].rows[].explained":                     "the predicted mean time to first token is within 20 % of the published one",

	"orders":                        "every two settings with the same workload whose published figures are more than 10 % apart",
	"orders[].workload":             "that both had",
	"orders[].metric":               "which figure, as in columns",
	"orders[].presets":              "the two settings, the one with the smaller published figure first",
	"orders[].published":            "the published figures in that order, in the unit of the metric",
	"orders[].predicted":            "ours in that order, in the unit of the metric",
	"orders[].hit":                  "ours are more than 1 % apart the same way round",
	"orders[].held_out":             "both rows are held out",
	"orders[].hit_without_software": "hit, of predictions without software costs; null: the metric is not the mean time to first token",
	"score":                         "orders, counted",
	"score.hits":                    "orders that are right",
	"score.misses":                  "orders that are wrong or tied",
	"score.held_out_hits":           "right ones of those where both rows are held out",
	"score.held_out_misses":         "wrong ones of those where both rows are held out",
}

// schemaOf is the schema of the types, with what is described.
func schemaOf(t *testing.T) schematest.Object {
	t.Helper()
	two := func(of string) schematest.Object {
		return schematest.Object{"type": "array", "items": schematest.Object{"type": of}, "minItems": 2, "maxItems": 2}
	}
	g := schematest.Generator{Types: map[reflect.Type]schematest.Object{
		reflect.TypeFor[serve.Basis](): {"enum": []any{serve.Published, serve.Assumed}},
		reflect.TypeFor[[2]string]():   two("string"),
		reflect.TypeFor[[2]float64]():  two("number"),
	}}
	g.Types[reflect.TypeFor[*Comparison]()] = g.Of(reflect.TypeFor[Comparison]()) // never null
	s := g.Document(Schema, reflect.TypeFor[Report]())
	left := maps.Clone(described)
	describe(t, s, "", left)
	for path := range left {
		t.Errorf("%q is described, and no field", path)
	}
	return s
}

// describe puts descriptions to a schema and what is in it, and takes them out of left.
func describe(t *testing.T, s schematest.Object, path string, left map[string]string) {
	t.Helper()
	if s["const"] == nil {
		text, ok := left[path]
		if !ok {
			t.Errorf("no description of %q", path)
		}
		s["description"] = text
		delete(left, path)
	}
	if of, ok := s["anyOf"].([]any); ok {
		fields(t, of[0].(schematest.Object), path, left)
		return
	}
	fields(t, s, path, left)
}

func fields(t *testing.T, s schematest.Object, path string, left map[string]string) {
	t.Helper()
	if items, ok := s["items"].(schematest.Object); ok && items["properties"] != nil {
		fields(t, items, path+"[]", left)
	}
	properties, _ := s["properties"].(schematest.Object)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		// A type of two fields is one object: each place has its own text.
		own := maps.Clone(properties[name].(schematest.Object))
		properties[name] = own
		describe(t, own, strings.TrimPrefix(path+"."+name, "."), left)
	}
}

// The published schema says what the types say, and what each field is.
func TestSchemaMatchesTheTypes(t *testing.T) {
	schematest.Compare(t, schemaFile, schemaOf(t))
}

// What presets give is valid: with a software cost and without, with columns that are not compared,
// without any answer.
func TestDocumentsAreValid(t *testing.T) {
	schema := schematest.Open(t, schemaFile)
	top := topologies(t)
	var cs []*Comparison
	for _, name := range []string{"a10-qwen2.5-7b-1nic", "a10-qwen2.5-7b-base", "h20-qwen3-32b-v1", "h20-r1-1p1d-tp16", "nd96asr-llama3-70b-tp4pp2"} {
		n := 0
		c, err := Run(name, Options{Topology: top, Requests: 4, Rows: func(Row) bool { n++; return n <= 2 }})
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	unanswered := *cs[0]
	unanswered.Rows = []RowResult{{Table: "t", Columns: []Column{{Metric: TTFTMean, Published: 1}}}}
	for _, of := range [][]*Comparison{cs, cs[:1], {&unanswered}} {
		data, err := json.Marshal(NewReport(of))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(data, []byte(`{"schema":"`+Schema+`",`)) {
			t.Errorf("begins with %.40q", data)
		}
		if err := schema.Validate(data); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{`{}`, `{"schema":"topoctl.kv-preset/v1","comparisons":null,"orders":[],"score":{}}`,
		`{"schema":"topoctl.kv-preset/v1","comparisons":[],"orders":[],"score":{"hits":1,"misses":0,"held_out_hits":0.5,"held_out_misses":0}}`} {
		if schema.Validate([]byte(bad)) == nil {
			t.Errorf("%s is valid", bad)
		}
	}
}

package probe_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const (
	schemaFile = "schema/probe.v1.schema.json"
	eventFile  = "schema/probe-event.v1.schema.json"
)

var generator = schematest.Generator{Types: map[reflect.Type]schematest.Object{
	reflect.TypeFor[probe.Verdict]():   {"enum": []any{probe.Pass, probe.Measured, probe.Warn, probe.Fail, probe.Inconclusive, probe.Waived, probe.Error}},
	reflect.TypeFor[probe.BlameKind](): {"enum": []any{probe.Fault, probe.Congestion}},
	reflect.TypeFor[probe.EventType](): {"type": "string"}, // readers pass over those that they do not know
}}

// The published schemas say what the types say.
func TestSchemasMatchTheTypes(t *testing.T) {
	schematest.Compare(t, schemaFile, generator.Document(probe.Schema, reflect.TypeFor[probe.Report]()))
	event := generator.Document(probe.EventSchema, reflect.TypeFor[probe.Event]())
	event["properties"].(schematest.Object)["start"].(schematest.Object)["anyOf"].([]any)[0].(schematest.Object)["properties"].(schematest.Object)["schema"] = schematest.Object{"const": probe.Schema}
	schematest.Compare(t, eventFile, event)
}

func encode(t testing.TB, r *probe.Report) []byte {
	t.Helper()
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Reports are the same when they are read and written again, and valid by the published schema.
func TestReports(t *testing.T) {
	schema := schematest.Open(t, schemaFile)
	for _, name := range reportNames {
		t.Run(name, func(t *testing.T) {
			r := report(t, name)
			data := encode(t, r)
			golden.Check(t, "testdata/"+name+".probe.json", data)
			if err := schema.Validate(data); err != nil {
				t.Error(err)
			}
			if bad := bytes.Replace(data, []byte(`"verdict":"`), []byte(`"verdict":"X`), 1); schema.Validate(bad) == nil {
				t.Error("a verdict that does not exist is valid")
			}
		})
	}
}

// numbers that are no measure of anything: counts, indices, ratios.
var plainNumbers = []string{
	"min_samples", "max_samples", "latency_samples", "retests", "rounds", "round", "lower_bound", "pairs", "threads", "n",
	"pass", "measured", "warn", "fail", "inconclusive", "waived", "error", "from_numa_node", "to_numa_node", // counts and indices
	"ci", "fail_under", "warn_under", "outlier_under", "outlier_over", "efficiency", "of_best", "busy", "own", // ratios
}

// Every number has its unit in its key, or in that of the object it is part of.
func TestUnitsInKeys(t *testing.T) {
	seen := map[string]bool{}
	var walk func(unit bool, key string, v any)
	walk = func(unit bool, key string, v any) {
		unit = unit || slices.ContainsFunc([]string{"bytes_per_sec", "_ns", "_bytes", "_seconds_per_gb"}, func(s string) bool { return strings.HasSuffix(key, s) }) ||
			key == "bytes" || strings.Contains(key, "_ns_")
		switch v := v.(type) {
		case float64:
			if seen[key] = true; !unit && !slices.Contains(plainNumbers, key) {
				t.Errorf("%q: a number without unit", key)
			}
		case []any:
			for _, e := range v {
				walk(unit, key, e)
			}
		case map[string]any:
			for k, e := range v {
				if key != "counters" { // named by the kernel
					walk(unit, k, e)
				}
			}
		case nil:
			seen[key] = true
		}
	}
	for _, name := range reportNames {
		var doc any
		if err := json.Unmarshal(encode(t, report(t, name)), &doc); err != nil {
			t.Fatal(err)
		}
		walk(false, "", doc)
	}
	for _, key := range []string{"ci95_bytes_per_sec", "p99_9", "cpu_seconds_per_gb", "latency_ns", "estimated_time_ns"} {
		if !seen[key] {
			t.Errorf("no report has %q: the test looks at too little", key)
		}
	}
}

// No list is null, however little a report holds.
func TestNoNullLists(t *testing.T) {
	schema := schematest.Open(t, schemaFile)
	nan := 0.0
	nan /= nan
	for name, r := range map[string]*probe.Report{"empty": {}, "bare": {Results: []probe.Result{{Efficiency: &nan}}, Links: []probe.Link{{}}, Blame: []probe.Blame{{Suspects: []probe.Suspect{{}}}}}} {
		data := encode(t, r)
		if err := schema.Validate(data); err != nil {
			t.Errorf("%s: %v\n%s", name, err, data)
		}
	}
	if nan == nan {
		t.Error("the report was changed")
	}
}

// A report is written the same in whatever order its parts were found, and is left as it is.
func TestEncodeSorts(t *testing.T) {
	base := report(t, "local-cpu")
	base.Blame = []probe.Blame{{Pairs: []string{base.Results[1].ID, base.Results[0].ID, base.Results[2].ID}}}
	want := encode(t, base)
	rapid.Check(t, func(rt *rapid.T) {
		r, err := probe.Decode(want)
		if err != nil {
			rt.Fatal(err)
		}
		r.Hosts, r.Devices, r.Links = rapid.Permutation(r.Hosts).Draw(rt, "hosts"), rapid.Permutation(r.Devices).Draw(rt, "devices"), rapid.Permutation(r.Links).Draw(rt, "links")
		r.Results = rapid.Permutation(r.Results).Draw(rt, "results")
		r.Blame[0].Pairs = rapid.Permutation(r.Blame[0].Pairs).Draw(rt, "pairs")
		first := r.Results[0].ID
		if got, err := r.Encode(); err != nil || !bytes.Equal(got, want) {
			rt.Fatalf("another document (%v)", err)
		}
		if r.Results[0].ID != first {
			rt.Fatal("the report was changed")
		}
	})
}

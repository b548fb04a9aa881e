package preset

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const schemaFile = "schema/kv-preset.v1.schema.json"

// schemaOf is the schema of the types, which says nothing in words.
func schemaOf() schematest.Object {
	two := func(of string) schematest.Object {
		return schematest.Object{"type": "array", "items": schematest.Object{"type": of}, "minItems": 2, "maxItems": 2}
	}
	g := schematest.Generator{Types: map[reflect.Type]schematest.Object{
		reflect.TypeFor[serve.Basis](): {"enum": []any{serve.Published, serve.Assumed}},
		reflect.TypeFor[[2]string]():   two("string"),
		reflect.TypeFor[[2]float64]():  two("number"),
	}}
	g.Types[reflect.TypeFor[*Comparison]()] = g.Of(reflect.TypeFor[Comparison]()) // never null
	return g.Document(Schema, reflect.TypeFor[Report]())
}

// takeWords takes the descriptions out of a schema, and wants one of the whole and of each field.
func takeWords(t *testing.T, path string, x any) {
	t.Helper()
	switch x := x.(type) {
	case []any:
		for _, y := range x {
			takeWords(t, path, y)
		}
	case schematest.Object:
		properties, _ := x["properties"].(schematest.Object)
		for name, y := range properties {
			if field := y.(schematest.Object); field["const"] == nil && field["description"] == nil {
				t.Errorf("%s.%s is not described", path, name)
			}
			takeWords(t, path+"."+name, y)
		}
		delete(x, "description")
		for _, in := range []string{"items", "anyOf"} {
			takeWords(t, path, x[in])
		}
	}
}

// The published schema says what the types say, and in words what each field is.
func TestSchemaMatchesTheTypes(t *testing.T) {
	read := func(data []byte, err error) (s schematest.Object) {
		if err == nil {
			err = json.Unmarshal(data, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	published := read(os.ReadFile(schemaFile))
	if published["description"] == nil {
		t.Error("the document is not described")
	}
	takeWords(t, "", published)
	if diff := cmp.Diff(read(json.Marshal(schemaOf())), published); diff != "" {
		t.Errorf("(-types +%s)\n%s", schemaFile, diff)
	}
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

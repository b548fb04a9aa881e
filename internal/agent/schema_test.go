package agent

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const schemaFile = "schema/engine.v1.schema.json"

// The published schema says what the types say, and documents keep to it.
func TestSchema(t *testing.T) {
	generator := schematest.Generator{}
	schematest.Compare(t, schemaFile, generator.Document(SchemaEngine, reflect.TypeFor[EngineDocument]()))
	schema := schematest.Open(t, schemaFile)
	e, err := engine.New(t.Context(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Alloc(4096, engine.RegionOptions{Name: "kv"}); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Source{"full": sample(t), "of an engine": e} {
		data, err := json.Marshal(EngineDocument{Schema: SchemaEngine, Stats: s.Stats(), Recent: s.Recent()})
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if bad := strings.Replace(string(data), `"epoch":"`, `"epoch":"x`, 1); schema.Validate([]byte(bad)) == nil {
			t.Errorf("%s: an epoch that is no number is valid", name)
		}
	}
}

package engine

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/topoctl/topoctl/testkit/schematest"
)

const explainFile = "schema/explain.v1.schema.json"

// The published schema says what the type says.
func TestExplainSchema(t *testing.T) {
	var generator schematest.Generator
	schematest.Compare(t, explainFile, generator.Document(SchemaExplain, reflect.TypeFor[Explanation]()))
}

// keepsSchema requires that an explanation is a document of the published schema.
func keepsSchema(t *testing.T, x *Explanation) {
	t.Helper()
	data, err := json.Marshal(x)
	must(t, err)
	if err := schematest.Open(t, explainFile).Validate(data); err != nil {
		t.Errorf("%v\n%s", err, data)
	}
}

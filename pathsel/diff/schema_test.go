package diff_test

import (
	"reflect"
	"testing"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel/diff"
	"github.com/topoctl/topoctl/testkit/longtest"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const schemaFile = "schema/diff.v1.schema.json"

var generator = schematest.Generator{Types: map[reflect.Type]schematest.Object{
	reflect.TypeFor[diff.Kind]():       {"enum": []any{diff.Removed, diff.Added, diff.Moved, diff.Renumbered, diff.Degraded, diff.Improved, diff.Changed, diff.Policy}},
	reflect.TypeFor[diff.Method]():     {"enum": []any{diff.ByIdentity, diff.BySlot, diff.ByPosition, diff.ByName}},
	reflect.TypeFor[diff.Hosts]():      {"enum": []any{diff.SameHost, diff.DifferentHosts, diff.UnknownHosts}},
	reflect.TypeFor[diff.Identities](): {"enum": []any{diff.IdentitiesCompared, diff.IdentitiesOfOthers, diff.IdentitiesRedacted, diff.IdentitiesIgnored}},
	// a value of an attribute
	reflect.TypeFor[any](): {"type": []string{"string", "integer", "boolean", "array", "null"}, "items": schematest.Object{"type": "string"}},
}}

// The published schema says what the types say.
func TestSchemaMatchesTheTypes(t *testing.T) {
	schematest.Compare(t, schemaFile, generator.Document(diff.Schema, reflect.TypeFor[diff.Report]()))
}

// Every report is valid: of each machine against the next one, both ways.
func TestReportsAreValid(t *testing.T) {
	schema := schematest.Open(t, schemaFile)
	names := longtest.Sample(fixtures.Names(), 11)
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := machine(t, "fixture:"+name), machine(t, "fixture:"+names[(i+1)%len(names)])
			for _, o := range []diff.Options{{}, {Structure: true, Ignore: []string{"kernel"}}} {
				if err := schema.Validate([]byte(document(t, compare(t, a, b, o)))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if schema.Validate([]byte(`{"schema":"topoctl.diff/v2"}`)) == nil {
		t.Error("the schema takes another version")
	}
}

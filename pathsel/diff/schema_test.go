package diff_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel/diff"
)

type object = map[string]any

var schemaFile = filepath.Join("schema", "diff.v1.schema.json")

// enums are the texts with few values.
var enums = map[reflect.Type][]any{
	reflect.TypeFor[diff.Kind]():       {diff.Removed, diff.Added, diff.Moved, diff.Renumbered, diff.Degraded, diff.Improved, diff.Changed, diff.Policy},
	reflect.TypeFor[diff.Method]():     {diff.ByIdentity, diff.BySlot, diff.ByPosition, diff.ByName},
	reflect.TypeFor[diff.Hosts]():      {diff.SameHost, diff.DifferentHosts, diff.UnknownHosts},
	reflect.TypeFor[diff.Identities](): {diff.IdentitiesCompared, diff.IdentitiesOfOthers, diff.IdentitiesRedacted, diff.IdentitiesIgnored},
}

// schemaOf describes how encoding/json writes a type.
func schemaOf(t reflect.Type) any {
	if values, ok := enums[t]; ok {
		return object{"enum": values}
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return object{"anyOf": []any{schemaOf(t.Elem()), object{"type": "null"}}}
	case t.Kind() == reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case t.Kind() == reflect.Interface: // a value of an attribute
		return object{"type": []string{"string", "integer", "boolean", "array", "null"}, "items": object{"type": "string"}}
	case t.Kind() == reflect.String:
		return object{"type": "string"}
	case t.Kind() == reflect.Bool:
		return object{"type": "boolean"}
	case t.Kind() != reflect.Struct:
		return object{"type": "integer"}
	}
	properties, required := object{}, []string{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		properties[name] = schemaOf(f.Type)
		if options != "omitempty" {
			required = append(required, name)
		}
	}
	return object{"type": "object", "properties": properties, "required": required}
}

// The published schema says what the types say.
func TestSchemaMatchesTheTypes(t *testing.T) {
	s := schemaOf(reflect.TypeFor[diff.Report]()).(object)
	s["$schema"], s["$id"], s["title"] = "https://json-schema.org/draft/2020-12/schema", "urn:topoctl:diff:v1", diff.Schema
	s["properties"].(object)["schema"] = object{"const": diff.Schema}
	want, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, append(want, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaFile)
	if err != nil || !bytes.Equal(bytes.TrimSpace(got), want) {
		t.Errorf("%s differs from the types (%v): run go test ./pathsel/diff -update", schemaFile, err)
	}
}

// Every report is valid: of each machine against the next one, both ways.
func TestReportsAreValid(t *testing.T) {
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(schemaFile, doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	valid := func(report string) error {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(report))
		if err != nil {
			return err
		}
		return schema.Validate(doc)
	}
	names := fixtures.Names()
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := machine(t, "fixture:"+name), machine(t, "fixture:"+names[(i+1)%len(names)])
			for _, o := range []diff.Options{{}, {Structure: true, Ignore: []string{"kernel"}}} {
				if err := valid(document(t, compare(t, a, b, o))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if valid(`{"schema":"topoctl.diff/v2"}`) == nil {
		t.Error("the schema takes another version")
	}
}

// Package schematest keeps the published JSON schemas and the Go types in step:
// it generates a schema from a type, compares it with the published file, and
// validates documents. Only tests import it.
package schematest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/golden"
)

// Object is a JSON object: a schema, or a part of one.
type Object = map[string]any

// common are the types of the model whose values have a form of their own.
var common = map[reflect.Type]Object{
	reflect.TypeFor[topo.BDF]():       {"type": "string", "pattern": "^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-1][0-9a-f]\\.[0-7]$"},
	reflect.TypeFor[topo.Class]():     {"type": []string{"string", "null"}, "pattern": "^(X|NV[0-9]+|XGMI|C2C|PIX|PXB|PHB|NODE|SYS)$"},
	reflect.TypeFor[topo.NCCLClass](): {"enum": []any{nil, "LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PHB", "SYS"}},
	reflect.TypeFor[topo.Facts]():     {"type": "object", "additionalProperties": Object{"type": "string"}},
	reflect.TypeFor[topo.HexID]():     {"type": "string", "pattern": "^(0x[0-9a-f]+)?$"},
	reflect.TypeFor[topo.Basis]():     {"enum": []any{"measured", "read", "bound", "typical", "unknown", "constant", "assumed"}},
	reflect.TypeFor[time.Time]():      {"type": "string", "format": "date-time"},
	reflect.TypeFor[netip.Addr]():     {"type": "string"},
}

// Generator describes how encoding/json writes types. Unknown keys stay
// allowed: documents grow within a major version.
type Generator struct {
	// Types are described as given here, and not by their kind.
	Types map[reflect.Type]Object
	// Nullable are the lists ("Type.Field") whose absence is unknown, not empty.
	Nullable []string
}

// Of is the schema of a type. It panics where a type cannot be described.
func (g *Generator) Of(t reflect.Type) Object {
	if s, ok := g.Types[t]; ok {
		return s
	}
	if s, ok := common[t]; ok {
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		return orNull(g.Of(t.Elem()))
	case reflect.Slice:
		return Object{"type": "array", "items": g.Of(t.Elem())}
	case reflect.Map:
		return Object{"type": "object", "additionalProperties": g.Of(t.Elem())}
	case reflect.Struct:
		properties := Object{}
		return Object{"type": "object", "properties": properties, "required": g.fields(properties, []string{}, t)}
	case reflect.String:
		return Object{"type": "string"}
	case reflect.Bool:
		return Object{"type": "boolean"}
	case reflect.Float64:
		return Object{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Object{"type": "integer"}
	}
	panic(fmt.Sprintf("schematest: %v: name its schema in Types", t))
}

// fields adds the fields of a struct to properties, and the names of those that
// are always written to required.
func (g *Generator) fields(properties Object, required []string, t reflect.Type) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			required = g.fields(properties, required, f.Type)
			continue
		case name == "-", name == "" && !f.IsExported():
			continue
		case name == "":
			panic(fmt.Sprintf("schematest: %v.%s: no json name", t, f.Name))
		}
		s := g.Of(f.Type)
		if slices.Contains(g.Nullable, t.Name()+"."+f.Name) {
			s = orNull(s)
		}
		if options == "string" { // a number that readers in other languages would round
			s, options = Object{"type": "string", "pattern": "^-?[0-9]+$"}, ""
		}
		properties[name] = s
		if options == "" {
			required = append(required, name)
		}
	}
	return required
}

func orNull(s Object) Object { return Object{"anyOf": []any{s, Object{"type": "null"}}} }

// Document is the schema of a type that is a whole document, called name
// ("topoctl.path/v1").
func (g *Generator) Document(name string, t reflect.Type) Object { return Head(name, g.Of(t)) }

// Head makes the schema of an object the one of the document called name.
func Head(name string, s Object) Object {
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$id"] = "urn:" + strings.NewReplacer(".", ":", "/", ":").Replace(name)
	s["title"] = name
	s["properties"].(Object)["schema"] = Object{"const": name}
	return s
}

// Compare requires that the published file is the schema; go test with -update writes it.
func Compare(tb testing.TB, path string, s Object) {
	tb.Helper()
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	golden.Check(tb, path, append(data, '\n'))
}

// Schema is a schema that documents can be held against.
type Schema struct{ compiled *jsonschema.Schema }

// Open reads a published schema.
func Open(tb testing.TB, path string) *Schema {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return Compile(tb, data)
}

// Compile prepares a schema that is at hand.
func Compile(tb testing.TB, data []byte) *Schema {
	tb.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		tb.Fatal(err)
	}
	const at = "schema.json"
	c := jsonschema.NewCompiler()
	if err := c.AddResource(at, doc); err != nil {
		tb.Fatal(err)
	}
	s, err := c.Compile(at)
	if err != nil {
		tb.Fatal(err)
	}
	return &Schema{s}
}

// Validate says why data is no document of the schema.
func (s *Schema) Validate(data []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return s.compiled.Validate(doc)
}

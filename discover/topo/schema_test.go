package topo_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/topoctl/topoctl/discover/topo"
)

var update = flag.Bool("update", false, "rewrite the schemas from the types")

type object = map[string]any

// schemaOf describes how encoding/json writes a type. Unknown keys stay
// allowed: documents grow within a major version.
func schemaOf(t reflect.Type) any {
	switch t {
	case reflect.TypeFor[topo.BDF]():
		return object{"type": "string", "pattern": "^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-1][0-9a-f]\\.[0-7]$"}
	case reflect.TypeFor[topo.Class]():
		return object{"type": []string{"string", "null"}, "pattern": "^(X|NV[0-9]+|XGMI|C2C|PIX|PXB|PHB|NODE|SYS)$"}
	case reflect.TypeFor[topo.NCCLClass]():
		return object{"enum": []any{nil, "LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PHB", "SYS"}}
	case reflect.TypeFor[topo.Facts]():
		return object{"type": "object", "additionalProperties": object{"type": "string"}}
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[topo.HexID]():
		return object{"type": "string", "pattern": "^(0x[0-9a-f]+)?$"}
	case reflect.TypeFor[topo.Basis]():
		return object{"enum": []any{"measured", "read", "constant", "assumed", "unknown"}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return object{"anyOf": []any{schemaOf(t.Elem()), object{"type": "null"}}}
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		s := object{"type": "object", "properties": object{}, "required": []string{}}
		addFields(s, t)
		return s
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	default:
		return object{"type": "integer"}
	}
}

// nullable are the lists whose absence is unknown, not empty.
var nullable = map[string]bool{"Software.Modules": true, "Software.KernelOptions": true}

func addFields(s object, t reflect.Type) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			addFields(s, f.Type)
		case name != "-" && name != "":
			s["properties"].(object)[name] = schemaOf(f.Type)
			if nullable[t.Name()+"."+f.Name] {
				s["properties"].(object)[name] = object{"anyOf": []any{schemaOf(f.Type), object{"type": "null"}}}
			}
			if options != "omitempty" {
				s["required"] = append(s["required"].([]string), name)
			}
		}
	}
}

// nodeSchema is a node of one kind.
func nodeSchema(kind topo.Kind, t reflect.Type) object {
	s := schemaOf(t).(object)
	s["properties"].(object)["kind"] = object{"const": kind}
	s["properties"].(object)["facts"] = object{"type": "integer", "minimum": 0}
	return s
}

func topologySchema() object {
	kinds := []any{}
	for _, k := range []struct {
		kind topo.Kind
		t    reflect.Type
	}{
		{topo.KindPackage, reflect.TypeFor[topo.Package]()}, {topo.KindNUMA, reflect.TypeFor[topo.NUMANode]()},
		{topo.KindHostBridge, reflect.TypeFor[topo.HostBridge]()}, {topo.KindPCI, reflect.TypeFor[topo.PCIDevice]()},
		{topo.KindSwitch, reflect.TypeFor[topo.Switch]()}, {topo.KindGPU, reflect.TypeFor[topo.GPU]()},
		{topo.KindNIC, reflect.TypeFor[topo.NIC]()}, {topo.KindRDMA, reflect.TypeFor[topo.RDMADevice]()},
		{topo.KindPort, reflect.TypeFor[topo.Port]()}, {topo.KindNetdev, reflect.TypeFor[topo.Netdev]()},
		{topo.KindNVMe, reflect.TypeFor[topo.NVMe]()}, {topo.KindNVSwitch, reflect.TypeFor[topo.NVSwitch]()},
	} {
		kinds = append(kinds, nodeSchema(k.kind, k.t))
	}
	list := func(t reflect.Type) any { return object{"type": "array", "items": schemaOf(t)} }
	return object{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:topoctl:topology:v1",
		"title": "topoctl.topology/v1", "type": "object",
		"required": []string{"schema", "tool", "rules", "origin", "complete", "host", "nodes", "links", "derived", "facts", "sources", "warnings"},
		"properties": object{
			"schema": object{"const": topo.SchemaTopology}, "tool": schemaOf(reflect.TypeFor[topo.Tool]()),
			"rules": object{"type": "string"}, "captured_at": schemaOf(reflect.TypeFor[*time.Time]()),
			"origin": object{"type": "string"}, "complete": object{"type": "boolean"},
			"host":     schemaOf(reflect.TypeFor[topo.Host]()),
			"nodes":    object{"type": "array", "items": object{"oneOf": kinds}},
			"links":    list(reflect.TypeFor[topo.Link]()),
			"asserted": schemaOf(reflect.TypeFor[topo.Asserted]()), "derived": schemaOf(reflect.TypeFor[topo.Derived]()),
			"facts": list(reflect.TypeFor[topo.Facts]()), "sources": list(reflect.TypeFor[topo.SourceReport]()),
			"warnings": list(reflect.TypeFor[topo.Warning]()),
		},
	}
}

func matrixSchema() object {
	cells := func(t reflect.Type) any { return schemaOf(reflect.SliceOf(reflect.SliceOf(t))) }
	entries := object{"type": "array", "items": schemaOf(reflect.TypeFor[topo.MatrixEntry]())}
	return object{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:topoctl:matrix:v1",
		"title": topo.SchemaMatrix, "type": "object",
		"required": []string{"schema", "rules", "rows", "cols", "class", "nccl", "hops", "expected_bytes_per_sec", "limit_link", "basis"},
		"properties": object{
			"schema": object{"const": topo.SchemaMatrix}, "rules": object{"type": "string"}, "rows": entries, "cols": entries,
			"class": cells(reflect.TypeFor[topo.Class]()), "nccl": cells(reflect.TypeFor[topo.NCCLClass]()),
			"hops": cells(reflect.TypeFor[*int]()), "expected_bytes_per_sec": cells(reflect.TypeFor[*topo.Rate]()),
			"limit_link": cells(reflect.TypeFor[*topo.LinkID]()), "basis": cells(reflect.TypeFor[topo.Basis]()),
		},
	}
}

// The published schemas say what the types say.
func TestSchemasMatchTheTypes(t *testing.T) {
	for file, schema := range map[string]object{"topology.v1.schema.json": topologySchema(), "matrix.v1.schema.json": matrixSchema()} {
		want, err := json.MarshalIndent(schema, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("schema", file)
		if *update {
			if err := os.WriteFile(path, append(want, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(bytes.TrimSpace(got), want) {
			t.Errorf("%s differs from the types (%v): run go test ./discover/topo -update", path, err)
		}
	}
}

func compileSchema(tb testing.TB, file string) *jsonschema.Schema {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("schema", file))
	if err != nil {
		tb.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		tb.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(file, doc); err != nil {
		tb.Fatal(err)
	}
	s, err := c.Compile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func validate(tb testing.TB, s *jsonschema.Schema, data []byte) {
	tb.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err == nil {
		err = s.Validate(doc)
	}
	if err != nil {
		tb.Errorf("%v", err)
	}
}

func TestDocumentsAreValid(t *testing.T) {
	topology := build(t, twoSockets+"fabric 0 18\nfabric 1 18\nc2c 0 0\n")
	topology.Host.Software = &topo.Software{Memlock: &topo.Memlock{}}
	validate(t, compileSchema(t, "topology.v1.schema.json"), encode(t, topology))
	data, err := json.Marshal(topology.Matrix([]topo.Kind{topo.KindGPU, topo.KindNIC, topo.KindNUMA}, []topo.Kind{topo.KindNIC}))
	if err != nil {
		t.Fatal(err)
	}
	validate(t, compileSchema(t, "matrix.v1.schema.json"), data)
	bad := bytes.Replace(data, []byte(`"PIX"`), []byte(`"PIXX"`), 1)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(bad))
	if err != nil || compileSchema(t, "matrix.v1.schema.json").Validate(doc) == nil {
		t.Error("the schema takes a class that does not exist")
	}
}

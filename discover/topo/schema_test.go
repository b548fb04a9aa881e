package topo_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const (
	topologyFile = "schema/topology.v1.schema.json"
	matrixFile   = "schema/matrix.v1.schema.json"
)

type object = schematest.Object

var generator = schematest.Generator{Nullable: []string{"Software.Modules", "Software.KernelOptions"}}

func schemaOf[T any]() object { return generator.Of(reflect.TypeFor[T]()) }

// nodeSchema is a node of one kind.
func nodeSchema[T any](kind topo.Kind) any {
	s := schemaOf[T]()
	s["properties"].(object)["kind"] = object{"const": kind}
	s["properties"].(object)["facts"] = object{"type": "integer", "minimum": 0}
	return s
}

func topologySchema() object {
	kinds := []any{
		nodeSchema[topo.Package](topo.KindPackage), nodeSchema[topo.NUMANode](topo.KindNUMA),
		nodeSchema[topo.HostBridge](topo.KindHostBridge), nodeSchema[topo.PCIDevice](topo.KindPCI),
		nodeSchema[topo.Switch](topo.KindSwitch), nodeSchema[topo.GPU](topo.KindGPU),
		nodeSchema[topo.NIC](topo.KindNIC), nodeSchema[topo.RDMADevice](topo.KindRDMA),
		nodeSchema[topo.Port](topo.KindPort), nodeSchema[topo.Netdev](topo.KindNetdev),
		nodeSchema[topo.NVMe](topo.KindNVMe), nodeSchema[topo.NVSwitch](topo.KindNVSwitch),
	}
	return schematest.Head(topo.SchemaTopology, object{
		"type":     "object",
		"required": []string{"schema", "tool", "rules", "origin", "complete", "host", "nodes", "links", "derived", "facts", "sources", "warnings"},
		"properties": object{
			"tool": schemaOf[topo.Tool](), "rules": object{"type": "string"}, "captured_at": schemaOf[*time.Time](),
			"origin": object{"type": "string"}, "complete": object{"type": "boolean"}, "host": schemaOf[topo.Host](),
			"nodes": object{"type": "array", "items": object{"oneOf": kinds}}, "links": schemaOf[[]topo.Link](),
			"asserted": schemaOf[topo.Asserted](), "derived": schemaOf[topo.Derived](), "facts": schemaOf[[]topo.Facts](),
			"sources": schemaOf[[]topo.SourceReport](), "warnings": schemaOf[[]topo.Warning](),
		},
	})
}

func matrixSchema() object {
	return schematest.Head(topo.SchemaMatrix, object{
		"type":     "object",
		"required": []string{"schema", "rules", "rows", "cols", "class", "nccl", "hops", "expected_bytes_per_sec", "limit_link", "basis"},
		"properties": object{
			"rules": object{"type": "string"}, "rows": schemaOf[[]topo.MatrixEntry](), "cols": schemaOf[[]topo.MatrixEntry](),
			"class": schemaOf[[][]topo.Class](), "nccl": schemaOf[[][]topo.NCCLClass](), "hops": schemaOf[[][]*int](),
			"expected_bytes_per_sec": schemaOf[[][]*topo.Rate](), "limit_link": schemaOf[[][]*topo.LinkID](), "basis": schemaOf[[][]topo.Basis](),
			"measured_bytes_per_sec": schemaOf[[][]*topo.Rate](),
		},
	})
}

// The published schemas say what the types say.
func TestSchemasMatchTheTypes(t *testing.T) {
	schematest.Compare(t, topologyFile, topologySchema())
	schematest.Compare(t, matrixFile, matrixSchema())
}

func TestDocumentsAreValid(t *testing.T) {
	topology := build(t, twoSockets+"fabric 0 18\nfabric 1 18\nc2c 0 0\n")
	topology.Host.Software = &topo.Software{Memlock: &topo.Memlock{}}
	if err := schematest.Open(t, topologyFile).Validate(encode(t, topology)); err != nil {
		t.Error(err)
	}
	data, err := json.Marshal(topology.Matrix([]topo.Kind{topo.KindGPU, topo.KindNIC, topo.KindNUMA}, []topo.Kind{topo.KindNIC}))
	if err != nil {
		t.Fatal(err)
	}
	schema := schematest.Open(t, matrixFile)
	if err := schema.Validate(data); err != nil {
		t.Error(err)
	}
	if bad := bytes.Replace(data, []byte(`"PIX"`), []byte(`"PIXX"`), 1); schema.Validate(bad) == nil {
		t.Error("the schema takes a class that does not exist")
	}
}

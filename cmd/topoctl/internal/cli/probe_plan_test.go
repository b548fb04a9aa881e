package cli

import (
	"reflect"
	"testing"

	"github.com/topoctl/topoctl/testkit/schematest"
)

const probePlanSchemaFile = "../../../../probe/schema/probe-plan.v1.schema.json"

// The published schema says what the types say.
func TestProbePlanSchema(t *testing.T) {
	var g schematest.Generator
	schematest.Compare(t, probePlanSchemaFile, g.Document(schemaPlan, reflect.TypeFor[planDoc]()))
}

// Plans are documents of the schema.
func TestProbePlansAreValid(t *testing.T) {
	schema := schematest.Open(t, probePlanSchemaFile)
	check := func(args ...string) {
		t.Helper()
		f := newStreams()
		args = append(append([]string{"probe"}, args...), "--dry-run", "-o", "json")
		if code := runFake(t.Context(), f, args...); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, f.Stderr.String())
		}
		if err := schema.Validate(f.Stdout.Bytes()); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	for _, name := range []string{"dgx-h100", "cpu-2eth", "gb200-tray", "sriov-pf-vf", "vm-flat"} {
		check("local", "--fixture", name, "-q")
	}
	check("local", "--fixture", "dgx-h100", "--lat", "--schedule", "endpoint")
	check("fabric", "--host", "n1=fixture:dgx-h100", "--host", "n2=fixture:hgx-h20-8nic", "--bidir", "--contend", "n1 port:mlx5_0/1")
}

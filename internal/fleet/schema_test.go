package fleet_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const (
	schemaFile  = "schema/fleet.v1.schema.json"
	changesFile = "schema/fleet-diff.v1.schema.json"
)

var generator = schematest.Generator{Types: map[reflect.Type]schematest.Object{
	reflect.TypeFor[fleet.Status]():    {"enum": []any{fleet.OK, fleet.Partial, fleet.NotReached}},
	reflect.TypeFor[doctor.Severity](): {"enum": []any{doctor.Error, doctor.Warning, doctor.Info}},
	reflect.TypeFor[pathsel.Role]():    {"enum": []any{pathsel.RoleData, pathsel.RoleStorage, pathsel.RoleManagement, pathsel.RoleDecoy, pathsel.RoleUnknown}},
}, Nullable: []string{"Host.KernelOptions", "Host.Modules", "GPU.Plan"}}

// The published schemas say what the types say.
func TestSchemasMatchTheTypes(t *testing.T) {
	schematest.Compare(t, schemaFile, generator.Document(fleet.Schema, reflect.TypeFor[fleet.Fleet]()))
	schematest.Compare(t, changesFile, generator.Document(fleet.SchemaChanges, reflect.TypeFor[fleet.Changes]()))
}

// Documents keep to them: of hosts of all kinds, with a fabric, and one that was not reached.
func TestDocumentsAreValid(t *testing.T) {
	schema := schematest.Open(t, schemaFile)
	list := hosts(t, "dgx-h100", "dgx-h100", "dgx-h100-port-down", "gb200-tray", "cpu-2eth", "mi300x-8nic", "vm-flat", "sriov-pf-vf", "bonds")
	f := build(t, append(list, fleet.Host{Host: "gone", Status: fleet.NotReached, Reason: "no route"}), railFabric(list, 4))
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(data); err != nil {
		t.Error(err)
	}
	if _, err := fleet.Decode(data); err != nil {
		t.Error(err)
	}
	if schema.Validate([]byte(`{"schema":"topoctl.fleet/v2"}`)) == nil {
		t.Error("the schema takes another version")
	}
	older := build(t, list[:8], nil)
	c, err := json.Marshal(fleet.Compare(older, f, "old", "new"))
	if err != nil {
		t.Fatal(err)
	}
	if err := schematest.Open(t, changesFile).Validate(c); err != nil {
		t.Error(err)
	}
}

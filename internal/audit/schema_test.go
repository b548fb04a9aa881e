package audit_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/topoctl/topoctl/internal/audit"

	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const schemaFile = "schema/audit.v1.schema.json"

var generator = schematest.Generator{Types: map[reflect.Type]schematest.Object{
	reflect.TypeFor[audit.Answer]():      {"enum": []any{audit.AsPlanned, audit.NoGPUDirect, audit.Missed, audit.Fallback, audit.NothingSeen, audit.Unchecked}},
	reflect.TypeFor[audit.Verdict]():     {"enum": []any{audit.OK, audit.Idle, audit.Above, audit.Below, audit.TCPFallback, audit.CouldNotCheck, audit.NotPlanned}},
	reflect.TypeFor[audit.Unit]():        {"enum": []any{audit.Bytes, audit.Packets, audit.Channels}},
	reflect.TypeFor[pathsel.Transport](): {"enum": []any{pathsel.RDMA, pathsel.TCP}},
	reflect.TypeFor[audit.Engine]():      {"enum": []any{audit.NCCL, audit.UCX}},
	reflect.TypeFor[audit.Way]():         {"enum": []any{audit.RDMA, audit.TCP, audit.Unnamed}},
}}

// The published schema says what the types say.
func TestSchemaMatchesTheTypes(t *testing.T) {
	schematest.Compare(t, schemaFile, generator.Document(audit.Schema, reflect.TypeFor[audit.Report]()))
}

// A report with all of its parts is valid, and one without readings.
func TestReportsAreValid(t *testing.T) {
	schema := schematest.Open(t, schemaFile)
	a := newAudit(t, fixturetest.Topology(t, "dgx-h100"), pathsel.Auto)
	check := func(r *audit.Report) {
		t.Helper()
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(data); err != nil {
			t.Error(err)
		}
	}
	check(a.Report())
	a.Sample(evenly(0, 0, zero("eno1")))
	a.Sample(evenly(10, 100*mib, map[string]uint64{"eno1": 1 << 40}))
	if err := a.Log("x", audit.Parse([]byte("dgx-h100:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/X/0\n"))); err != nil {
		t.Fatal(err)
	}
	r := a.Report()
	r.Command = &audit.Command{Args: []string{"x"}, ExitCode: 130, Signal: "interrupt"}
	check(r)
	if schema.Validate([]byte(`{"schema":"topoctl.audit/v2"}`)) == nil {
		t.Error("the schema takes another version")
	}
}

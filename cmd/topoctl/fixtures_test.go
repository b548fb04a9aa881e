package main_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/schematest"
)

// Every machine gives the same document as before, valid by the published
// schema, under 1 MB, the same when it is read back. Synthetic machines exist
// for their size only and have no golden file.
func TestFixtureDocuments(t *testing.T) {
	schema := schematest.Open(t, "../../discover/topo/schema/topology.v1.schema.json")
	for _, name := range fixtures.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := fixturetest.Topology(t, name).Encode()
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > 1_000_000 {
				t.Errorf("%d bytes: a host must stay under 1 MB", len(data))
			}
			if err := schema.Validate(data); err != nil {
				t.Errorf("not valid: %v", err)
			}
			again, err := topo.Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := again.Encode(); err != nil || !bytes.Equal(back, data) {
				t.Errorf("reading the document back changes it (%v): %s", err, cmp.Diff(string(data), string(back)))
			}
			if !strings.Contains(name, "synthetic") {
				golden.Check(t, "testdata/golden/"+name+".json", data)
			}
		})
	}
}

package cli

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl"
	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/agent"
	"github.com/topoctl/topoctl/internal/audit"
	"github.com/topoctl/topoctl/internal/bench"
	pathshow "github.com/topoctl/topoctl/internal/explain/show"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/kv/preset"
	kvreport "github.com/topoctl/topoctl/internal/kv/report"
	"github.com/topoctl/topoctl/internal/probe/show"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/watch"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/diff"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/probe"
)

// documentKind is a format that topoctl writes or reads, by its schema, with the command that prints it where
// "topoctl help json" is to name one.
type documentKind struct{ schema, from string }

// hasSchema says whether there is a JSON Schema of it.
func (d documentKind) hasSchema() bool {
	_, err := topoctl.Schema(d.schema)
	return err == nil
}

var documents = []documentKind{
	{schemaSummary, "topoctl -o json"},
	{topo.SchemaTopology, "topoctl discover"},
	{topo.SchemaMatrix, "topoctl matrix -o json"},
	{replies.SchemaNVML, ""},
	{replies.SchemaNetlink, ""},
	{pathshow.Schema, "topoctl path -o json"},
	{pathsel.SchemaPlan, "topoctl path --plan -o json"},
	{pathsel.SchemaFabric, ""},
	{doctor.Schema, "topoctl doctor -o json"},
	{diff.Schema, "topoctl diff -o json"},
	{fleet.Schema, "topoctl fleet collect -o json"},
	{fleet.SchemaChanges, "topoctl fleet diff -o json"},
	{bench.Schema, "topoctl bench -o json"},
	{probe.Schema, "topoctl probe -o json"},
	{probe.EventSchema, "topoctl probe -o jsonl, a line each"},
	{show.Schema, ""},
	{schemaPlan, "topoctl probe --dry-run -o json"},
	{kvreport.Schema, "topoctl kv -o json"},
	{preset.Schema, ""},
	{schemaPresets, ""},
	{watch.Schema, "topoctl watch -o jsonl, a line each"},
	{audit.Schema, "topoctl audit -o json"},
	{record.Schema, "topoctl tui --record, a line each"},
	{schemaAgent, "topoctl agent -o json, one line"},
	{agent.SchemaEngine, "GET /v1/engine of topoctl agent --http"},
	{engine.SchemaExplain, "Batch.Explain of the library"},
	{peersSchema, "topoctl peers -o json"},
	{schemaEvent, "topoctl peers --watch -o jsonl, a line each"},
	{certSchema, "topoctl cert show -o json"},
	{schemaFixtures, "topoctl fixtures -o json"},
	{schemaVersion, "topoctl version -o json"},
}

// schemas are those of all documents.
func schemas() []string {
	var out []string
	for _, d := range documents {
		out = append(out, d.schema)
	}
	return out
}

// published are those of the documents that have a JSON Schema.
func published() []string {
	var out []string
	for _, d := range documents {
		if d.hasSchema() {
			out = append(out, d.schema)
		}
	}
	return out
}

// documentsText lists which command prints what.
func documentsText() string {
	var lines []string
	for _, d := range documents {
		if d.from != "" {
			lines = append(lines, fmt.Sprintf("  %-23s  %s", d.schema, d.from))
		}
	}
	return strings.Join(lines, "\n")
}

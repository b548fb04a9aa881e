package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/agent"
	"github.com/topoctl/topoctl/internal/app/bench"
	"github.com/topoctl/topoctl/internal/app/diff"
	"github.com/topoctl/topoctl/internal/app/record"
	"github.com/topoctl/topoctl/internal/app/watch"
	"github.com/topoctl/topoctl/internal/base/replies"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/probe"
)

// schemaVersion is the name and major version of what version -o json prints.
const schemaVersion = "topoctl.version/v1"

type versionOptions struct {
	streams Streams
	format  string
}

func newVersionCmd(f *factory, runF func(context.Context, *versionOptions) error) *cobra.Command {
	opts := &versionOptions{streams: f.streams}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, and what this program was built with",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if opts.format, err = f.format(cmd); err != nil {
				return err
			}
			return runF(cmd.Context(), opts)
		},
	}
	uses(cmd, "output", "json")
	formats(cmd, formatText, formatJSON)
	return cmd
}

// build is what the program knows of itself.
type build struct {
	Schema   string   `json:"schema"`
	Version  string   `json:"version"`
	Commit   string   `json:"commit,omitempty"`
	Modified bool     `json:"modified"` // built from a changed tree
	Go       string   `json:"go"`
	OS       string   `json:"os"`
	Arch     string   `json:"arch"`
	NVML     bool     `json:"nvml"` // NVML can be asked (discover/nvml's build constraint holds)
	Schemas  []string `json:"schemas"`
}

// buildInfo reads what the Go linker noted.
func buildInfo() build {
	b := build{Schema: schemaVersion, Version: "devel", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Schemas: []string{topo.SchemaTopology, topo.SchemaMatrix, replies.SchemaNVML, replies.SchemaNetlink,
			schemaPath, pathsel.SchemaPlan, pathsel.SchemaFabric, doctor.Schema, diff.Schema,
			bench.Schema, schemaAgent, agent.SchemaEngine, probe.Schema, probe.EventSchema, probe.DiffSchema,
			watch.Schema, record.Schema}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = strings.TrimPrefix(v, "v")
	}
	cgo, tags := false, ""
	for _, s := range info.Settings {
		switch s.Key {
		case "CGO_ENABLED":
			cgo = s.Value == "1"
		case "-tags":
			tags = s.Value
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	b.NVML = b.OS == "linux" && cgo && !slices.Contains(strings.Split(tags, ","), "nonvml")
	return b
}

func runVersion(_ context.Context, opts *versionOptions) error {
	b := buildInfo()
	if opts.format == formatJSON {
		return printJSON(opts.streams.Out, b)
	}
	commit, nvml := b.Commit, "not built in"
	if commit == "" {
		commit = "unknown"
	}
	if b.Modified {
		commit += " (modified)"
	}
	if b.NVML {
		nvml = "built in"
	}
	return write(opts.streams.Out, fmt.Appendf(nil, "topoctl %s\ncommit:   %s\ngo:       %s %s/%s\nnvml:     %s\nschemas:  %s\n",
		b.Version, commit, b.Go, b.OS, b.Arch, nvml, strings.Join(b.Schemas, ", ")))
}

package cli

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/build"
)

// schemaVersion is the name and major version of what version -o json prints.
const schemaVersion = "topoctl.version/v1"

type versionOptions struct {
	*Host
}

func newVersionCmd(f *Env) *cobra.Command {
	opts := &versionOptions{f.Host()}
	cmd := newCommand(opts, "version", "Print the version and build information")
	Formats(cmd, formatTable, formatJSON)
	return cmd
}

// versionDoc is what the program knows of itself.
type versionDoc struct {
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

func newVersionDoc() versionDoc {
	b := build.Read()
	return versionDoc{Schema: schemaVersion, Version: b.Version, Commit: b.Commit, Modified: b.Modified,
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, NVML: b.NVML, Schemas: schemas()}
}

func (o *versionOptions) run(_ context.Context) error {
	b := newVersionDoc()
	if o.Format == formatJSON {
		return printJSON(o.Streams.Out, b)
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
	look := o.Look()
	return Write(o.Streams.Out, fmt.Appendf(nil, "topoctl %s\ncommit:   %s\ngo:       %s %s/%s\nnvml:     %s\n%s",
		b.Version, commit, b.Go, b.OS, b.Arch, nvml, look.Wrap("schemas:  ", strings.Join(b.Schemas, ", "), "")))
}

// Package build knows what this program was built from.
package build

import (
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// Info is what the program knows of itself.
type Info struct {
	Version  string // "devel" where the build did not stamp one
	Commit   string // "" where the build did not stamp one
	Modified bool   // built from a changed tree
	NVML     bool   // NVML can be asked (discover/nvml's build constraint holds)
}

// Tool is topoctl, as documents name what made them.
func Tool() topo.Tool { return topo.Tool{Name: "topoctl", Version: Read().Version} }

// Read reads what the Go linker noted.
func Read() Info {
	b := Info{Version: "devel"}
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
	b.NVML = runtime.GOOS == "linux" && cgo && !slices.Contains(strings.Split(tags, ","), "nonvml")
	return b
}

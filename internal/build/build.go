// Package build knows what this program was built from.
package build

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// What the Makefile stamps by -ldflags "-X ...": the version that packages and the wheel of the same
// tree have. Go's own, where it stamps one, is a pseudo-version between two tags.
var (
	stampedVersion string // of git describe
	stampedCommit  string // of git rev-parse
)

// Info is what the program knows of its build.
type Info struct {
	Version  string // "devel" where the build has none
	Commit   string // "" where the build has none
	Modified bool   // built from a changed tree
	NVML     bool   // NVML can be asked (discover/nvml's build constraint holds)
}

// Tool is topoctl, as documents name what made them.
func Tool() topo.Tool { return topo.Tool{Name: "topoctl", Version: Read().Version} }

// Read gives what this program knows of its build.
func Read() Info {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return choose(info, stampedVersion, stampedCommit)
}

// choose takes what was stamped, else what Go noted of the module and of its repository, else "devel".
func choose(info *debug.BuildInfo, version, commit string) Info {
	var b Info
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
	if commit != "" {
		b.Commit, b.Modified = commit, strings.HasSuffix(version, "-dirty")
	}
	b.Version = strings.TrimPrefix(cmp.Or(version, info.Main.Version, "devel"), "v")
	if b.Version == "(devel)" { // Go's word for no version
		b.Version = "devel"
	}
	b.NVML = runtime.GOOS == "linux" && cgo && !slices.Contains(strings.Split(tags, ","), "nonvml")
	return b
}

// String is the version and, where it is known, the commit: "1.2.3, commit 5b3a594, modified".
func (b Info) String() string {
	out := b.Version
	if b.Commit != "" {
		out += ", commit " + b.Commit
	}
	if b.Modified {
		out += ", modified"
	}
	return out
}

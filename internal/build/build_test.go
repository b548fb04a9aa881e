package build

import (
	"runtime/debug"
	"testing"
)

func TestChoose(t *testing.T) {
	module := func(version string, settings ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Version: version}}
		for i := 0; i < len(settings); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return info
	}
	for name, tt := range map[string]struct {
		info            *debug.BuildInfo
		version, commit string // stamped by make
		want            Info
		text            string
	}{
		"nothing is known":              {module(""), "", "", Info{Version: "devel"}, "devel"},
		"go build without a repository": {module("(devel)"), "", "", Info{Version: "devel"}, "devel"},
		"go install module@version":     {module("v1.2.3"), "", "", Info{Version: "1.2.3"}, "1.2.3"},
		"go build in a repository": {module("(devel)", "vcs.revision", "abc", "vcs.modified", "true"), "", "",
			Info{Version: "devel", Commit: "abc", Modified: true}, "devel, commit abc, modified"},
		"make without Go's stamps":    {module("(devel)"), "v1.2.3-4-gabc", "abc", Info{Version: "1.2.3-4-gabc", Commit: "abc"}, "1.2.3-4-gabc, commit abc"},
		"make in a changed tree":      {module("(devel)"), "abc-dirty", "abc", Info{Version: "abc-dirty", Commit: "abc", Modified: true}, "abc-dirty, commit abc, modified"},
		"make's stamps win over Go's": {module("v1.2.4-0.20261124083927-def", "vcs.revision", "def", "vcs.modified", "true"), "1.2.3-4-gabc", "abc", Info{Version: "1.2.3-4-gabc", Commit: "abc"}, "1.2.3-4-gabc, commit abc"},
		"Go names what make does not": {module("v1.2.3", "vcs.revision", "def", "vcs.modified", "true"), "", "", Info{Version: "1.2.3", Commit: "def", Modified: true}, "1.2.3, commit def, modified"},
	} {
		got := choose(tt.info, tt.version, tt.commit)
		if got != tt.want || got.String() != tt.text {
			t.Errorf("%s: %+v (%s), want %+v", name, got, got, tt.want)
		}
	}
}

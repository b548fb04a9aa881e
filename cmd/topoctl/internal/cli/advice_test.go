package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

var (
	adviceCommand = regexp.MustCompile(`topoctl (discover|topo|matrix|path|export|doctor|diff|version)\b((?: [a-z0-9:-]+| --[a-z-]+| [A-Z]+)*)`)
	adviceFlag    = regexp.MustCompile(`--([a-z-]+)`)
)

// The commands that findings advise exist, with their flags.
func TestDoctorAdvisesCommandsThatExist(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: all fixtures, in one goroutine")
	}
	env := &Env{Streams: newStreams().Streams, Now: time.Now}
	root := newRoot(env, commands(env)...)
	seen := 0
	check := func(where, advice string) {
		for _, m := range adviceCommand.FindAllStringSubmatch(advice, -1) {
			seen++
			cmd, _, err := root.Find([]string{m[1]})
			if err != nil || cmd.Name() != m[1] {
				t.Errorf("%s: no command %q: %s", where, m[1], advice)
				continue
			}
			for _, flag := range adviceFlag.FindAllStringSubmatch(m[2], -1) {
				if cmd.Flag(flag[1]) == nil {
					t.Errorf("%s: topoctl %s has no --%s: %s", where, m[1], flag[1], advice)
				}
			}
		}
	}
	for name, r := range doctorReports(t) {
		for _, c := range r.Checks {
			for _, f := range c.Findings {
				check(name+" "+string(c.Code), f.Fix)
			}
			for _, m := range c.Missing {
				check(name+" "+string(c.Code), m.How)
			}
		}
	}
	page, err := os.ReadFile("../../../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "- **What to do:**") {
			check("docs/doctor.md", line)
		}
	}
	if seen < 50 {
		t.Errorf("%d commands in all advice", seen)
	}
}

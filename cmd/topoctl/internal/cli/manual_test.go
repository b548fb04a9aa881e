package cli

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// Every command that help lists has a page with its flags; roff reads no line of text as a macro.
func TestManual(t *testing.T) {
	pages := Manual("1.2.3", time.Unix(0, 0))
	for name, want := range map[string][]string{
		"topoctl.1":            {`.TH TOPOCTL 1 1970-01-01 "topoctl 1.2.3"`, `.B "topoctl kv"`, `.SH "EXIT CODES"`, `topoctl\-agent(1)`},
		"topoctl-agent.1":      {`.B "\-\-token\-file FILE"`, `.SH "EXAMPLES"`, `&topoctl(1)`},
		"topoctl-kv-predict.1": {`.B "\-\-rate `},
	} {
		for _, s := range want {
			if !strings.Contains(string(pages[name]), s) {
				t.Errorf("%s lacks %s:\n%.400s", name, s, pages[name])
			}
		}
	}
	if _, ok := pages["topoctl-bench-end.1"]; ok {
		t.Error("a hidden command has a page")
	}
	macro := regexp.MustCompile(`^\.(TH|SH|TP|B|PP|EX|EE)( |$)`)
	for name, page := range pages {
		for line := range strings.Lines(string(page)) {
			if (line[0] == '.' || line[0] == '\'') && !macro.MatchString(strings.TrimSuffix(line, "\n")) {
				t.Errorf("%s: %q", name, line)
			}
		}
	}
}

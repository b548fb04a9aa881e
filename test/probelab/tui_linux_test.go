package probelab

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// A wire that carries some ops of the dashboard's size in a sample.
const tuiMbit = 400

// dashboard starts the probe view over the hosts of a lab.
func (l *lab) dashboard(more ...string) *screen {
	args := []string{"tui", "--view", "probe", "--ascii", "--token-file", l.token}
	for _, h := range l.hosts {
		args = append(args, "--host", h.name()+"="+l.addressOf(h.number, 0).String())
	}
	return openScreen(l.t, 160, 44, append(args, more...)...)
}

// measuring is a dashboard that measures all pairs of a lab with n1 and n3.
func (l *lab) measuring() *screen {
	s := l.dashboard()
	s.until("nothing is sent before you")
	s.press("\r")
	s.until("n1/eth0 > n3/eth0")
	s.press("ap")
	s.until("This sends traffic")
	s.press("y")
	return s
}

// recorded is the report of the probe in a recording.
func recorded(t *testing.T, name string) *probe.Report {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var events bytes.Buffer
	for line := range bytes.Lines(data) {
		var r record.Record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r.Probe == nil {
			continue
		}
		e, err := r.Probe.Encode()
		if err != nil {
			t.Fatal(err)
		}
		events.Write(e)
	}
	report, err := probe.ReadEvents(&events)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

var verdictLine = regexp.MustCompile(`\* (n\d/eth\d > n\d/eth\d) .* ([A-Z]{4,})\b`)

// A probe of two wires between two agents, all from the keyboard: the pairs are listed, marked
// and measured after the question; rounds and verdicts are seen, and are those of the
// recording.
func TestDashboard(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: rates need seconds")
	}
	t.Parallel()
	l := newLab(t, 2, 2, tuiMbit)
	file := filepath.Join(t.TempDir(), "run.jsonl")
	s := l.dashboard("--record", file)
	s.until("nothing is sent before you")
	s.press("\r")
	s.until("n1/eth0 > n2/eth0", "n2/eth1 > n1/eth1", "[ ]")
	if x := start(t, l.probing("--dry-run")...).wait(t); x.code != 0 { // another controller gets the agents
		t.Errorf("beside the dashboard: exit code %d: %s", x.code, x.errors.String())
	}
	s.press("a")
	s.until("4 marked")
	s.press("p")
	s.until("This sends traffic", "port n1/eth0>n2/eth0 tcp")
	if strings.Contains(s.text(), "measuring") {
		t.Error("it measures before it was told to")
	}
	s.press("y")
	s.until("round 1 of", "being measured", "now")
	text := s.until("[results]", "4 pairs in")
	t.Logf("\n%s", text)
	seen := map[string]string{}
	for _, m := range verdictLine.FindAllStringSubmatch(text, -1) {
		seen[m[1]] = m[2]
	}
	s.press("q")
	s.wait()
	r := recorded(t, file)
	if !r.Complete || len(r.Results) != 4 || len(seen) != 4 {
		t.Errorf("complete %v, %d results, %d on the screen:\n%s", r.Complete, len(r.Results), len(seen), text)
	}
	for i := range r.Results {
		x := &r.Results[i]
		name := x.From.Host + "/" + x.From.Name + " > " + x.To.Host + "/" + x.To.Name
		if x.Judged() == nil || seen[name] != string(x.Verdict) {
			t.Errorf("%s: %s in the recording, %q on the screen", name, x.Verdict, seen[name])
		}
	}
}

// An agent dies while it is measured: the pane says so, and the rest lives on.
func TestDashboardAgentKilled(t *testing.T) {
	longtest.Only(t) // TestAgentKilled
	t.Parallel()
	l := newLab(t, 3, 1, tuiMbit)
	s := l.measuring()
	s.until("being measured")
	l.hosts[2].kill()
	s.until("ERROR", "errors")
	s.press("1")
	s.until("1 tree")
	s.press("4")
	text := s.until("ERROR", "[results]", "host n3: ")
	t.Logf("\n%s", text)
	if !regexp.MustCompile(`2 pairs (PASS|INCONCLUSIVE|WARN), |(n1/eth0 > n2/eth0|n2/eth0 > n1/eth0) .* (PASS|INCONCLUSIVE|WARN)\b`).MatchString(text) {
		t.Error("the pairs of the others are not measured")
	}
	s.press("q")
	s.wait()
}

// A probe that is stopped keeps what it has, and ends soon.
func TestDashboardStop(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: rates need seconds")
	}
	t.Parallel()
	l := newLab(t, 3, 1, tuiMbit)
	s := l.measuring()
	s.until("round 2 of")
	s.press("p")
	s.until("Stop the probe?")
	s.press("y")
	text := s.until("[results]", "incomplete: the run ended early")
	if !regexp.MustCompile(`(PASS|INCONCLUSIVE|WARN), [\d.]+( to [\d.]+)? [GM]b/s|n\d/eth0 > n\d/eth0 .* [\d.]+ .* (PASS|INCONCLUSIVE|WARN)\b`).MatchString(text) {
		t.Errorf("nothing that was measured is kept:\n%s", text)
	}
	s.press("q")
	s.wait()
}

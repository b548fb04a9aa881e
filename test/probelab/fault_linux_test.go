package probelab

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/probe"
)

// events reads what a run has written so far; a line that is not whole yet is left out.
func events(t *testing.T, name string) (out []probe.Event) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var e probe.Event
		if strings.HasSuffix(line, "\n") {
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			out = append(out, e)
		}
	}
	return out
}

// until waits for an event.
func until(t *testing.T, name string, want func(probe.Event) bool) {
	t.Helper()
	for end := time.Now().Add(within); !slices.ContainsFunc(events(t, name), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v", within)
		}
	}
}

// An agent dies while one of its pairs is measured: its pairs are in error and say so, and
// everything else is measured.
func TestAgentKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: an agent is given up after seconds")
	}
	t.Parallel()
	l := newLab(t, 3, 1, labMbit)
	dir := t.TempDir()
	log, report := filepath.Join(dir, "events"), filepath.Join(dir, "report.json")
	x := start(t, l.probing(short("--duration", "1s", "--events", log, "--report", report)...)...)
	dying := ""
	until(t, log, func(e probe.Event) bool {
		if e.Sample != nil && strings.Contains(e.Sample.Pair, "n3/") {
			dying = e.Sample.Pair
		}
		return dying != ""
	})
	l.hosts[2].kill()
	x.wait(t)
	t.Logf("%v, exit code %d:\n%s%s", x.took, x.code, x.out.String(), x.errors.String())
	r := readReport(t, report)
	lost := map[string]bool{}
	for i := range r.Results {
		p := &r.Results[i]
		switch ofLost := p.From.Host == "n3" || p.To.Host == "n3"; {
		case !ofLost && (p.Judged() == nil || p.Error != ""):
			t.Errorf("%s has no agent that died: %s %q", p.ID, p.Verdict, p.Error)
		case ofLost && p.Verdict == probe.Error:
			lost[p.ID] = true
			if !strings.Contains(p.Error, "n3") {
				t.Errorf("%s: %q does not name the host", p.ID, p.Error)
			}
		}
	}
	if len(lost) == 0 || !lost[dying] {
		t.Errorf("%s was measured when its agent died, in error are %v", dying, lost)
	}
	if k := slices.IndexFunc(r.Hosts, func(h probe.Host) bool { return h.Name == "n3" }); k < 0 || r.Hosts[k].Error == "" {
		t.Errorf("the report does not say that n3 was lost: %+v", r.Hosts)
	}
	if !r.Complete || len(r.Results) != 6 {
		t.Errorf("%d pairs, complete: %v", len(r.Results), r.Complete)
	}
	if x.code != 3 {
		t.Errorf("exit code %d, want 3", x.code)
	}
}

// A run that is interrupted prints what it has; resumed, it measures the rest only.
func TestInterruptAndResume(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: rates need seconds")
	}
	t.Parallel()
	l := newLab(t, 3, 1, labMbit)
	dir := t.TempDir()
	first, second, report := filepath.Join(dir, "first"), filepath.Join(dir, "second"), filepath.Join(dir, "report.json")
	x := start(t, l.probing(short("--all", "--events", first)...)...)
	until(t, first, func(e probe.Event) bool { return e.Round != nil && e.Round.Round == 3 })
	if err := x.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	x.wait(t)
	t.Logf("%v, exit code %d:\n%s%s", x.took, x.code, x.out.String(), x.errors.String())
	if x.code != 130 {
		t.Errorf("exit code %d, want 130", x.code)
	}
	was := readReport(t, first)
	measured := map[string]bool{}
	for i := range was.Results {
		if p := &was.Results[i]; p.Judged() != nil {
			measured[p.ID] = true
			if !strings.Contains(x.out.String(), p.From.Host+"/"+p.From.Name) {
				t.Errorf("%s is not printed", p.ID)
			}
		}
	}
	if was.Complete || len(measured) < 2 || len(measured) == len(was.Results) {
		t.Errorf("%d of %d pairs are measured, complete: %v", len(measured), len(was.Results), was.Complete)
	}
	x = start(t, l.probing(short("--resume", first, "--events", second, "--report", report)...)...).wait(t)
	t.Logf("%v, exit code %d:\n%s%s", x.took, x.code, x.out.String(), x.errors.String())
	for _, e := range events(t, second) {
		if e.Retest != nil {
			break
		}
		for _, id := range roundPairs(e, len(was.Results)) {
			if measured[id] {
				t.Errorf("%s is measured again", id)
			}
		}
	}
	now := readReport(t, report)
	for i := range now.Results {
		if p := &now.Results[i]; p.Judged() == nil {
			t.Errorf("%s is not measured: %s", p.ID, p.Error)
		}
	}
	if !now.Complete {
		t.Error("the run that was resumed is not complete")
	}
}

// roundPairs are those that a round of the plan begins with.
func roundPairs(e probe.Event, rounds int) []string {
	if e.Round == nil || e.Round.Round > rounds {
		return nil
	}
	return e.Round.Pairs
}

// What cannot be written is told at the end, and nothing that was measured is lost.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2, 1, labMbit)
	for _, flag := range []string{"--report", "--events"} {
		x := start(t, l.probing(short("--all", flag, "/dev/full")...)...).wait(t)
		t.Logf("%s: exit code %d:\n%s%s", flag, x.code, x.out.String(), x.errors.String())
		if x.code != 2 {
			t.Errorf("%s: exit code %d, want 2", flag, x.code)
		}
		for _, want := range []string{"n1/eth0", "n2/eth0"} {
			if !strings.Contains(x.out.String(), want) {
				t.Errorf("%s: nothing is printed of %s", flag, want)
			}
		}
		lines := strings.Split(strings.TrimSpace(x.errors.String()), "\n")
		if last := lines[len(lines)-1]; !strings.Contains(last, flag) || !strings.Contains(last, "no space left") {
			t.Errorf("%s: the last line says %q", flag, last)
		}
	}
}

// Who lacks the token is told so, and what to do.
func TestToken(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2, 1, labMbit)
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("another-token-of-the-probe-lab\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--token-file", other}, nil} {
		x := start(t, append([]string{"probe", "fabric", "--host", "n1=" + l.addressOf(0, 0).String(), "--host", "n2=" + l.addressOf(1, 0).String()}, args...)...).wait(t)
		t.Logf("%v: exit code %d:\n%s", args, x.code, x.errors.String())
		if said := x.errors.String(); x.code != 2 || !strings.Contains(said, "token") || !strings.Contains(said, "--token-file") || x.out.Len() > 0 {
			t.Errorf("%v: exit code %d, and stdout has %q", args, x.code, x.out.String())
		}
	}
}

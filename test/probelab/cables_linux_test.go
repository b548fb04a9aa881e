package probelab

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// Four hosts with two ports each, of which nobody says what they carry: 300 Mbit/s, and one cable a fifth.
const (
	cableMbit   = 300
	fifthMbit   = cableMbit / 5
	cableRuns   = 20
	mostUnnamed = cableRuns / 10 // of runs beside busy loops
)

// answerOf is what a run said: the first line, and the report.
type answerOf struct {
	first  string
	code   int
	report *probe.Report
}

// tell probes all pairs. Where TOPOCTL_PROBE_RECORD names a folder, the report is kept there.
func (l *lab) tell(t *testing.T, name string) answerOf {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	x := start(t, l.probing("--report", file)...).wait(t)
	first, _, _ := strings.Cut(x.out.String(), "\n")
	t.Logf("%v, exit code %d:\n%s%s", x.took, x.code, x.out.String(), x.errors.String())
	a := answerOf{first, x.code, readReport(t, file)}
	if dir := os.Getenv("TOPOCTL_PROBE_RECORD"); dir != "" {
		data, err := os.ReadFile(file)
		l.must("record", err)
		l.must("record", os.WriteFile(filepath.Join(dir, name+".json"), data, 0o600))
	}
	return a
}

// cables are numbered runs in a lab of its own, each with another cable at a fifth.
func cables(t *testing.T, busy bool, run func(t *testing.T, l *lab, name string, bad cable)) {
	if !alone {
		longtest.Only(t)
	}
	l := newLab(t, 4, 2, 0)
	if busy {
		busyLoops(t)
	}
	for h := range l.hosts {
		for r := range l.rails {
			l.shape(cable{h, r, bothWays}, cableMbit)
		}
	}
	seed := rand.Uint64()
	dice := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	for i := range cableRuns {
		bad := cable{dice.IntN(len(l.hosts)), dice.IntN(l.rails), way(i % 3)}
		name := fmt.Sprintf("%02d", i+1)
		t.Run(name+" "+bad.String(), func(t *testing.T) {
			run(t, l, fmt.Sprintf("%s-%s", t.Name()[:strings.Index(t.Name(), "/")], name), bad)
		})
	}
}

// withSlow runs with a cable at a fifth.
func (l *lab) withSlow(bad cable, run func()) {
	l.shape(bad, fifthMbit)
	defer l.shape(cable{bad.host, bad.rail, bothWays}, cableMbit)
	run()
}

// named says whether the first line names a cable, and nothing else.
func (l *lab) named(a answerOf, bad cable) bool {
	does := map[way]string{bothWays: "sends and receives", sending: "sends", receiving: "receives"}[bad.way]
	return regexp.MustCompile(`^1 slow (cable|port): ` + regexp.QuoteMeta(l.hosts[bad.host].name()+"/"+portName(bad.rail)+" "+does) + ` \d`).MatchString(a.first)
}

// wrong are parts that are accused and are not at a cable; with no cable, all that are accused.
func (l *lab) wrong(a answerOf, bad *cable) (out []string) {
	for _, b := range a.report.Blame {
		if b.Kind != probe.Fault {
			continue
		}
		if len(b.Suspects) == 0 || bad == nil || !l.names(b.Suspects, *bad) {
			out = append(out, fmt.Sprintf("%v for %v", b.Suspects, b.Pairs))
		}
	}
	return out
}

// One cable at a fifth, and nothing else to do for the hosts: the first line names it alone.
func TestOneCable(t *testing.T) {
	cables(t, false, func(t *testing.T, l *lab, name string, bad cable) {
		l.withSlow(bad, func() {
			a := l.tell(t, name)
			if !l.named(a, bad) || a.code != 1 || len(a.report.Blame) != 1 {
				t.Errorf("exit code %d, %d are blamed: %s", a.code, len(a.report.Blame), a.first)
			}
			for _, w := range l.wrong(a, &bad) {
				t.Error("accused:", w)
			}
		})
	})
}

// The same beside busy loops on all processors: no other part is accused, and nearly all runs name the cable
// or say that the hosts were busy.
func TestOneCableBusy(t *testing.T) {
	unnamed := 0
	cables(t, true, func(t *testing.T, l *lab, name string, bad cable) {
		l.withSlow(bad, func() {
			a := l.tell(t, name)
			for _, w := range l.wrong(a, &bad) {
				t.Error("accused:", w)
			}
			if !l.named(a, bad) && !strings.Contains(a.first, "the measuring hosts were busy") {
				unnamed++
				t.Log("neither the cable nor busy hosts:", a.first)
			}
		})
	})
	if unnamed > mostUnnamed {
		t.Errorf("%d runs name neither the cable nor busy hosts", unnamed)
	}
}

// All cables are well: nothing is accused.
func TestCablesWell(t *testing.T) {
	cables(t, false, func(t *testing.T, l *lab, name string, _ cable) {
		a := l.tell(t, name)
		for _, w := range l.wrong(a, nil) {
			t.Error("accused:", w)
		}
		if a.code == 1 || strings.HasPrefix(a.first, "1 ") && strings.Contains(a.first, "slow") {
			t.Errorf("exit code %d: %s", a.code, a.first)
		}
	})
}

// busyLoops keeps all processors busy until the test ends.
func busyLoops(t *testing.T) {
	t.Helper()
	for range runtime.NumCPU() {
		c := command(roleLoop, 0)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	}
}

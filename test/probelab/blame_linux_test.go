package probelab

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/longtest"
)

const (
	labMbit = 40
	slowBy  = 4
)

// One cable is slower than it says, in both directions or one: it is blamed by name, and no
// pair that is well fails. Beside others a run may fall short, because agents that
// do not run move nothing; where the lab has the machine to itself, none of 20 may.
func TestSlowCable(t *testing.T) {
	if !alone {
		longtest.Only(t)
	}
	l := newLab(t, 3, 2, labMbit)
	runs, tries := 1, 3
	if alone {
		runs, tries = 20, 1
	}
	seed := rand.Uint64()
	dice := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	for run := range runs {
		bad := cable{dice.IntN(len(l.hosts)), dice.IntN(l.rails), way(run % 3)}
		t.Run(fmt.Sprintf("%02d %v", run+1, bad), func(t *testing.T) {
			l.shape(bad, labMbit/slowBy)
			defer l.shape(cable{bad.host, bad.rail, bothWays}, labMbit)
			for try := 1; ; try++ {
				wrong := l.find(t, bad)
				if len(wrong) == 0 {
					break
				}
				t.Logf("try %d: %s", try, strings.Join(wrong, "\n"))
				if try == tries {
					t.Fatal("the cable is not found, or another is blamed")
				}
			}
		})
	}
}

// find probes all pairs and says what is wrong with the answer.
func (l *lab) find(t *testing.T, bad cable) (wrong []string) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	x := start(t, l.probing(short("--report", report)...)...).wait(t)
	t.Logf("%v:\n%s%s", x.took, x.out.String(), x.errors.String())
	if x.code != 1 {
		wrong = append(wrong, fmt.Sprintf("exit code %d, want 1", x.code))
	}
	return append(wrong, l.check(readReport(t, report), bad)...)
}

// check says what is wrong with a report where a cable is slow.
func (l *lab) check(r *probe.Report, bad cable) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	slow := map[string]bool{}
	for i := range r.Results {
		x := &r.Results[i]
		switch slow[x.ID] = bad.way != receiving && l.end(x.From, bad) || bad.way != sending && l.end(x.To, bad); {
		case slow[x.ID] && x.Verdict != probe.Fail:
			say("%s crosses it and is %s", x.ID, x.Verdict)
		case !slow[x.ID] && (x.Verdict == probe.Fail || x.Verdict == probe.Error):
			say("%s is well and is %s: %v", x.ID, x.Verdict, x.Reasons)
		}
	}
	if n := len(l.hosts); len(r.Results) != l.rails*n*(n-1) {
		say("%d pairs, want %d", len(r.Results), l.rails*n*(n-1))
	}
	if len(r.Blame) != 1 {
		say("%d faults are blamed, want one", len(r.Blame))
	}
	explained := map[string]bool{}
	for _, b := range r.Blame {
		for _, id := range b.Pairs {
			explained[id] = true
			if !slow[id] {
				say("%s is well and among what is explained", id)
			}
		}
	}
	for id, isSlow := range slow {
		if isSlow && !explained[id] {
			say("%s is not explained", id)
		}
	}
	if !slices.ContainsFunc(r.Blame, func(b probe.Blame) bool { return l.names(b.Suspects, bad) }) {
		say("the wire of the %v is not among the suspects: %+v", bad, r.Blame)
	}
	return wrong
}

// names says whether a cable is among suspects, in the directions in which it is slow.
func (l *lab) names(suspects []probe.Suspect, bad cable) bool {
	wires := []probe.LinkKey{l.wire(bad, "down"), l.wire(bad, "up")}
	switch bad.way {
	case sending:
		wires = wires[:1]
	case receiving:
		wires = wires[1:]
	}
	return slices.ContainsFunc(suspects, func(s probe.Suspect) bool {
		return (s.Kind == "link" || s.Kind == "direction") && len(s.Links) == len(wires) &&
			!slices.ContainsFunc(wires, func(w probe.LinkKey) bool { return !slices.Contains(s.Links, w) })
	})
}

// end says whether an end of a pair is at a cable.
func (l *lab) end(e probe.End, c cable) bool {
	return e.Host == l.hosts[c.host].name() && e.Name == portName(c.rail)
}

func (l *lab) wire(c cable, direction string) probe.LinkKey {
	return probe.LinkKey(fmt.Sprintf("%s port:%s %s", l.hosts[c.host].name(), portName(c.rail), direction))
}

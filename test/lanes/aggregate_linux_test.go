package lanes

import (
	"os"
	"testing"

	"github.com/topoctl/topoctl/testkit/longtest"
)

// Several lanes carry what they carry alone, together.
func TestAggregation(t *testing.T) {
	if os.Getenv("TOPOCTL_LANES") != "alone" {
		longtest.Only(t)
	}
	const mbit = 300
	l := newLab(t, mbit, mbit, mbit, mbit)
	far := l.far.ask(ask{Do: "engine", Lanes: 4})
	lanes := []int{1, 2, 4}
	var engines []*nearEngine
	var sizes []int64
	for _, n := range lanes {
		engines = append(engines, l.open(n, far))
		fill(engines[len(engines)-1].local.Bytes(), uint64(n))
		sizes = append(sizes, int64(n)*8<<20)
	}
	got := rates(5, sizes, engines)
	if bad := l.far.ask(ask{Do: "verify", Seed: 4, Bytes: sizes[2]}).Wrong; bad > 0 {
		t.Errorf("%d wrong bytes", bad)
	}
	for i, n := range lanes {
		t.Logf("%d lanes: %.1f MB/s, %.2f times one lane, %.3f of their payload",
			n, got[i]/1e6, got[i]/got[0], got[i]/(float64(n)*payload(mbit)))
	}
	if times, want := got[1]/got[0], goal(1.9, 1.3); times < want {
		t.Errorf("two equal lanes carry %.2f times what one does, want %.1f", times, want)
	}
	if times, want := got[2]/got[0], goal(3.7, 2); times < want {
		t.Errorf("four equal lanes carry %.2f times what one does, want %.1f", times, want)
	}
}

// goal is what a rate must reach: the goal where the lab has the machine to itself
// (TOPOCTL_LANES=alone, as .ci/run has it), else what shows that lanes add up at all.
func goal(alone, beside float64) float64 {
	if os.Getenv("TOPOCTL_LANES") == "alone" {
		return alone
	}
	return beside
}

// Lanes of which one has half the rate of the other: nothing promises which.
func TestUnequalLanes(t *testing.T) {
	if os.Getenv("TOPOCTL_LANES") != "alone" {
		longtest.Only(t)
	}
	l := newLab(t, 200, 400)
	far := l.far.ask(ask{Do: "engine", Lanes: 2})
	got := rates(3, []int64{16 << 20}, []*nearEngine{l.open(2, far)})
	if share, want := got[0]/payload(200, 400), goal(0.95, 0.7); share < want {
		t.Errorf("both lanes carry %.3f of their sum, want %.2f", share, want)
	}
}

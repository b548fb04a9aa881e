package show

import (
	"testing"

	"github.com/topoctl/topoctl/internal/report"
)

func TestStepOf(t *testing.T) {
	for v, want := range map[float64]int{1.4: 0, 0.97: 0, 0.969: 1, 0.9: 2, 0.5: 5, 0.2: 6, 0.19: 7, 0: 7} {
		if got := stepOf(&v); got != want {
			t.Errorf("%g: %d, want %d", v, got, want)
		}
	}
	if stepOf(nil) != report.NotKnown {
		t.Error("what is not known has a step")
	}
}

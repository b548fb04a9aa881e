package longtest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/testkit/longtest"
)

func TestSample(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6}
	t.Setenv("TOPOCTL_TESTS", "")
	if diff := cmp.Diff([]int{0, 2, 4}, longtest.Sample(all, 3)); diff != "" {
		t.Errorf("of an ordinary run (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(all, longtest.Sample(all, 7)); diff != "" {
		t.Errorf("of few (-want +got):\n%s", diff)
	}
	t.Setenv("TOPOCTL_TESTS", "long")
	if diff := cmp.Diff(all, longtest.Sample(all, 3)); diff != "" {
		t.Errorf("of a long run (-want +got):\n%s", diff)
	}
}

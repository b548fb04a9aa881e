package discovery

import (
	"slices"
	"testing"
)

// diff compares lists line by line.
func diff(t *testing.T, what string, got, want []string) {
	t.Helper()
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("%s: found, but not stated: %s", what, g)
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("%s: stated, but not found: %s", what, w)
		}
	}
	if len(want) == 0 {
		t.Errorf("%s: nothing was stated", what)
	}
}

package text

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"topo", "topo", 0},
		{"discvoer", "discover", 2}, {"shw", "show", 1}, {"dgx-h10", "dgx-h100", 1}, {"kitten", "sitting", 3},
	} {
		if got := Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestClosest(t *testing.T) {
	names := []string{"discover", "topo", "matrix", "version"}
	for name, want := range map[string]string{
		"topos": "topo", "Topo": "topo", "discovr": "discover", "verson": "version", "x": "", "probe": "",
		"mtrx": "matrix", strings.Repeat("topo", 100): "",
	} {
		if got := Closest(name, names); got != want {
			t.Errorf("closest(%q) = %q, want %q", name, got, want)
		}
	}
}

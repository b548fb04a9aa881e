package pathsel_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

func TestSplit(t *testing.T) {
	h := fixture(t, "dgx-a100")
	near := []topo.ID{"port:mlx5_0/1", "port:mlx5_1/1"}
	for _, tt := range []struct {
		name    string
		ports   []topo.ID
		weights []float64
		want    topo.Rate
		basis   topo.Basis
	}{
		{"one port is its own rate", near[:1], []float64{1}, 25 * topo.GBPerSec, topo.BasisRead},
		{"halves share the GPU's link", near, []float64{1, 1}, 31507692307, topo.BasisRead},
		{"the larger part is bound by its port", near, []float64{9, 1}, 27777777777, topo.BasisRead},
		{"a far port's part is as slow as the way there", []topo.ID{"port:mlx5_0/1", "port:mlx5_6/1"}, []float64{1, 9}, 17777777777, topo.BasisTypical},
	} {
		got, basis, err := h.Split("gpu:0", tt.ports, tt.weights)
		if err != nil || got == nil || *got < tt.want-10 || *got > tt.want+10 || basis != tt.basis {
			t.Errorf("%s: %v %s %v, want %d %s", tt.name, deref(got), basis, err, tt.want, tt.basis)
		}
	}
	for _, weights := range [][]float64{{1}, {1, 0}, {1, -1}} {
		if _, _, err := h.Split("gpu:0", near, weights); err == nil {
			t.Errorf("weights %v", weights)
		}
	}
	if _, _, err := h.Split("gpu:0", []topo.ID{"port:none"}, []float64{1}); err == nil {
		t.Error("a port that the host has not")
	}
	if _, _, err := h.Split("gpu:9", near, []float64{1, 1}); err == nil {
		t.Error("a location that the host has not")
	}
}

func deref(r *topo.Rate) topo.Rate {
	if r == nil {
		return -1
	}
	return *r
}

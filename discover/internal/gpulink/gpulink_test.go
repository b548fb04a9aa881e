package gpulink

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

func TestNVLinkRate(t *testing.T) {
	for capability, want := range map[string]topo.Rate{
		"6.0": 18e9, "6.1": 18e9, "7.0": 20e9, "7.5": 20e9, "8.0": 20e9, "8.6": 12e9, "8.9": 20e9,
		"9.0": 20.6e9, "10.0": 40.1e9, "10.3": 40.1e9, "12.1": 40.1e9,
		"5.2": 0, "": 0, "9": 0, "gfx942": 0, "9.x": 0, "-9.0": 0, "99999999999.0": 0,
	} {
		if got := NVLinkRate(capability); got != want {
			t.Errorf("capability %q: %d, want %d", capability, got, want)
		}
	}
}

package picture_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/picture"
)

// pciEnd is a function with a link: the speed and width that run, and the most
// that it can do; 0 is not told.
func pciEnd(speed, width, maxSpeed, maxWidth int) *topo.PCIDevice {
	told := func(n int) *int {
		if n == 0 {
			return nil
		}
		return &n
	}
	return &topo.PCIDevice{Role: topo.RoleEndpoint, Link: &topo.PCILink{
		SpeedMTs: told(speed), Width: told(width), MaxSpeedMTs: told(maxSpeed), MaxWidth: told(maxWidth)}}
}

// A link is degraded only where both ends say that they can do more.
func TestEnds(t *testing.T) {
	const gen1, gen4, gen5 = 2500, 16000, 32000
	invented, upstream := pciEnd(gen1, 1, gen5, 16), pciEnd(gen1, 1, gen5, 16)
	invented.Implausible, upstream.Role = true, topo.RoleUpstream
	full, maybe, unknown := func(n int) picture.Fit { return picture.Fit{Ability: picture.Full, Now: n, Could: n} }, picture.Maybe, picture.Fit{Ability: picture.Unknown}
	for _, tt := range []struct {
		name         string
		port, d      *topo.PCIDevice
		width, speed picture.Fit
		other, gpu   bool // degraded, as any device and as a GPU
	}{
		{"as good as both", pciEnd(gen5, 16, gen5, 16), pciEnd(gen5, 16, gen5, 16), full(16), full(gen5), false, false},
		{"the slot is the limit", pciEnd(gen4, 8, gen4, 8), pciEnd(gen4, 8, gen5, 16), full(8), full(gen4), false, false},
		{"the card is the limit", pciEnd(gen4, 8, gen5, 16), pciEnd(gen4, 8, gen4, 8), full(8), full(gen4), false, false},
		{"narrow", pciEnd(gen5, 8, gen5, 16), pciEnd(gen5, 8, gen5, 16), picture.Fit{Ability: picture.Less, Now: 8, Could: 16}, full(gen5), true, true},
		{"slow", pciEnd(gen1, 16, gen4, 16), pciEnd(gen1, 16, gen5, 16), full(16), picture.Fit{Ability: picture.Less, Now: gen1, Could: gen4}, true, false},
		{"the ends disagree", pciEnd(gen5, 8, gen5, 16), pciEnd(gen5, 16, gen5, 16), picture.Fit{Ability: picture.Less, Now: 8, Could: 16}, full(gen5), true, true},
		{"on a root bus", nil, pciEnd(gen1, 8, gen5, 16), picture.Fit{Ability: maybe, Now: 8, Could: 16}, picture.Fit{Ability: maybe, Now: gen1, Could: gen5}, false, false},
		{"on a root bus, at its maximum", nil, pciEnd(gen5, 16, gen5, 16), full(16), full(gen5), false, false},
		{"the port does not tell its maximum", pciEnd(gen1, 8, 0, 0), pciEnd(gen1, 8, gen5, 16), picture.Fit{Ability: maybe, Now: 8, Could: 16}, picture.Fit{Ability: maybe, Now: gen1, Could: gen5}, false, false},
		{"the port is invented", invented, pciEnd(gen5, 16, gen5, 16), full(16), full(gen5), false, false},
		{"the port speaks of another link", upstream, pciEnd(gen5, 16, gen5, 16), full(16), full(gen5), false, false},
		{"the device is invented", pciEnd(gen5, 16, gen5, 16), invented, full(16), full(gen5), false, false},
		{"widths only", pciEnd(0, 8, 0, 16), pciEnd(0, 8, 0, 16), picture.Fit{Ability: picture.Less, Now: 8, Could: 16}, unknown, true, true},
		{"no maxima", pciEnd(gen1, 8, 0, 0), pciEnd(gen1, 8, 0, 0), unknown, unknown, false, false},
		{"nothing told", nil, &topo.PCIDevice{}, unknown, unknown, false, false},
		{"no devices", nil, nil, unknown, unknown, false, false},
	} {
		ends := picture.EndsOf(tt.port, tt.d)
		if w, s := ends.Width(), ends.Speed(); w != tt.width || s != tt.speed {
			t.Errorf("%s: width %+v, speed %+v, want %+v, %+v", tt.name, w, s, tt.width, tt.speed)
		}
		if other, gpu := ends.Degraded(false), ends.Degraded(true); other != tt.other || gpu != tt.gpu {
			t.Errorf("%s: degraded %t, as a GPU %t, want %t, %t", tt.name, other, gpu, tt.other, tt.gpu)
		}
	}
}

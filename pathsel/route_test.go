package pathsel_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
)

// The slowest link of a route is what the port carries alone, for every location
// and port of every machine, and routes end with a wire where there is one.
func TestRoutes(t *testing.T) {
	for _, name := range fixtures.Names() {
		h := fixture(t, name)
		for _, loc := range h.Locations() {
			for _, p := range h.Ports() {
				steps, err := h.Route(loc, p.ID)
				if err != nil {
					t.Fatal(err)
				}
				c, err := h.Capacity(loc, []topo.ID{p.ID})
				if err != nil {
					t.Fatal(err)
				}
				slowest, ok := topo.Bottleneck(steps)
				if ok != (c.BytesPerSec != nil) || ok && *slowest.BytesPerSec != *c.BytesPerSec {
					t.Errorf("%s %s %s: slowest %+v, carries %v", name, loc, p.ID, slowest, c.BytesPerSec)
				}
				if n := len(steps); n > 0 && steps[n-1].Kind == topo.LinkPort && steps[n-1].Dir != topo.Down {
					t.Errorf("%s %s %s: leaves by %+v", name, loc, p.ID, steps[n-1])
				}
			}
		}
		if _, err := h.Route("gpu:99", h.Ports()[0].ID); err == nil {
			t.Errorf("%s: a route from gpu:99", name)
		}
		if _, err := h.Route(h.Locations()[0], "port:none/1"); err == nil {
			t.Errorf("%s: a route to a port that is not there", name)
		}
	}
}

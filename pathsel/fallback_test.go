package pathsel_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// A port that is taken as down changes the answer as one that is down does.
func TestDownIsAsDown(t *testing.T) {
	want := digest(t, fixture(t, "dgx-h100-port-down"))
	for _, id := range []topo.ID{"rdma:mlx5_6", "port:mlx5_6/1"} {
		got := digest(t, prepare(t, fixturetest.Topology(t, "dgx-h100"), pathsel.Options{Down: []topo.ID{id}}))
		got = strings.ReplaceAll(got, "taken-down: taken to be down", "port-down: port state DOWN, physical state Polling")
		if _, got, _ = strings.Cut(got, "\n"); got != want[strings.Index(want, "\n")+1:] {
			t.Errorf("%s is down:\n%s\nwant\n%s", id, got, want)
		}
	}
	if _, err := pathsel.New(fixturetest.Topology(t, "dgx-h100"), pathsel.Options{Down: []topo.ID{"rdma:mlx5_77"}}); err == nil || !strings.Contains(err.Error(), "mlx5_77") {
		t.Errorf("a port that the host does not have: %v", err)
	}
}

// With a physical function its virtual ones are down, and with an interface what TCP has of it.
func TestDownTakesAll(t *testing.T) {
	h := prepare(t, fixturetest.Topology(t, "sriov-pf-vf"), pathsel.Options{Down: []topo.ID{"rdma:mlx5_0"}})
	for _, p := range h.Ports() {
		down := slices.ContainsFunc(p.Reasons, func(r pathsel.Reason) bool { return r.Code == "taken-down" })
		if want := p.NIC == "rdma:mlx5_0" || p.PF == "port:mlx5_0/1"; down != want || want && *p.BytesPerSec != 0 {
			t.Errorf("%s: down %v, want %v", p.Name, down, want)
		}
	}
	h = prepare(t, fixturetest.Topology(t, "cpu-2eth"), pathsel.Options{Down: []topo.ID{"net:ens5f0"}})
	if a, err := h.Affinity("cpu:0", nil); err != nil || slices.ContainsFunc(a.Ranked, func(c pathsel.Candidate) bool { return c.Name == "ens5f0" }) {
		t.Errorf("ens5f0 is down: %+v, %v", a, err)
	}
}

// A GPU whose nearest port is out of use takes what the plan for all gives it, and says with whom it shares it.
func TestFallbackIsThePlans(t *testing.T) {
	for _, machine := range []string{"a10-2nic", "dgx-a100", "dgx-h100", "hgx-h100-8nic", "mi300x-8nic"} {
		top := fixturetest.Topology(t, machine)
		healthy, err := prepare(t, top, pathsel.Options{}).Plan(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, had := range healthy.Assignments {
			h := prepare(t, top, pathsel.Options{Down: []topo.ID{had.Ports[0].Port}})
			plan, err := h.Plan(nil)
			if err != nil {
				t.Fatal(err)
			}
			has, _ := plan.Of(had.Consumer)
			a, err := h.Affinity(had.Location, nil)
			if err != nil {
				t.Fatal(err)
			}
			first, next := &a.Ranked[0], &has.Ports[0]
			if first.Class.Compare(had.Ports[0].Class) == 0 {
				continue // another one as near is left
			}
			at := slices.IndexFunc(first.Notes, func(r pathsel.Reason) bool { return r.Code == pathsel.CodeFallback })
			if at < 0 {
				t.Errorf("%s %s without %s: no word of it: %+v", machine, had.Location, had.Ports[0].Name, first)
				continue
			}
			said := first.Notes[at].Text
			load, _ := plan.Load(next.Port)
			for _, want := range append(slices.Clone(load.Consumers), had.Ports[0].Name, next.Name) {
				if !strings.Contains(said, want) {
					t.Errorf("%s %s without %s: %s: want %s in it", machine, had.Location, had.Ports[0].Name, said, want)
				}
			}
			if first.Class == next.Class && first.Port != next.Port {
				t.Errorf("%s %s without %s: %s, the plan has %s", machine, had.Location, had.Ports[0].Name, first.Name, next.Name)
			}
		}
	}
}

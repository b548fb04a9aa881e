package pathsel_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/importtest"
)

// derived is a copy of a fixture with changes.
func derived(t *testing.T, name string, change func(*topo.Topology)) *topo.Topology {
	top := fixturetest.Topology(t, name)
	change(top)
	top.Derive()
	return top
}

// Only a virtual machine can hide what is near, and only one that shows neither switches nor NUMA nodes does.
func TestNearness(t *testing.T) {
	virtual := func(is string) func(*topo.Topology) {
		return func(top *topo.Topology) { top.Host.Virtual = is }
	}
	for _, c := range []struct {
		about, fixture string
		change         func(*topo.Topology)
		want           topo.Nearness
	}{
		{"a flat guest", "vm-flat", virtual("kvm"), topo.NearnessHidden},
		{"of another hypervisor", "vm-flat", virtual("unknown"), topo.NearnessHidden},
		{"without NUMA nodes", "vm-flat", func(top *topo.Topology) {
			for i := range top.PCIDevices {
				top.PCIDevices[i].NUMA = nil
			}
		}, topo.NearnessHidden},
		{"the same on bare metal", "vm-flat", virtual("none"), topo.NearnessShown},
		{"not known to be a guest", "vm-flat", virtual(""), topo.NearnessShown},
		{"without GPUs", "vm-flat", func(top *topo.Topology) { top.GPUs = nil }, topo.NearnessShown},
		{"with the layout of its host", "vm-flat", func(top *topo.Topology) { top.Host.Facts.Set("fingerprint", topo.SourceRemap, "host") }, topo.NearnessShown},
		{"NUMA nodes", "nd96asr-v4", virtual("hyperv"), topo.NearnessByNUMA},
		{"some switches", "bonds", virtual("kvm"), topo.NearnessShown},
		{"all switches", "hgx-h100-8nic", virtual("kvm"), topo.NearnessShown},
		{"bare metal without switches", "h100-nvl-8gpu-2nic", virtual("none"), topo.NearnessShown},
	} {
		if got := derived(t, c.fixture, c.change).Nearness(); got != c.want {
			t.Errorf("%s: %d, want %d", c.about, got, c.want)
		}
	}
}

// What is said to be near is near: plan and ranking name the same class for each GPU, and neither calls a port
// near whose class is unknown or hidden.
func TestNearIsSaidOfKnownClasses(t *testing.T) {
	hosts := importtest.HostsIfThere(t)
	for _, name := range fixtures.Names() {
		hosts[name] = fixturetest.Topology(t, name)
		hosts[name+" as a guest"] = derived(t, name, func(top *topo.Topology) { top.Host.Virtual = "kvm" })
	}
	for name, top := range hosts {
		checkNear(t, name, prepare(t, top, pathsel.Options{}))
	}
	names := fixtures.Names()
	rapid.Check(t, func(rt *rapid.T) { // devices that lost their places
		name := rapid.SampledFrom(names).Draw(rt, "fixture")
		guest := rapid.SampledFrom([]string{"", "none", "kvm"}).Draw(rt, "virtual")
		top := derived(t, name, func(top *topo.Topology) {
			top.Host.Virtual = guest
			for i := range top.PCIDevices {
				d := &top.PCIDevices[i]
				switch rapid.IntRange(0, 3).Draw(rt, "loses") {
				case 0:
					d.NUMA = nil
				case 1:
					d.Parent = ""
				}
			}
			for i := range top.HostBridges {
				if rapid.Bool().Draw(rt, "no node") {
					top.HostBridges[i].NUMA = nil
				}
			}
		})
		checkNear(rt, name, prepare(t, top, pathsel.Options{}))
	})
}

func checkNear(t interface{ Errorf(string, ...any) }, name string, h *pathsel.Host) {
	p, err := h.Plan(nil)
	if err != nil || len(p.Ports) == 0 {
		return
	}
	says := func(where string, c *pathsel.Candidate) {
		rest := strings.ReplaceAll(c.Reason.Text, "how near", "")
		if near := strings.Contains(rest, "near"); near && !c.Class.Known() {
			t.Errorf("%s, %s: %s: %q of a class that is not known", name, where, c.Name, c.Reason.Text)
		}
		if !c.Class.Known() && c.Reason.Code == pathsel.CodeBest && !strings.Contains(c.Reason.Text, "how near "+h.Unseen()) {
			t.Errorf("%s, %s: %s: %q does not say that its nearness is unknown", name, where, c.Name, c.Reason.Text)
		}
	}
	blind := false
	for i := range p.Assignments {
		a := &p.Assignments[i]
		r, err := h.Affinity(a.Location, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		nearest := slices.MinFunc(r.Ranked, func(x, y pathsel.Candidate) int { return x.Class.Compare(y.Class) }).Class
		for j := range r.Ranked {
			c := &r.Ranked[j]
			says("path "+a.Consumer, c)
			if strings.HasPrefix(c.Reason.Text, "nearest usable port") && c.Class != nearest {
				t.Errorf("%s, path %s: %s is %s, the nearest is %s", name, a.Consumer, c.Name, c.Class, nearest)
			}
			if h.Nearness() == topo.NearnessHidden && c.Class.Kind >= topo.ClassPIX {
				t.Errorf("%s, path %s: %s is %s, which is hidden", name, a.Consumer, c.Name, c.Class)
			}
		}
		for j := range a.Ports {
			c := &a.Ports[j]
			says("plan for "+a.Consumer, c)
			if strings.HasPrefix(c.Reason.Text, "nearest usable port") && c.Class != nearest {
				t.Errorf("%s, plan for %s: %s is %s, the nearest by path is %s", name, a.Consumer, c.Name, c.Class, nearest)
			}
		}
		blind = blind || len(a.Ports) > 0 && !a.Ports[0].Class.Known()
		if (h.Blind(a.Location) != nil) != (!nearest.Known() && len(r.Ranked) > 1) {
			t.Errorf("%s: %s: nearest class %q, yet %v", name, a.Consumer, nearest, h.Blind(a.Location))
		}
	}
	if (blind && len(p.Ports) > 1) != (p.Nearness != nil) {
		t.Errorf("%s: the plan says %v of ports whose class is unknown: %v", name, p.Nearness, blind)
	}
	if p.Nearness != nil && (p.Nearness.Code == pathsel.CodeNearHidden) != (h.Nearness() == topo.NearnessHidden) {
		t.Errorf("%s: %v", name, p.Nearness)
	}
}

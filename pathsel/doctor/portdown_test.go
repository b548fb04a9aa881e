package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// disturb takes facts about ports away, or changes them.
func disturb(rt *rapid.T, t *topo.Topology) {
	sometimes := func(what string) bool { return rapid.IntRange(0, 4).Draw(rt, what) == 0 }
	for i := range t.Ports {
		p := &t.Ports[i]
		if sometimes("state of " + string(p.ID)) {
			p.State = rapid.SampledFrom([]string{"", "ACTIVE", "DOWN", "INIT", "ARMED"}).Draw(rt, "state")
		}
		if sometimes("addresses of " + string(p.ID)) {
			p.GIDs, p.LID = nil, nil
		}
		if sometimes("rate of " + string(p.ID)) {
			p.BytesPerSec = rapid.SampledFrom([]*topo.Rate{nil, new(topo.Rate), new(topo.Rate(12.5e9)), new(topo.Rate(50e9))}).Draw(rt, "rate")
		}
		if sometimes("link layer of " + string(p.ID)) {
			p.LinkLayer = rapid.SampledFrom([]string{"", "InfiniBand", "Ethernet"}).Draw(rt, "layer")
		}
	}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		if sometimes("device file of " + r.Name) {
			r.Uverbs = rapid.SampledFrom([]string{"rw", "ro", "denied", "none", "unknown"}).Draw(rt, "file")
		}
		if sometimes("place of " + r.Name) {
			r.PCI, r.BDF, r.NUMA = "", nil, nil
		}
	}
	for i := range t.Netdevs {
		n := &t.Netdevs[i]
		if sometimes("interface " + n.Name) {
			n.State, n.Carrier = rapid.SampledFrom([]string{"", "up", "down", "unknown"}).Draw(rt, "operstate"), nil
		}
	}
	t.Derive()
}

// Whatever is known of the ports: what port-down says of a port and what the plan does with it do not contradict each
// other, and each fallback that it names is the plan's.
func TestPortDownAgreesWithThePlan(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		top := fixturetest.Topology(t, rapid.SampledFrom(fixtures.Names()).Draw(rt, "machine"))
		disturb(rt, top)
		h, err := pathsel.New(top, pathsel.Options{})
		if err != nil {
			rt.Fatal(err)
		}
		plan, err := h.Plan(nil)
		if err != nil {
			plan = &pathsel.Plan{}
		}
		used := map[topo.ID]bool{}
		for _, p := range plan.Ports {
			used[p.Port] = len(p.Consumers) > 0 && h.Transport() == pathsel.RDMA
		}
		c := run(t, top, "port-down").Checks[0]
		for _, m := range c.Missing {
			for _, id := range m.Subjects {
				if p, _ := h.Port(id); !p.Usable && slices.ContainsFunc(p.Reasons, func(r pathsel.Reason) bool { return r.Code == pathsel.CodePortDown }) && h.Transport() == pathsel.RDMA {
					rt.Errorf("the state of %s is not known, and the plan has it down: %v", id, p.Reasons)
				}
			}
		}
		for _, f := range c.Findings {
			for _, id := range f.Subjects {
				if used[id] {
					rt.Errorf("%s is down, and the plan uses it: %s", id, f.Text)
				}
				agrees(rt, top, h, plan, id, &f)
			}
		}
	})
}

// agrees holds a finding about a port that is down to the plan.
func agrees(rt *rapid.T, top *topo.Topology, h *pathsel.Host, plan *pathsel.Plan, down topo.ID, f *doctor.Finding) {
	port, _ := h.Port(down)
	falls := false
	for _, a := range plan.Assignments {
		was := topo.Class{}
		if r, ok := topo.NewIndex(top).Relation(a.Location.Node(), port.NIC); ok {
			was = r.Class
		}
		clause, ok := between(f.Text, a.Consumer+" falls back to ", ";")
		if !ok {
			continue
		}
		falls = true
		is := a.Ports[0]
		if !strings.HasPrefix(clause, is.Name+": "+is.Class.String()+" instead of "+was.String()) || was.Compare(is.Class) >= 0 {
			rt.Errorf("%s down: %q; the plan has %s %s, it was %s", down, clause, is.Name, is.Class, was)
		}
		if load, _ := plan.Load(is.Port); strings.Contains(clause, "shared with") != (len(load.Consumers) > 1) {
			rt.Errorf("%s down: %q; the plan gives %s to %v", down, clause, is.Name, load.Consumers)
		}
	}
	if falls && strings.Contains(f.Text, "another port as near is left") {
		rt.Errorf("%s down: %s", down, f.Text)
	}
}

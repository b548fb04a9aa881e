package judge_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/judge"
	"github.com/topoctl/topoctl/probe/plan"
	"github.com/topoctl/topoctl/probe/plan/plantest"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// An ordinary run tries the properties on fewer cases.
func TestMain(m *testing.M) { longtest.Main(m) }

// planned is a model of real plans: the pairs, links and rounds that a run would have.
func planned(p *plan.Plan) *model {
	pairs := p.Pairs
	m := &model{caps: map[probe.LinkKey]float64{}, late: map[probe.LinkKey]float64{}, ways: map[string][]probe.LinkKey{}, back: map[probe.LinkKey]probe.LinkKey{},
		fixed: map[string]float64{}, noise: 0.005, rng: rand.New(rand.NewPCG(1, 1))}
	m.r = &probe.Report{Schema: probe.Schema, Mode: pairs.Mode, Complete: true, Rules: probe.DefaultRules(), Plan: p.Summary(),
		Spec: probe.Spec{CI: 0.025, SizesBytes: []int64{1 << 20}}, Hosts: pairs.Hosts, Devices: pairs.Devices, Links: pairs.Links}
	for _, l := range pairs.Links {
		m.caps[l.Key] = 1e12 // what nobody knows limits nothing here
		if l.BytesPerSec != nil {
			m.caps[l.Key] = float64(*l.BytesPerSec)
		}
	}
	at := map[string]int{}
	for _, pair := range pairs.Pairs {
		at[pair.ID] = len(m.r.Results)
		m.add(pair)
	}
	for n := range p.Rounds {
		round := p.Round(n)
		for _, a := range round {
			m.r.Results[at[a.ID]].Round = n + 1
		}
	}
	return m
}

// crossed are the faults of links and devices that planned pairs cross, both directions of
// links and each alone.
func (m *model) crossed() []fault {
	var out []fault
	links := map[string][]probe.LinkKey{}
	for _, l := range m.r.Links {
		out = append(out, fault{"direction", string(l.Key), []probe.LinkKey{l.Key}})
		id := l.Host + " " + string(l.Link)
		if links[id] = append(links[id], l.Key); len(links[id]) == 2 {
			out = append(out, fault{"link", string(l.Key), links[id]})
		}
	}
	for _, d := range m.r.Devices {
		f := fault{kind: d.Kind, key: d.Key}
		for _, l := range m.r.Links {
			if slices.Contains(l.On, d.Key) {
				f.links = append(f.links, l.Key)
			}
		}
		out = append(out, f)
	}
	return out
}

// mostFaults are planted in one machine, spread over all that there are.
const mostFaults = 25

// Every single fault in plans of real machines is among the suspects of the one blame, and
// where all is well nobody is blamed, nor where pairs share links on purpose.
func TestMachines(t *testing.T) {
	for _, tt := range []struct {
		name     string
		hosts    int // 0: local
		schedule plan.Schedule
	}{{"dgx-h100", 2, ""}, {"dgx-h100", 0, ""}, {"gb200-tray", 3, ""}, {"lab-softrdma", 3, ""}, {"a10-2nic", 8, ""},
		{"dgx-h100", 0, plan.ByEndpoint}, {"vm-flat", 2, plan.ByEndpoint}} {
		t.Run(fmt.Sprintf("%s/%d/%s", tt.name, tt.hosts, tt.schedule), func(t *testing.T) {
			top := fixturetest.Topology(t, tt.name)
			var pairs *plan.Pairs
			var err error
			if tt.hosts == 0 {
				pairs, err = plan.Local(top, plan.LocalOptions{})
			} else {
				pairs, err = plan.Fabric(plantest.Hosts(top, tt.hosts), plan.FabricOptions{Fabric: plantest.Rails(t, top)})
			}
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Make(pairs, plan.Options{Schedule: tt.schedule})
			if err != nil {
				t.Fatal(err)
			}
			blamed, suspects := 0, 0
			faults := planned(p).crossed()
			most := mostFaults
			if !longtest.On() {
				most /= 3
			}
			step := len(faults)/most + 1 // all of them take a minute
			for i := -1; i < len(faults); i += step {
				m := planned(p)
				if i >= 0 {
					m.plant(faults[i], 0.5)
				}
				m.measure()
				judge.Verdicts(m.r)
				m.retest(t)
				judge.Judge(m.r)
				switch {
				case i < 0 && (len(m.r.Blame) > 0 || m.r.Summary.Warn+m.r.Summary.Fail > 0):
					t.Fatalf("all is well: %+v\n%+v", m.r.Summary, m.r.Blame)
				case len(m.r.Blame) > 1 || m.r.Summary.Fail > 0 && len(m.r.Blame) == 0 || len(m.r.Blame) == 1 && !named(m.r.Blame, faults[i]):
					t.Errorf("planted %s %s\nsummary %+v\nblame %+v", faults[i].kind, faults[i].key, m.r.Summary, m.r.Blame)
				case len(m.r.Blame) == 1:
					blamed++
					suspects += len(m.r.Blame[0].Suspects)
				}
			}
			t.Logf("%d pairs, %d faults, %d blamed, %.1f suspects on average", len(pairs.Pairs), len(faults), blamed, float64(suspects)/math.Max(1, float64(blamed)))
		})
	}
}

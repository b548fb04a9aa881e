package judge_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/judge"
)

const gig = topo.GBPerSec

// model is a fabric whose rates are exact: links with capacities, pairs of a round that share
// them by max-min fairness, and faults that lower capacities.
type model struct {
	r     *probe.Report
	caps  map[probe.LinkKey]float64       // bytes per second, with faults
	late  map[probe.LinkKey]float64       // ns that a link adds
	noise float64                         // the relative deviation of one sample
	back  map[probe.LinkKey]probe.LinkKey // the other direction
	ways  map[string][]probe.LinkKey      // by pair: how the bytes go, whatever the report says
	fixed map[string]float64              // by pair: what it gives, whatever the links say
	rng   *rand.Rand

	idleAgain map[string]bool // hosts that are not busy any more when pairs are measured again
}

// shape says what the fabric is like.
type shape struct {
	hosts, nics int
	rails       bool    // a leaf for each NIC index, else one for each two hosts
	spines      int     // 0: no uplinks, leaves know each other
	uplink      float64 // in units of a port
	cross       bool    // pairs of all ports, else of equal index
	basis       topo.Basis
}

func newModel(s shape, seed uint64) *model {
	s.basis = cmp.Or(s.basis, topo.BasisRead)
	s.uplink = cmp.Or(s.uplink, 1)
	m := &model{caps: map[probe.LinkKey]float64{}, late: map[probe.LinkKey]float64{}, ways: map[string][]probe.LinkKey{}, back: map[probe.LinkKey]probe.LinkKey{}, fixed: map[string]float64{}, idleAgain: map[string]bool{}, noise: 0.005, rng: rand.New(rand.NewPCG(seed, 7))}
	m.r = &probe.Report{Schema: probe.Schema, Mode: "fabric", Complete: true, Rules: probe.DefaultRules(),
		Spec: probe.Spec{CI: 0.025, MinSamples: 5, MaxSamples: 30, SizesBytes: []int64{1 << 20}, LatencySamples: 100},
		Plan: probe.Plan{Schedule: "link"}}
	leafOf := func(h, n int) int {
		if s.rails {
			return n
		}
		return h / 2
	}
	m.fabric(s, leafOf)
	for h := range s.hosts {
		host := fmt.Sprintf("n%d", h+1)
		m.r.Hosts = append(m.r.Hosts, probe.Host{Name: host})
		m.device(host, "host", host)
		for n := range s.nics {
			name := fmt.Sprintf("mlx5_%d", n)
			nic := host + " rdma:" + name
			m.device(nic, "nic", name+" of "+host)
			m.link(host, topo.LinkID("pcie:"+name), topo.LinkPCIe, "PCIe link of "+name, []string{nic, host}, 63*gig, s.basis)
			m.link(host, topo.LinkID("port:"+name+"/1"), topo.LinkPort, "wire of "+name, []string{nic, host, fmt.Sprintf("leaf:l%d", leafOf(h, n)+1)}, 50*gig, s.basis)
		}
	}
	for a := range s.hosts * s.nics {
		for b := range s.hosts * s.nics {
			if a/s.nics == b/s.nics || !s.cross && a%s.nics != b%s.nics {
				continue
			}
			m.pair(s, leafOf, a, b)
		}
	}
	m.schedule()
	return m
}

func (m *model) fabric(s shape, leafOf func(h, n int) int) {
	leaves := leafOf(s.hosts-1, s.nics-1) + 1
	for l := range leaves {
		m.device(fmt.Sprintf("leaf:l%d", l+1), "leaf", fmt.Sprintf("leaf l%d", l+1))
	}
	for sp := range s.spines {
		spine := fmt.Sprintf("spine:s%d", sp+1)
		m.device(spine, "spine", fmt.Sprintf("spine s%d", sp+1))
		for l := range leaves {
			leaf := fmt.Sprintf("leaf:l%d", l+1)
			m.link("", topo.LinkID(leaf+"/"+spine), probe.LinkUplink, fmt.Sprintf("uplink l%d/s%d", l+1, sp+1), []string{leaf, spine}, topo.Rate(s.uplink*50)*gig, s.basis)
		}
	}
}

func (m *model) device(key, kind, name string) {
	m.r.Devices = append(m.r.Devices, probe.Device{Key: key, Kind: kind, Name: name})
}

func (m *model) link(host string, id topo.LinkID, kind topo.LinkKind, name string, on []string, rate topo.Rate, basis topo.Basis) {
	for _, direction := range []string{"down", "up"} {
		key := probe.Key(host, id, direction)
		m.r.Links = append(m.r.Links, probe.Link{Key: key, Host: host, Link: id, Kind: kind, Direction: direction, Name: name, On: on, BytesPerSec: &rate, Basis: basis})
		m.caps[key] = float64(rate)
	}
	down, up := probe.Key(host, id, "down"), probe.Key(host, id, "up")
	m.back[down], m.back[up] = up, down
}

func (m *model) pair(s shape, leafOf func(h, n int) int, a, b int) {
	end := func(i int) probe.End {
		name := fmt.Sprintf("mlx5_%d", i%s.nics)
		return probe.End{Host: fmt.Sprintf("n%d", i/s.nics+1), Node: topo.ID("rdma:" + name), Name: name}
	}
	from, to := end(a), end(b)
	la, lb := leafOf(a/s.nics, a%s.nics)+1, leafOf(b/s.nics, b%s.nics)+1
	path := []probe.LinkKey{probe.Key(from.Host, topo.LinkID("pcie:"+from.Name), "down"), probe.Key(from.Host, topo.LinkID("port:"+from.Name+"/1"), "down")}
	if la != lb && s.spines > 0 {
		spine := fmt.Sprintf("spine:s%d", (a+b)%s.spines+1)
		path = append(path, probe.Key("", topo.LinkID(fmt.Sprintf("leaf:l%d/%s", la, spine)), "up"), probe.Key("", topo.LinkID(fmt.Sprintf("leaf:l%d/%s", lb, spine)), "down"))
	}
	path = append(path, probe.Key(to.Host, topo.LinkID("port:"+to.Name+"/1"), "up"), probe.Key(to.Host, topo.LinkID("pcie:"+to.Name), "up"))
	rate := 50 * gig
	group := "rail"
	if la != lb {
		group = "cross"
	}
	p := probe.Pair{ID: probe.PairID(probe.Port, from, to, probe.RDMA, ""), Kind: probe.Port, Transport: probe.RDMA, From: from, To: to, Path: path, PathKnown: true,
		Group: group, Expected: probe.Expected{BytesPerSec: &rate, Basis: s.basis, Limit: path[1]}}
	m.add(p)
}

func (m *model) add(p probe.Pair) {
	m.ways[p.ID] = p.Path
	m.r.Results = append(m.r.Results, probe.Result{Pair: p})
}

// schedule lays out rounds so that no link has more than it carries: first fit.
func (m *model) schedule() {
	slices.SortFunc(m.r.Results, func(a, b probe.Result) int { return cmp.Compare(a.ID, b.ID) })
	var left []map[probe.LinkKey]float64
	for i := range m.r.Results {
		res := &m.r.Results[i]
		for n := 0; ; n++ {
			if n == len(left) {
				left = append(left, map[probe.LinkKey]float64{})
			}
			fits := true
			for _, k := range res.Path {
				fits = fits && left[n][k]+float64(*res.Expected.BytesPerSec) <= m.caps[k]
			}
			if !fits {
				continue
			}
			for _, k := range res.Path {
				left[n][k] += float64(*res.Expected.BytesPerSec)
			}
			res.Round = n + 1
			break
		}
	}
	m.r.Plan.Rounds = len(left)
}

// measure fills in what all rounds give.
func (m *model) measure() {
	rounds := map[int][]int{}
	for i := range m.r.Results {
		rounds[m.r.Results[i].Round] = append(rounds[m.r.Results[i].Round], i)
	}
	for n := range m.r.Plan.Rounds {
		members := rounds[n+1]
		for j, rate := range m.fair(members) {
			m.r.Results[members[j]].Measurement = m.sample(&m.r.Results[members[j]].Pair, rate)
		}
	}
}

func (m *model) sample(p *probe.Pair, rate float64) probe.Measurement {
	if p.Kind == probe.Memory && p.Variant == probe.VariantCopy {
		rate *= 2 // loads and stores, each of which crosses a link once
	}
	if v, ok := m.fixed[p.ID]; ok {
		rate = v
	}
	if limit := float64(m.r.Spec.RateLimit); limit > 0 {
		rate = min(rate, limit)
	}
	samples := make([]int64, 6)
	for i := range samples {
		samples[i] = int64(rate * (1 + m.noise*m.rng.NormFloat64()))
	}
	more := rand.New(rand.NewPCG(uint64(samples[0]), 8)) // of its own: the other pairs stay as they are
	stopped, enough := m.r.Spec.Enough(samples)
	for !enough {
		samples = append(samples, int64(rate*(1+m.noise*more.NormFloat64())))
		stopped, enough = m.r.Spec.Enough(samples)
	}
	latency := 2000.0
	for _, k := range m.ways[p.ID] {
		latency += 100 + m.late[k] + m.late[m.back[k]] // there and back
	}
	times := make([]int64, 100)
	for i := range times {
		times[i] = int64(latency * (1 + 0.1*m.rng.Float64()))
	}
	return probe.Measurement{Bandwidth: []probe.Bandwidth{probe.NewBandwidth(1<<20, samples, 1<<30, 1e8, stopped)},
		Latency: &probe.Latency{SizeBytes: 8, RTT: probe.NewPercentiles(times)}}
}

// fair gives the max-min fair rates of pairs at the same time.
func (m *model) fair(members []int) []float64 {
	rates, fixed := make([]float64, len(members)), make([]bool, len(members))
	left, users := map[probe.LinkKey]float64{}, map[probe.LinkKey]int{}
	for _, i := range members {
		for _, k := range m.ways[m.r.Results[i].ID] {
			left[k] = m.caps[k]
			users[k]++
		}
	}
	for range members {
		best, share := -1, 1e12
		for j, i := range members {
			if fixed[j] {
				continue
			}
			mine := 1e12 // without a link nothing limits it
			for _, k := range m.ways[m.r.Results[i].ID] {
				if s := left[k] / float64(users[k]); s < mine {
					mine = s
				}
			}
			if best < 0 || mine < share {
				best, share = j, mine
			}
		}
		fixed[best], rates[best] = true, share
		for _, k := range m.ways[m.r.Results[members[best]].ID] {
			left[k] -= share
			users[k]--
		}
	}
	return rates
}

// retest does what the judge asks for, as a runner would, and counts it.
func (m *model) retest(t interface{ Fatal(...any) }) (count int) {
	for range 100 {
		again := judge.Retests(m.r)
		if len(again) == 0 {
			return count
		}
		for _, p := range again {
			count++
			i := slices.IndexFunc(m.r.Results, func(r probe.Result) bool { return r.ID == p.ID })
			sample := m.sample(&p, m.fair([]int{i})[0])
			for _, l := range m.r.Results[i].Processors {
				if !m.idleAgain[l.Host] {
					sample.Processors = append(sample.Processors, l)
				}
			}
			judge.AddRetest(m.r, p.ID, sample)
		}
		judge.Verdicts(m.r)
	}
	t.Fatal("retests never end")
	return
}

// fault lowers the capacity of the links of one part.
type fault struct {
	kind, key string
	links     []probe.LinkKey
}

// faults lists everything in the model that can be at fault.
func (m *model) faults() []fault {
	var out []fault
	for i, l := range m.r.Links {
		out = append(out, fault{"direction", string(l.Key), []probe.LinkKey{l.Key}})
		if i%2 == 0 {
			out = append(out, fault{"link", string(l.Key), []probe.LinkKey{l.Key, m.r.Links[i+1].Key}})
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

func (m *model) plant(f fault, part float64) {
	for _, k := range f.links {
		m.caps[k] *= part
	}
}

// named says whether a blame names a fault: the part itself, or for a link one of its directions.
func named(blames []probe.Blame, f fault) bool {
	for _, b := range blames {
		for _, s := range b.Suspects {
			if s.Kind == f.kind && s.Key == f.key {
				return true
			}
			if f.kind == "link" && s.Kind == "direction" && slices.Contains(f.links, probe.LinkKey(s.Key)) {
				return true
			}
			if f.kind == "link" && s.Kind == "link" && slices.Contains(f.links, probe.LinkKey(s.Key)) {
				return true
			}
		}
	}
	return false
}

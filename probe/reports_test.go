package probe_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/measure/judge"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// An ordinary run tries the properties on fewer cases.
func TestMain(m *testing.M) { longtest.Main(m) }

// The reports of this file are made up, of fixture machines and with figures as they
// are measured: testdata holds them for the tests of all that reads reports.

// maker makes a report.
type maker struct {
	tb  testing.TB
	r   *probe.Report
	rnd *rand.Rand
	ips int
}

func newMaker(tb testing.TB, mode string) *maker {
	return &maker{tb: tb, rnd: rand.New(rand.NewPCG(7, 11)), r: &probe.Report{Schema: probe.Schema, Tool: topo.Tool{Name: "topoctl", Version: "1.0.0"}, Mode: mode,
		StartedAt: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), DurationNS: 45_200_000_000, Complete: true, Rules: probe.DefaultRules(),
		Spec: probe.Spec{Warmup: 200 * time.Millisecond, SampleTime: 200 * time.Millisecond, MinSamples: 5, MaxSamples: 30, CI: 0.025,
			SizesBytes: []int64{65536, 4 << 20}, LatencySamples: 2000, PairTime: 10 * time.Second},
		Plan: probe.Plan{Schedule: "link"}}}
}

// host adds a fixture as a host.
func (m *maker) host(name, fixture string) *topo.Topology {
	m.tb.Helper()
	t := fixturetest.Topology(m.tb, fixture)
	h := probe.Host{Name: name, Fingerprint: t.Fingerprint()}
	if m.r.Mode == "fabric" {
		m.ips++
		h.Address = fmt.Sprintf("10.0.0.%d:7470", m.ips)
	}
	m.r.Hosts = append(m.r.Hosts, h)
	m.device(name, "host", name)
	return t
}

func (m *maker) device(key, kind, name string) string {
	if !slices.ContainsFunc(m.r.Devices, func(d probe.Device) bool { return d.Key == key }) {
		m.r.Devices = append(m.r.Devices, probe.Device{Key: key, Kind: kind, Name: name})
	}
	return key
}

// link adds a directed link of a host and gives its key.
func (m *maker) link(t *topo.Topology, host string, id topo.LinkID, direction, name string, on ...string) probe.LinkKey {
	key := probe.Key(host, id, direction)
	if slices.ContainsFunc(m.r.Links, func(l probe.Link) bool { return l.Key == key }) {
		return key
	}
	l := probe.Link{Key: key, Host: host, Link: id, Direction: direction, Name: name, On: append(on, host), Basis: topo.BasisUnknown}
	for i := range t.Links {
		if x := &t.Links[i]; x.ID == id {
			l.Kind, l.BytesPerSec, l.Basis = x.Kind, x.BytesPerSec, x.Basis
		}
	}
	if l.Kind == "" {
		m.tb.Fatalf("no link %q", id)
	}
	m.r.Links = append(m.r.Links, l)
	return key
}

// nic is a port with its way to memory.
type nic struct {
	host string
	t    *topo.Topology
	rdma *topo.RDMADevice
}

// nics are the RDMA devices of a host whose port has at least this rate.
func nics(host string, t *topo.Topology, least topo.Rate) []nic {
	var out []nic
	for i := range t.RDMADevices {
		d := &t.RDMADevices[i]
		for k := range t.Ports {
			if p := &t.Ports[k]; p.RDMA == d.ID && p.BytesPerSec != nil && *p.BytesPerSec >= least && p.State == "ACTIVE" {
				out = append(out, nic{host, t, d})
			}
		}
	}
	return out
}

func (m *maker) end(n nic) probe.End {
	loc := pathsel.Location("cpu:0")
	if n.rdma.NUMA != nil {
		loc = pathsel.Location(fmt.Sprintf("cpu:%d", *n.rdma.NUMA))
	}
	return probe.End{Host: n.host, Node: topo.PortID(n.rdma.Name, 1), Name: n.rdma.Name, Location: loc, Class: topo.Class{Kind: topo.ClassPHB}}
}

// port is a pair of ports by RDMA, sending is from a to b.
func (m *maker) port(a, b nic) probe.Pair {
	from, to := m.end(a), m.end(b)
	devA := m.device(a.host+" "+string(a.rdma.ID), "nic", a.host+"/"+a.rdma.Name)
	devB := m.device(b.host+" "+string(b.rdma.ID), "nic", b.host+"/"+b.rdma.Name)
	p := probe.Pair{Kind: probe.Port, Transport: probe.RDMA, From: from, To: to, PathKnown: true, Group: "port rdma PHB/PHB 50.0 GB/s",
		ID: probe.PairID(probe.Port, from, to, probe.RDMA, "")}
	p.Path = []probe.LinkKey{
		m.link(a.t, a.host, topo.PCIeLinkID(*a.rdma.BDF), "down", "PCIe link of "+a.host+"/"+a.rdma.Name, devA),
		m.link(a.t, a.host, topo.LinkID(topo.PortID(a.rdma.Name, 1)), "down", "wire of "+a.host+"/"+a.rdma.Name, devA),
		m.link(b.t, b.host, topo.LinkID(topo.PortID(b.rdma.Name, 1)), "up", "wire of "+b.host+"/"+b.rdma.Name, devB),
		m.link(b.t, b.host, topo.PCIeLinkID(*b.rdma.BDF), "up", "PCIe link of "+b.host+"/"+b.rdma.Name, devB),
	}
	m.expect(&p)
	return p
}

// expect finds the smallest known rate on the way.
func (m *maker) expect(p *probe.Pair) {
	p.Expected = probe.Expected{Basis: topo.BasisUnknown, Why: "no link on the path has a known rate"}
	for _, k := range p.Path {
		l := &m.r.Links[slices.IndexFunc(m.r.Links, func(l probe.Link) bool { return l.Key == k })]
		if l.BytesPerSec != nil && (p.Expected.BytesPerSec == nil || *l.BytesPerSec < *p.Expected.BytesPerSec) {
			r := *l.BytesPerSec
			p.Expected = probe.Expected{BytesPerSec: &r, Basis: l.Basis, Limit: k, Why: fmt.Sprintf("%s: %.1f GB/s, %s", l.Name, float64(r)/1e9, l.Basis)}
		}
	}
}

// memory is a pair of NUMA nodes.
func (m *maker) memory(t *topo.Topology, host string, a, b int, variant string) probe.Pair {
	end := func(n int) probe.End {
		loc := fmt.Sprintf("cpu:%d", n)
		return probe.End{Host: host, Node: topo.NUMAID(n), Name: loc, Location: pathsel.Location(loc), Class: topo.Class{Kind: topo.ClassSelf}}
	}
	p := probe.Pair{Kind: probe.Memory, Transport: probe.CPU, Variant: variant, From: end(a), To: end(b), PathKnown: true, Path: []probe.LinkKey{}}
	p.ID = probe.PairID(p.Kind, p.From, p.To, p.Transport, p.Variant)
	p.Group = "memory cpu " + variant + " local"
	if a != b {
		p.Group = "memory cpu " + variant + " remote"
		d := m.device(fmt.Sprintf("%s numa:%d", host, a), "numa", fmt.Sprintf("cpu:%d", a))
		p.Path = append(p.Path, m.link(t, host, topo.LinkID(fmt.Sprintf("smp:%d/%d", min(a, b), max(a, b))), "both", fmt.Sprintf("socket link cpu:%d - cpu:%d", min(a, b), max(a, b)), d))
	}
	m.expect(&p)
	return p
}

// add measures a pair: n samples about mean, and latencies from half, if not 0.
func (m *maker) add(p probe.Pair, round int, mean float64, n int, half int64) *probe.Result {
	x := probe.Result{Pair: p, Round: round, Verdict: probe.Pass, Reasons: []probe.Reason{}}
	x.Binding = probe.Binding{CPUs: "0-7", Threads: 1}
	sample := func(mean float64) int64 { return int64(mean * (1 + m.rnd.NormFloat64()*0.004)) }
	for _, size := range m.r.Spec.SizesBytes {
		at := mean
		if size < 1<<20 {
			at *= 0.83
		}
		var s []int64
		for range n {
			s = append(s, sample(at))
		}
		x.Bandwidth = append(x.Bandwidth, judge.Bandwidth(size, s, int64(float64(n)*at*0.2), int64(n)*200_000_000, probe.StoppedCI))
	}
	if half > 0 {
		var rtt, one []int64
		for range m.r.Spec.LatencySamples {
			v := half + int64(m.rnd.ExpFloat64()*float64(half)/12)
			rtt, one = append(rtt, 2*v), append(one, v)
		}
		x.Latency = &probe.Latency{SizeBytes: 8, RTT: judge.Percentiles(rtt), OneWay: judge.Percentiles(one)}
		if p.Kind == probe.Memory {
			x.Latency = &probe.Latency{SizeBytes: 8, Load: judge.Percentiles(one)}
		}
	}
	if e := p.Expected.BytesPerSec; e != nil && n > 0 {
		v := mean / float64(*e)
		x.Efficiency = &v
	}
	m.r.Results = append(m.r.Results, x)
	return &m.r.Results[len(m.r.Results)-1]
}

// done fills in what follows from the results.
func (m *maker) done() *probe.Report {
	best := map[string]int64{}
	for i := range m.r.Results {
		x := &m.r.Results[i]
		if b := x.Judged(); b != nil {
			best[x.Group] = max(best[x.Group], b.MeanBytesPerSec)
		}
	}
	for i := range m.r.Results {
		x := &m.r.Results[i]
		if b := x.Judged(); b != nil {
			v := float64(b.MeanBytesPerSec) / float64(best[x.Group])
			x.OfBest = &v
		}
		m.r.Plan.Rounds = max(m.r.Plan.Rounds, x.Round)
	}
	m.r.Plan.Pairs, m.r.Plan.LowerBound = max(m.r.Plan.Pairs, len(m.r.Results)), m.r.Plan.Rounds
	m.r.Plan.TimeNS, m.r.Plan.Bytes = 44_000_000_000, 7_000_000_000_000
	m.r.Summary = probe.Count(m.r.Results)
	return m.r
}

func fail(x *probe.Result, code, format string, args ...any) {
	x.Verdict = probe.Fail
	x.Reasons = append(x.Reasons, probe.Reason{Code: code, Text: fmt.Sprintf(format, args...)})
}

// dgxPair are two healthy hosts with eight rails each.
func dgxPair(tb testing.TB) *probe.Report {
	m := newMaker(tb, "fabric")
	a, b := nics("n1", m.host("n1", "dgx-h100"), 50*topo.GBPerSec), nics("n2", m.host("n2", "dgx-h100"), 50*topo.GBPerSec)
	for i := range a[:8] {
		for k := range b[:8] {
			x := m.add(m.port(a[i], b[k]), 1+(i+k)%8, 48.9e9+float64(m.rnd.IntN(4))*1e8, 5+m.rnd.IntN(3), 1050+int64(m.rnd.IntN(90)))
			x.Measurement.Links = []probe.LinkState{{Link: x.Path[1], State: "ACTIVE"}, {Link: x.Path[0], State: "gen5 x16"}}
		}
	}
	return m.done()
}

// badCable are eight hosts; what the wire of n3 sends and receives is slow.
func badCable(tb testing.TB) *probe.Report {
	m := newMaker(tb, "fabric")
	var all []nic
	for i := 1; i <= 8; i++ {
		name := fmt.Sprintf("n%d", i)
		all = append(all, nics(name, m.host(name, "dgx-h100"), 50*topo.GBPerSec)[0])
	}
	var bad []string
	for i := range all {
		for k := range all {
			if i == k {
				continue
			}
			p := m.port(all[i], all[k])
			mean := 48.8e9 + float64(m.rnd.IntN(5))*1e8
			if i == 2 || k == 2 {
				mean = 12.2e9
			}
			x := m.add(p, 1+(i+k)%7, mean, 5+m.rnd.IntN(4), 1800+int64(m.rnd.IntN(200)))
			if i == 2 || k == 2 {
				bad = append(bad, x.ID)
				fail(x, "below-expected", "24 %% of 50.0 GB/s, which is below 80 %%")
				alone, half := int64(12.25e9), int64(1810)
				x.Retests = []probe.Retest{{How: probe.RetestAlone, Pair: x.ID, BytesPerSec: &alone, LatencyNS: &half, Confirms: true}}
				x.Measurement.Links = []probe.LinkState{{Link: probe.Key("n3", "port:"+topo.LinkID(all[2].rdma.Name)+"/1", map[bool]string{true: "down", false: "up"}[i == 2]),
					State: "ACTIVE", Counters: map[string]int64{"symbol_error": 412, "link_error_recovery": 3}}}
			}
		}
	}
	wire := topo.LinkID(topo.PortID(all[2].rdma.Name, 1))
	seen := topo.Rate(12_250_000_000)
	m.r.Blame = []probe.Blame{{Suspects: []probe.Suspect{{Kind: "link", Key: string(probe.Key("n3", wire, "down")), Name: "wire of n3/" + all[2].rdma.Name,
		Links: []probe.LinkKey{probe.Key("n3", wire, "down"), probe.Key("n3", wire, "up")}, BytesPerSec: &seen}}, Pairs: bad,
		Evidence: []string{"crossed by 14 of 14 bad pairs and by none of 42 good ones", "symbol_error of n3/" + all[2].rdma.Name + " rose by 412 in a bad pair", "loopback on n3 carries 49.0 GB/s: neither the NIC nor its PCIe link"}}}
	return m.done()
}

// localCPU is a host without GPU and RDMA.
func localCPU(tb testing.TB) *probe.Report {
	m := newMaker(tb, "local")
	t := m.host("node17", "cpu-2eth")
	m.r.DurationNS = 12_300_000_000
	round := 0
	for _, variant := range []string{probe.VariantRead, probe.VariantCopy} {
		for a := range 2 {
			for b := range 2 {
				round++
				mean, half := 92.4e9, int64(96)
				if a != b {
					mean, half = 9.4e9, 171
				}
				x := m.add(m.memory(t, "node17", a, b, variant), round, mean, 6, half)
				x.Binding = probe.Binding{CPUs: fmt.Sprintf("%d-%d", a*16, a*16+15), Threads: 16, FromMemory: &a, ToMemory: &b}
				switch {
				case a == b:
					x.Reasons = append(x.Reasons, probe.Reason{Code: "peers", Text: "as fast as its peers; nothing is expected"})
				case *x.Efficiency < 0.9:
					x.Verdict = probe.Warn
					x.Reasons = append(x.Reasons, probe.Reason{Code: "below-expected", Text: "below 90 % of a constant"})
				}
			}
		}
	}
	gpu := func(a, b string) {
		from, to := probe.End{Host: "node17", Node: topo.ID(a), Name: a}, probe.End{Host: "node17", Node: topo.ID(b), Name: b}
		p := probe.Pair{Kind: probe.GPU, Transport: probe.CUDA, From: from, To: to, ID: probe.PairID(probe.GPU, from, to, probe.CUDA, ""), Group: "gpu cuda",
			Waived: "no CUDA driver: libcuda.so.1 was not found", Expected: probe.Expected{Basis: topo.BasisUnknown, Why: "no GPU"}}
		m.add(p, 0, 0, 0, 0).Verdict = probe.Waived
		m.r.Results[len(m.r.Results)-1].Bandwidth = nil
	}
	gpu("cpu:0", "gpu:0")
	gpu("gpu:0", "cpu:0")
	m.r.Notes = []string{"memory: 2.0 GiB on each node, which is more than the caches hold"}
	return m.done()
}

// allWaived is a host on which nothing could be measured.
func allWaived(tb testing.TB) *probe.Report {
	m := newMaker(tb, "local")
	t := m.host("node17", "cpu-2eth")
	m.r.DurationNS = 4_000_000
	for a := range 2 {
		for b := range 2 {
			p := m.memory(t, "node17", a, b, probe.VariantRead)
			p.Waived = "memory cannot be bound to NUMA nodes: operation not permitted"
			x := m.add(p, 0, 0, 0, 0)
			x.Verdict, x.Bandwidth, x.Efficiency = probe.Waived, nil, nil
		}
	}
	return m.done()
}

// interrupted is a run that was stopped in its middle.
func interrupted(tb testing.TB) *probe.Report {
	m := newMaker(tb, "local")
	t := m.host("node17", "epyc-nps4")
	m.r.Complete, m.r.DurationNS = false, 6_100_000_000
	round := 0
	for a := range 4 {
		for b := range 4 {
			round++
			p := m.memory(t, "node17", a, b, probe.VariantRead)
			switch {
			case round < 8:
				m.add(p, round, 48.1e9-float64(a^b)*4e9, 6, 90+int64(a^b)*20)
			case round == 8:
				x := m.add(p, round, 41e9, 2, 0)
				x.Verdict, x.Error = probe.Inconclusive, "interrupted"
				for i := range x.Bandwidth {
					x.Bandwidth[i].Stopped = probe.StoppedInterrupted
				}
			default:
				x := m.add(p, 0, 0, 0, 0)
				x.Verdict, x.Bandwidth = probe.Inconclusive, nil
				x.Reasons = []probe.Reason{{Code: "not-measured", Text: "the run ended before its turn"}}
			}
		}
	}
	m.r.Results[2].Verdict, m.r.Results[2].Error = probe.Error, "memory of cpu:2: out of memory"
	return m.done()
}

// reports are all of them by the name of their file.
var reports = map[string]func(testing.TB) *probe.Report{
	"dgx-pair": dgxPair, "bad-cable": badCable, "local-cpu": localCPU, "all-waived": allWaived, "interrupted": interrupted,
}

// reportNames are sorted.
func reportNames() []string {
	var out []string
	for name := range reports {
		out = append(out, name)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}

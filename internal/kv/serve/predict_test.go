package serve

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/sim"
	"github.com/topoctl/topoctl/pathsel"
)

const second = 1_000_000_000

// a10 are five prompts of 8000 tokens, one after the other: 459 MB of cache each, from the
// memory of a socket to that of the other host's. What limits is the near NIC's wire and, to the
// far one, the way between the sockets: 10 GB/s.
func a10(t *testing.T, rate topo.Rate) Spec {
	s := pair(t, "a10-2nic", "Qwen2.5-7B", 1, rate, prompts(5, 8000, 3, 10*second))
	s.Prefill, s.Decode = []Instance{{{0, "cpu:0"}}}, []Instance{{{1, "cpu:0"}}}
	return s
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within*want) {
		t.Errorf("%s: %.4g, want %.4g within %g %%", what, got, want, within*100)
	}
}

// finish is when pathsel says that a transfer over the chosen lanes is through.
func finish(t *testing.T, s Spec, bytes int64, ports ...topo.ID) float64 {
	t.Helper()
	c, err := sim.New(sim.Spec{Hosts: s.Hosts, Fabric: s.Fabric})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Pair(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	set, err := p.LanesOf(s.Prefill[0][0].Location, s.Decode[0][0].Location, pathsel.LaneOptions{Local: ports, Remote: ports})
	if err != nil {
		t.Fatal(err)
	}
	ns, basis := set.Finish(set.Predict(bytes))
	if basis == topo.BasisUnknown {
		t.Fatal("pathsel knows no rate")
	}
	return float64(ns)
}

// The cables bound each wire, which pathsel is not told: with 12.5 GB/s they are what it
// believes.
const full = 25 * gb / 2

func TestExposedIsWhatTheWireTakes(t *testing.T) {
	s := a10(t, full)
	ports := s.Hosts[0].Kind.DataPorts()
	if len(ports) != 2 {
		t.Fatalf("data ports %v: want two", ports)
	}
	bytes := s.Serve.Cache.Plan(8000).Bytes
	both := run(t, s)
	near(t, "two NICs", meanExposed(both), finish(t, s, bytes), 0.04)
	near(t, "two NICs against their limits", meanExposed(both), float64(bytes)/float64(full+10*gb)*1e9, 0.04)
	for i := range both.Times {
		if both.Times[i].KVBytes != bytes {
			t.Errorf("request %d: %d bytes moved, the layout has %d", i, both.Times[i].KVBytes, bytes)
		}
	}
	// The first NIC is limited by its wire, the second by the way between the sockets.
	for i, limit := range []topo.Rate{full, 10 * gb} {
		s.Network.Ports = map[int][]topo.ID{0: {ports[i]}, 1: {ports[i]}}
		one := run(t, s)
		near(t, "one NIC", meanExposed(one), finish(t, s, bytes, ports[i]), 0.04)
		near(t, "one NIC against its limit", meanExposed(one), float64(bytes)/float64(limit)*1e9, 0.04)
		from, to := sim.End{Host: 0, Port: ports[i]}, sim.End{Host: 1, Port: ports[i]}
		if want := fmt.Sprintf("n0:mlx5_%d > n1:mlx5_%d", i, i); len(one.Lanes) != 1 || one.Lanes[0].Name != want || one.Lanes[0].From != from || one.Lanes[0].To != to || one.Lanes[0].Bytes != 5*bytes {
			t.Errorf("with port %s alone: %+v", ports[i], one.Lanes)
		}
	}
}

func TestHalfTheRateDoublesExposed(t *testing.T) {
	for _, ports := range []int{1, 2} {
		var at [2]float64
		for i, rate := range []topo.Rate{full / 2, full / 4} {
			s := a10(t, rate)
			all := s.Hosts[0].Kind.DataPorts()[:ports]
			s.Network.Ports = map[int][]topo.ID{0: all, 1: all}
			at[i] = meanExposed(run(t, s))
		}
		near(t, "half the rate", at[1], 2*at[0], 0.04)
	}
}

// Caches in a socket's memory, one after the other: pathsel takes every NIC of the socket, the best
// one alone has a fraction of that, and any one may be behind the other socket. The order is
// that of theory, for every seed.
func TestOrderOfChoices(t *testing.T) {
	for seed := range uint64(3) {
		s := pair(t, "hgx-h100-8nic", "Llama-3.1-8B", 1, 50*gb, prompts(12, 8000, 2, 10*second))
		s.Prefill, s.Decode, s.Seed = []Instance{{{0, "cpu:0"}}}, []Instance{{{1, "cpu:0"}}}, seed
		rs, err := Compare(s, []Network{{Name: "infinite", Choice: Infinite}, {Name: "ours"}, {Name: "best NIC", Choice: BestNIC}, {Name: "random NIC", Choice: RandomNIC}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		before := 0.0
		for i, r := range rs {
			m := meanExposed(r)
			t.Logf("seed %d: %s: %.3f ms", seed, r.Network, m/1e6)
			if i == 0 && m != 0 || i > 0 && m < before*1.05 {
				t.Errorf("seed %d: %s: %.0f ns are exposed, %.0f before it", seed, r.Network, m, before)
			}
			before = m
		}
	}
}

// With a NIC down the other ports carry all, as pathsel says of those alone.
func TestNICDown(t *testing.T) {
	s := a10(t, full)
	ports := s.Hosts[0].Kind.DataPorts()
	bytes := s.Serve.Cache.Plan(8000).Bytes
	both, other := finish(t, s, bytes), finish(t, s, bytes, ports[1])
	s.Network.Down = []Port{{Host: 0, Port: ports[0]}}
	near(t, "a NIC down", meanExposed(run(t, s)), other, 0.06)
	// At the other end nobody is told: the dial fails, while the other lane carries all.
	s.Network.Down = []Port{{Host: 1, Port: ports[0]}}
	near(t, "the peer's NIC down", meanExposed(run(t, s)), other, 0.06)
	// One that goes down between the second and the third prompt.
	s.Network.Down = []Port{{Host: 0, Port: ports[0], FromNS: 15 * second}}
	r := run(t, s)
	near(t, "before it goes down", float64(exposed(&r.Times[1])), both, 0.04)
	near(t, "after it went down", float64(exposed(&r.Times[2])), other, 0.06)
}

func TestEqualSeedsGiveEqualRuns(t *testing.T) {
	s := pair(t, "a10-2nic", "Qwen2.5-7B", 2, full, generate(t, kv.Conversation(40, 1, 0)))
	s.Network.Choice, s.Serve.Decode.MaxSequences = RandomNIC, 64
	a, b := run(t, s), run(t, s)
	if !reflect.DeepEqual(a, b) {
		t.Error("equal seeds give different runs")
	}
	s.Seed = 2
	if reflect.DeepEqual(a.Times, run(t, s).Times) {
		t.Error("another seed gives the same times: nothing is drawn from it")
	}
}

// A pull takes what a push does, and the word that the prompt is computed.
func TestPull(t *testing.T) {
	s := a10(t, full)
	push := run(t, s)
	s.Serve.Move, s.Serve.HandoffNS = Pull, 1_000_000
	pull := run(t, s)
	near(t, "pull", meanExposed(pull), meanExposed(push)+1e6, 0.01)
	for _, l := range pull.Lanes {
		if !strings.HasPrefix(l.Name, "n1:") || l.From.Host != 1 || l.To.Host != 0 {
			t.Errorf("%s: want the decode host to start it", l.Name)
		}
	}
}

// Moving layer by layer leaves what the formula says: the last group, as the wire is faster
// than the prefill; and the rest of the wire's time where it is slower.
func TestLayersOverlap(t *testing.T) {
	for _, token := range []int64{20_000, 2_000} {
		s := a10(t, full)
		port := s.Hosts[0].Kind.DataPorts()[:1]
		s.Network.Ports = map[int][]topo.ID{0: port, 1: port}
		s.Serve.Prefill.Compute = linear{TokenNS: token, DecodeNS: 0}
		tx := meanExposed(run(t, s))
		s.Serve.Move, s.Serve.Admit, s.Serve.LayersPerMove = PushLayers, Before, 4
		tp, groups := float64(token*8000), 7.0
		near(t, "exposed", meanExposed(run(t, s)), max(tx/groups, tx-tp*(groups-1)/groups), 0.06)
	}
}

// Two TP ranks into four: each pair of ranks with heads in common moves its own.
func TestOtherSplit(t *testing.T) {
	s := pair(t, "hgx-h100-8nic", "Llama-3.1-8B", 4, 50*gb, prompts(3, 8000, 2, 10*second))
	four := run(t, s)
	var err error
	if s.Serve.Cache, err = kv.New(s.Serve.Cache.Model, kv.Side{TP: 2, PageTokens: 16}, s.Serve.Cache.Decode); err != nil {
		t.Fatal(err)
	}
	s.Prefill = []Instance{s.Prefill[0][:2]}
	two := run(t, s)
	if two.Transfers != four.Transfers || two.Pieces <= four.Pieces {
		t.Errorf("%d transfers with %d pieces, %d with %d between equal splits: want as many, and more pieces", two.Transfers, two.Pieces, four.Transfers, four.Pieces)
	}
	if meanExposed(two) < meanExposed(four) {
		t.Errorf("two GPUs send faster than four: %.0f and %.0f ns", meanExposed(two), meanExposed(four))
	}
}

// A prefill pool on another leaf shares the uplinks: a quarter of the ports' rate.
func TestPoolsOnOtherLeaves(t *testing.T) {
	s := pair(t, "hgx-h100-8nic", "Llama-3.1-8B", 8, 50*gb, prompts(3, 16_000, 2, 10*second))
	far := cabled(2, s.Hosts[0].Kind, 50*gb, func(host, _ int) int { return host })
	far.Spines = 2
	for at := range 4 {
		far.Uplinks = append(far.Uplinks, sim.Uplink{Leaf: at / 2, Spine: at % 2, Links: 1, BytesPerSec: 50 * gb})
	}
	rs, err := Compare(s, []Network{{Name: "one leaf"}, {Name: "two leaves", Fabric: far}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	bytes := float64(s.Serve.Cache.Plan(16_000).Bytes)
	near(t, "one leaf", meanExposed(rs[0]), bytes/400e9*1e9, 0.15)
	if m, least := meanExposed(rs[1]), bytes/100e9*1e9; m < least {
		t.Errorf("two leaves: %.0f ns, and the uplinks alone take %.0f", m, least)
	}
}

// Ranks of one host reach each other by its own links.
func TestOneHost(t *testing.T) {
	s := pair(t, "hgx-h100-8nic", "Llama-3.1-8B", 2, 50*gb, prompts(2, 8000, 2, 10*second))
	s.Decode = []Instance{{{0, "gpu:4"}, {0, "gpu:5"}}}
	r := run(t, s)
	if m := meanExposed(r); m <= 0 || len(r.Lanes) != 0 {
		t.Errorf("%.0f ns are exposed, lanes %v: want some time, and no lane", m, r.Lanes)
	}
}

// Hosts without GPUs and RDMA: memory of a NUMA node over TCP.
func TestHostsWithoutGPUs(t *testing.T) {
	s := pair(t, "cpu-2eth", "Qwen2.5-7B", 1, 0, prompts(2, 2000, 2, 10*second))
	bytes := float64(s.Serve.Cache.Plan(2000).Bytes)
	near(t, "10 Gb/s", meanExposed(run(t, s)), bytes/1.25e9*1e9, 0.04)
}

func TestSetupAndPieces(t *testing.T) {
	s := a10(t, full)
	plain := meanExposed(run(t, s))
	s.SetupNS, s.PieceNS = 100_000, 300
	near(t, "set-up", meanExposed(run(t, s))-plain, 100_000+300*float64(s.Serve.Cache.Plan(8000).Pieces), 0.02)
}

// Coarse slices change little of what slices of 1 MiB give.
func TestCoarseSlices(t *testing.T) {
	s := pair(t, "hgx-h100-8nic", "Llama-3.1-8B", 8, 50*gb, generate(t, kv.Conversation(40, 3, 0)))
	s.Serve.Decode.MaxSequences, s.SliceBytes = 256, 1<<20
	fine := meanExposed(run(t, s))
	for _, x := range []struct {
		mib    int64
		within float64
	}{{10, 0.04}, {24, 0.08}} {
		s.SliceBytes = x.mib << 20
		got := meanExposed(run(t, s))
		t.Logf("slices of %d MiB: %.3f ms, of 1 MiB %.3f ms", x.mib, got/1e6, fine/1e6)
		near(t, "exposed with coarse slices", got, fine, x.within)
	}
}

func TestErrors(t *testing.T) {
	for want, change := range map[string]func(*Spec){
		"no host 2":                       func(s *Spec) { s.Decode = []Instance{{{2, "gpu:0"}}} },
		`host "n1" has no memory "gpu:9"`: func(s *Spec) { s.Decode = []Instance{{{1, "gpu:9"}}} },
		"decode instance 0 has 2 ranks":   func(s *Spec) { s.Decode = []Instance{{{1, "gpu:0"}, {1, "gpu:1"}}} },
		`choice of lanes "best"`:          func(s *Spec) { s.Network.Choice = "best" },
		"no lane of the fabric joins the ports that may be used: mlx5_0/1 and mlx5_1/1": func(s *Spec) {
			ports := s.Hosts[0].Kind.DataPorts()
			s.Fabric = cabled(2, s.Hosts[0].Kind, full, railed)
			s.Network.Ports = map[int][]topo.ID{0: ports[:1], 1: ports[1:]}
		},
		`has no port "port:mlx5_9"`: func(s *Spec) { s.Network.Down = []Port{{Host: 0, Port: "port:mlx5_9"}} },
		"no workload":               func(s *Spec) { s.Workload = nil },
		"no KV layout":              func(s *Spec) { s.Serve.Cache = nil },
		"no compute model":          func(s *Spec) { s.Serve.Decode.Compute = nil },
		"no lane of the fabric joins the ports that may be used: any and any": func(s *Spec) { s.Fabric = nil },
	} {
		s := a10(t, full)
		change(&s)
		if _, err := Run(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Requests whose cache no lane carries any more fail after a while, and the run ends.
func TestAllNICsDown(t *testing.T) {
	s := a10(t, full)
	for _, p := range s.Hosts[0].Kind.DataPorts() {
		s.Network.Down = append(s.Network.Down, Port{Host: 0, Port: p, FromNS: 5 * second})
	}
	s.TransferNS = 2 * second
	r, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Times {
		if failed := r.Times[i].Failed != nil; failed != (i > 0) {
			t.Errorf("request %d failed: %v", i, r.Times[i].Failed)
		}
	}
}

// Without a decode side nothing moves, and no lane is asked for.
func TestNotDisaggregated(t *testing.T) {
	s := a10(t, full)
	s.Decode, s.Fabric, s.Serve.Cache = nil, nil, nil
	for _, x := range run(t, s).Times {
		if x.KVBytes != 0 || exposed(&x) != 0 || len(x.TokensNS) != 3 {
			t.Errorf("%+v", x)
		}
	}
}

// A burst waits for each other's caches: the wire's time of all before is in the link wait or
// on the wire, and every request has its bytes.
func TestBurst(t *testing.T) {
	s := a10(t, full)
	s.Serve.Prefill.Compute = linear{TokenNS: 1, DecodeNS: 0}
	s.Workload = &kv.Workload{}
	for i := range 20 {
		s.Workload.Requests = append(s.Workload.Requests, kv.Request{ID: i, Input: 8000, Output: 2})
	}
	r := run(t, s)
	last := int64(0)
	for i := range r.Times {
		last = max(last, r.Times[i].ArrivedNS)
	}
	near(t, "the last cache", float64(last), finish(t, s, 20*s.Serve.Cache.Plan(8000).Bytes), 0.04)
}

// Three prefill hosts send to one that decodes at the same time: its ports are what they share.
func TestManyPrefillHosts(t *testing.T) {
	w := prompts(3, 8000, 2, 0)
	s := pair(t, "hgx-h100-8nic", "Llama-3.1-8B", 8, 50*gb, w)
	k, decode := s.Hosts[0].Kind, s.Decode[0]
	s.Hosts = []sim.HostSpec{{Name: "p0", Kind: k}, {Name: "p1", Kind: k}, {Name: "p2", Kind: k}, {Name: "d", Kind: k}}
	s.Fabric = cabled(4, k, 50*gb, oneLeaf)
	s.Prefill = nil
	for host := range 3 {
		p := Instance{}
		for _, r := range decode {
			p = append(p, Rank{host, r.Location})
		}
		s.Prefill = append(s.Prefill, p)
	}
	for i := range decode {
		decode[i].Host = 3
	}
	r := run(t, s)
	last, bytes := int64(0), float64(s.Serve.Cache.Plan(8000).Bytes)
	for i := range r.Times {
		last = max(last, exposed(&r.Times[i]))
	}
	near(t, "three caches into one host", float64(last), 3*bytes/400e9*1e9, 0.1)
}

// An instance over two hosts whose ranks all have the whole cache (MLA): each rank's own goes to
// its counterpart.
func TestRanksOnTwoHosts(t *testing.T) {
	s := pair(t, "hgx-h20-8nic", "Qwen2.5-7B", 1, 50*gb, prompts(2, 3000, 2, 10*second))
	m, err := kv.Find("DeepSeek-R1")
	if err != nil {
		t.Fatal(err)
	}
	side := kv.Side{TP: 16, PageTokens: 128}
	if s.Serve.Cache, err = kv.New(m, side, side); err != nil {
		t.Fatal(err)
	}
	s.Serve.Prefill.PageTokens, s.Serve.Decode.PageTokens = 128, 128
	k := s.Hosts[0].Kind
	s.Hosts = []sim.HostSpec{{Name: "p0", Kind: k}, {Name: "p1", Kind: k}, {Name: "d0", Kind: k}, {Name: "d1", Kind: k}}
	s.Fabric = cabled(4, k, 50*gb, railed)
	p, d := Instance{}, Instance{}
	for rank := range 16 {
		at := k.Host().Locations()[rank%8]
		p, d = append(p, Rank{rank / 8, at}), append(d, Rank{2 + rank/8, at})
	}
	s.Prefill, s.Decode = []Instance{p}, []Instance{d}
	r := run(t, s)
	each := float64(3000 * m.BytesPerToken())
	if want := int64(16 * each); r.Times[0].KVBytes != want || r.Transfers != 2*16 || len(r.Lanes) != 16 {
		t.Errorf("%d bytes in %d transfers over %d lanes, want %d in 32 over 16", r.Times[0].KVBytes, r.Transfers, len(r.Lanes), want)
	}
	near(t, "exposed", meanExposed(r), each/50e9*1e9, 0.1)
}

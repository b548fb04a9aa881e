package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

var token = []byte("0123456789abcdef")

// within bounds what a test waits for; it is for liveness only.
const within = time.Minute

// checkLeaks fails a test after which goroutines are left; it is called first.
func checkLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		deadline := time.Now().Add(within)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	t.Cleanup(cancel)
	return ctx
}

// host is an agent in this process.
type host struct {
	e    *engine.Engine
	s    *Server
	stop func()
}

// agentOf starts an agent; wrap, where it is not nil, stands between it and its callers.
func agentOf(t *testing.T, name string, o ServerOptions, topology *topo.Topology, wrap func(answer) answer) *host {
	t.Helper()
	o.Credentials = trust.Secret(token)
	if o.Targets == nil {
		o.Targets = LoopbackTargets
	}
	if o.Limits.MemoryBytes == 0 {
		o.Limits.MemoryBytes = 4 << 20 // to be quick
	}
	s := NewServer(o)
	e, err := engine.New(t.Context(), engine.Options{Name: name, Security: engine.Security{Credentials: trust.Secret(token)}, Ports: engine.Ports{Topology: topology}, Serve: engine.Serve{Answer: lying(s, wrap)}})
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(e)
	h := &host{e: e, s: s}
	h.stop = sync.OnceFunc(func() {
		s.Close()
		if err := e.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	t.Cleanup(h.stop)
	return h
}

func (h *host) address() string { return h.e.Addrs()[0].String() }

// fleetOf opens agents called n0, n1, ...
func fleetOf(t *testing.T, agents ...*host) *Fleet {
	t.Helper()
	o := HostsOptions{Credentials: trust.Secret(token), DialTime: within, giveUp: within / 2}
	for i, a := range agents {
		o.Hosts = append(o.Hosts, probe.Host{Name: fmt.Sprintf("n%d", i), Address: a.address()})
	}
	f, err := Hosts(limited(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return f
}

// quick is a spec by which a pair takes some 60 ms.
func quick() probe.Spec {
	return probe.Spec{Warmup: time.Millisecond, SampleTime: 5 * time.Millisecond, MinSamples: 3, MaxSamples: 5, CI: 0.5,
		SizesBytes: []int64{4 << 10, 64 << 10}, LatencySamples: 20, PairTime: within}
}

// long is a spec by which a pair goes on until somebody stops it.
func long() probe.Spec {
	s := quick()
	s.MinSamples, s.MaxSamples, s.CI, s.SizesBytes = 5000, 10000, 0, []int64{64 << 10}
	return s
}

func pair(from, to string) probe.Pair {
	p := probe.Pair{Kind: probe.Port, Transport: probe.TCP, From: probe.End{Host: from, Name: "lo"}, To: probe.End{Host: to, Name: "lo"}}
	p.ID = probe.PairID(p.Kind, p.From, p.To, p.Transport, p.Variant)
	return p
}

// A round measures its pairs, all of which begin when all are ready, and gives everything
// back.
func TestRound(t *testing.T) {
	checkLeaks(t)
	agents := []*host{agentOf(t, "a", ServerOptions{}, fixturetest.Topology(t, "cpu-2eth"), nil), agentOf(t, "b", ServerOptions{}, nil, nil)}
	f := fleetOf(t, agents...)
	hosts := f.Agents()
	if hosts[0].Error != "" || hosts[0].Topology == nil || hosts[0].Topology.Derived == nil || hosts[0].Fingerprint == "" || !slices.Contains(hosts[0].Transports, "tcp") || hosts[1].Address != agents[1].address() {
		t.Errorf("hosts: %+v", hosts)
	}
	both := pair("n1", "n0")
	both.Variant = probe.VariantBothWays
	var mu sync.Mutex
	told := map[int]int{}
	pairs := []probe.Pair{pair("n0", "n1"), both, pair("n0", "n0")}
	for round := range 2 {
		clear(told)
		out := f.Round(limited(t), pairs, quick(), func(i int, s probe.Sample) {
			if !mu.TryLock() {
				t.Error("told twice at a time")
			}
			defer mu.Unlock()
			told[i]++
		})
		for i, m := range out {
			if m.Err != nil || len(m.Bandwidth) != 2 || m.Latency == nil || m.Latency.RTT.N != 20 {
				t.Errorf("round %d, %s: %v: %+v", round, pairs[i].ID, m.Err, m)
				continue
			}
			n := 0
			for _, b := range m.Bandwidth {
				n += len(b.SamplesBytesPerSec)
				if b.Bytes <= 0 || b.DurationNS <= 0 || b.MeanBytesPerSec <= 0 || len(b.SamplesBytesPerSec) < 3 {
					t.Errorf("round %d, %s: %+v", round, pairs[i].ID, b)
				}
			}
			if told[i] != n {
				t.Errorf("round %d, %s: told of %d samples of %d", round, pairs[i].ID, told[i], n)
			}
			if m.CPUSecondsPerGB != nil {
				t.Errorf("%s: processor time of several pairs together", pairs[i].ID)
			}
			if len(m.Notes) > 0 {
				t.Errorf("%s: %q", pairs[i].ID, m.Notes)
			}
		}
	}
	for _, a := range agents {
		if n := len(a.e.Regions()); n > 0 {
			t.Errorf("%d regions are left", n)
		}
	}
	out := f.Round(limited(t), pairs[:1], quick(), nil)
	if out[0].Err != nil || out[0].CPUSecondsPerGB == nil {
		t.Errorf("alone: %+v", out[0])
	}
	shared := pair("n1", "n0")
	shared.Transport = probe.SHM
	out = f.Round(limited(t), []probe.Pair{shared}, quick(), nil)
	if runtime.GOOS == "linux" && (out[0].Err != nil || !slices.ContainsFunc(out[0].Notes, func(n string) bool { return strings.Contains(n, "does not count bytes over shm") })) {
		t.Errorf("shm: %+v", out[0])
	}
}

// What cannot be measured is said, for each pair, and costs no other.
func TestRoundRefuses(t *testing.T) {
	checkLeaks(t)
	f := fleetOf(t, agentOf(t, "a", ServerOptions{}, fixturetest.Topology(t, "dgx-h100"), nil), agentOf(t, "b", ServerOptions{}, nil, nil))
	waived, memory, stranger, transport, port, node := pair("n0", "n1"), pair("n0", "n1"), pair("n0", "n9"), pair("n0", "n1"), pair("n0", "n1"), pair("n1", "n0")
	waived.Waived = "no cable"
	memory.Kind = probe.Memory
	transport.Transport = "rdma"
	port.From.Node = "port:nothing"
	node.To.Location = "cpu:1023"
	out := f.Round(limited(t), []probe.Pair{waived, memory, stranger, port, pair("n1", "n0"), node}, quick(), nil)
	if out[0].Waived != "no cable" || out[0].Err != nil {
		t.Errorf("waived: %+v", out[0])
	}
	for i, want := range map[int]string{1: `kind "memory"`, 2: "n9: the fleet has no such host"} {
		if out[i].Err == nil || !strings.Contains(out[i].Err.Error(), want) {
			t.Errorf("pair %d: %v, want %q", i, out[i].Err, want)
		}
	}
	if out[3].Err != nil || !strings.Contains(out[3].Waived, "n0: both agents run on one machine") {
		t.Errorf("a port over loopback: %v, %q", out[3].Err, out[3].Waived)
	}
	if out[5].Err != nil || !strings.Contains(out[5].Waived, "n0: engine: region") {
		t.Errorf("a NUMA node that is not there: %v, %q", out[5].Err, out[5].Waived)
	}
	if out[4].Err != nil {
		t.Errorf("the good one: %v", out[4].Err)
	}
	out = f.Round(limited(t), []probe.Pair{transport}, quick(), nil)
	if out[0].Err != nil || out[0].Waived != "n0 does not have rdma" {
		t.Errorf("transport: %v, %q", out[0].Err, out[0].Waived)
	}
	bad := quick()
	bad.SizesBytes = []int64{2, 1}
	if out := f.Round(limited(t), []probe.Pair{pair("n0", "n1")}, bad, nil); out[0].Err == nil || !strings.Contains(out[0].Err.Error(), "ascending") {
		t.Errorf("spec: %v", out[0].Err)
	}
}

// An interrupted round keeps what was measured.
func TestRoundInterrupted(t *testing.T) {
	checkLeaks(t)
	f := fleetOf(t, agentOf(t, "a", ServerOptions{}, nil, nil), agentOf(t, "b", ServerOptions{}, nil, nil))
	ctx, stop := context.WithCancelCause(limited(t))
	why := errors.New("somebody pressed a key")
	out := f.Round(ctx, []probe.Pair{pair("n0", "n1"), pair("n1", "n0")}, long(), func(i int, _ probe.Sample) {
		if i == 1 {
			stop(why)
		}
	})
	for i, m := range out {
		if !errors.Is(m.Err, why) {
			t.Errorf("%d: %v", i, m.Err)
		}
		if i == 1 && (len(m.Bandwidth) != 1 || len(m.Bandwidth[0].SamplesBytesPerSec) == 0 || m.Bandwidth[0].Stopped != probe.StoppedInterrupted) {
			t.Errorf("%d: %+v", i, m.Bandwidth)
		}
	}
	out = f.Round(ctx, []probe.Pair{pair("n0", "n1")}, quick(), nil)
	if !errors.Is(out[0].Err, why) {
		t.Errorf("after the end: %v", out[0].Err)
	}
	out = f.Round(limited(t), []probe.Pair{pair("n0", "n1")}, quick(), nil)
	if out[0].Err != nil {
		t.Errorf("another round: %v", out[0].Err)
	}
}

package local

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/enginetest"
	"github.com/topoctl/topoctl/probe"
)

func portProber(t *testing.T, transports ...engine.TransportFactory) *Prober {
	t.Helper()
	top, dir := numaHost(t, 1)
	p := newProber(Options{Topology: top, Sysfs: dir, Engine: transports}, (&fakeHost{}).host())
	p.regionBytes = 8 << 20
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func portPair(from, to topo.ID, transport, variant string) probe.Pair {
	end := func(id topo.ID) probe.End {
		return probe.End{Host: "h", Node: id, Name: id.Name(), Location: "cpu:0"}
	}
	p := probe.Pair{Kind: probe.Port, Transport: transport, Variant: variant, From: end(from), To: end(to)}
	p.ID = probe.PairID(p.Kind, p.From, p.To, p.Transport, variant)
	return p
}

func portSpec() probe.Spec {
	return probe.Spec{Warmup: 5 * time.Millisecond, SampleTime: 5 * time.Millisecond, MinSamples: 3, MaxSamples: 6, CI: 0.025, SizesBytes: []int64{64 << 10, 1 << 20}, LatencySamples: 20, PairTime: 20 * time.Second}
}

func checkPort(t *testing.T, pair *probe.Pair, m *probe.Measurement) {
	t.Helper()
	if m.Err != nil || m.Waived != "" || len(m.Bandwidth) != 2 || m.Latency == nil || m.Latency.RTT == nil || m.Latency.RTT.N != 20 {
		t.Errorf("%s: %+v", pair.ID, m)
		return
	}
	for i, b := range m.Bandwidth {
		if b.SizeBytes != portSpec().SizesBytes[i] || b.MeanBytesPerSec <= 0 {
			t.Errorf("%s: %+v", pair.ID, b)
		}
	}
}

// Within the host, over what needs no port; a later round finds the engines as they are.
func TestPorts(t *testing.T) {
	p := portProber(t)
	for range 2 {
		pairs := []probe.Pair{portPair("net:lo", "net:lo", probe.TCP, ""), portPair("net:lo", "net:lo", probe.SHM, probe.VariantBothWays)}
		told := map[int]bool{}
		for i, m := range p.Round(t.Context(), pairs, portSpec(), func(i int, _ probe.Sample) { told[i] = true }) {
			checkPort(t, &pairs[i], &m)
			if m.CPUSecondsPerGB != nil {
				t.Errorf("%s: processor time of a pair that was not alone", pairs[i].ID)
			}
		}
		if len(told) != 2 {
			t.Errorf("told %v", told)
		}
	}
	if len(p.engines) != 4 {
		t.Errorf("%d engines", len(p.engines))
	}
	pair := portPair("net:lo", "net:lo", probe.TCP, "")
	if m := one(t, p, pair, portSpec()); m.CPUSecondsPerGB == nil {
		t.Error("no processor time of a pair that was alone")
	}
	if m := one(t, p, portPair("port:mlx5_0/1", "port:mlx5_1/1", probe.RDMA, ""), portSpec()); m.Err != nil || !strings.Contains(m.Waived, "rdma is not available: the engine was made without it") {
		t.Errorf("%+v", m)
	}
}

// What an engine cannot have, it says why; what fails is an error, and Close ends it all.
func TestPortsFail(t *testing.T) {
	p := portProber(t, enginetest.Failing(errors.Join(errors.New("rdma: no device here"), engine.ErrUnavailable)), engine.TCP())
	if m := one(t, p, portPair("port:a/1", "port:b/1", probe.RDMA, ""), portSpec()); m.Err != nil || !strings.Contains(m.Waived, "rdma: no device here") {
		t.Errorf("%+v", m)
	}
	broken := portProber(t, enginetest.Failing(errors.New("broken")))
	if m := one(t, broken, portPair("net:lo", "net:lo", probe.TCP, ""), portSpec()); m.Err == nil || !strings.Contains(m.Err.Error(), "broken") {
		t.Errorf("%+v", m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if m := p.Round(ctx, []probe.Pair{portPair("net:lo", "net:lo", probe.TCP, "")}, portSpec(), nil)[0]; !errors.Is(m.Err, context.Canceled) {
		t.Errorf("%+v", m)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if m := one(t, p, portPair("net:lo", "net:lo", probe.TCP, ""), portSpec()); !errors.Is(m.Err, engine.ErrClosed) {
		t.Errorf("after Close: %+v", m)
	}
}

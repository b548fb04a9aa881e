//go:build cgo && linux

package local

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cuda"
	"github.com/topoctl/topoctl/internal/cuda/cudafake"
	"github.com/topoctl/topoctl/probe"
)

// gpuHost is a host of one NUMA node with the fake's GPUs, and a third that CUDA does
// not show.
func gpuHost(t *testing.T) *topo.Topology {
	t.Helper()
	top := &topo.Topology{Origin: "live", NUMANodes: []topo.NUMANode{{Node: topo.Node{ID: topo.NUMAID(0)}, CPUs: "0-1023"}}}
	for i, at := range []string{"0000:1b:00.0", "0000:9b:00.0", "0000:aa:00.0"} {
		bdf, err := topo.ParseBDF(at)
		if err != nil {
			t.Fatal(err)
		}
		top.GPUs = append(top.GPUs, topo.GPU{Node: topo.Node{ID: topo.GPUID(i)}, BDF: &bdf})
	}
	return top
}

// gpuProber measures the fake's GPUs.
func gpuProber(t *testing.T, o cudafake.Options) *Prober {
	t.Helper()
	before := cudafake.Count()
	lib, err := cudafake.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Options{Topology: gpuHost(t), CUDA: func() (*cuda.Lib, error) { return lib, nil }})
	if err != nil {
		t.Fatal(err)
	}
	p.copyBytes = 2 << 20
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Log("close:", err)
		}
		after := cudafake.Count()
		if after.Pinned != before.Pinned || after.Streams != before.Streams || after.Events != before.Events || after.Contexts != before.Contexts {
			t.Errorf("left behind: %+v, before: %+v", after, before)
		}
	})
	return p
}

func gpuPair(from, to topo.ID, variant string) probe.Pair {
	p := probe.Pair{Kind: probe.GPU, Transport: probe.CUDA, Variant: variant, From: probe.End{Host: "h", Node: from, Name: string(from)}, To: probe.End{Host: "h", Node: to, Name: string(to)}}
	p.ID = probe.PairID(p.Kind, p.From, p.To, p.Transport, variant)
	return p
}

var gpuSpec = probe.Spec{Warmup: time.Millisecond, SampleTime: 20 * time.Microsecond, MinSamples: 3, MaxSamples: 10, CI: 0.025, SizesBytes: []int64{64 << 10, 1 << 20}, LatencySamples: 20, PairTime: 20 * time.Second}

// Rates and times are those that the GPU's timers tell, in the direction that was asked for.
func TestGPURates(t *testing.T) {
	p := gpuProber(t, cudafake.Options{FromHost: 40e9, ToHost: 30e9, Peer: 200e9, Staged: 10e9, CopyTime: 5 * time.Microsecond})
	for _, c := range []struct {
		pair probe.Pair
		rate float64
	}{
		{gpuPair("numa:0", "gpu:0", ""), 40e9},
		{gpuPair("gpu:1", "numa:0", ""), 30e9},
		{gpuPair("gpu:0", "gpu:1", ""), 200e9},
		{gpuPair("gpu:1", "gpu:0", probe.VariantNoPeer), 10e9},
		{gpuPair("gpu:0", "gpu:1", probe.VariantBothWays), 200e9},
		{gpuPair("numa:0", "gpu:1", probe.VariantBothWays), 40e9},
	} {
		told := 0
		m := p.Round(t.Context(), []probe.Pair{c.pair}, gpuSpec, func(pair int, s probe.Sample) { told++ })[0]
		if m.Err != nil || m.Waived != "" || len(m.Bandwidth) != 2 {
			t.Fatalf("%s: %+v", c.pair.ID, m)
		}
		for i, size := range gpuSpec.SizesBytes {
			want := float64(size) / (float64(size)/c.rate + 5e-6)
			b := m.Bandwidth[i]
			if b.SizeBytes != size || b.Stopped != probe.StoppedCI || math.Abs(float64(b.MeanBytesPerSec)/want-1) > 0.001 {
				t.Errorf("%s, %d bytes: %d bytes/s, want %.0f: %+v", c.pair.ID, size, b.MeanBytesPerSec, want, b)
			}
			told -= len(b.SamplesBytesPerSec)
		}
		if told != 0 {
			t.Errorf("%s: %d samples were told too many", c.pair.ID, told)
		}
		l := m.Latency
		if l == nil || l.Copy == nil || l.RTT != nil || l.Load != nil || l.SizeBytes != 8 || l.Copy.N != 20 || l.Copy.P50 < 4900 || l.Copy.P50 > 5100 {
			t.Errorf("%s: latency %+v", c.pair.ID, l)
		}
		if m.CPUSecondsPerGB == nil {
			t.Errorf("%s: no processor time", c.pair.ID)
		}
	}
	if s := cudafake.Count(); s.UnpinnedCopies != 0 {
		t.Errorf("%d copies with memory that is not pinned", s.UnpinnedCopies)
	}
}

// What this host cannot do is waived with the driver's reason.
func TestGPUWaived(t *testing.T) {
	p := gpuProber(t, cudafake.Options{NoPeer: true, Staged: 10e9})
	for want, pair := range map[string]probe.Pair{
		"no peer access between 0000:1b:00.0 and 0000:9b:00.0": gpuPair("gpu:0", "gpu:1", ""),
		"CUDA does not show gpu:2 (0000:aa:00.0)":              gpuPair("numa:0", "gpu:2", ""),
	} {
		m := p.Round(t.Context(), []probe.Pair{pair}, gpuSpec, nil)[0]
		if m.Err != nil || !strings.Contains(m.Waived, want) {
			t.Errorf("%s: %q, %v", pair.ID, m.Waived, m.Err)
		}
	}
	if m := p.Round(t.Context(), []probe.Pair{gpuPair("gpu:0", "gpu:1", probe.VariantNoPeer)}, gpuSpec, nil)[0]; m.Err != nil || m.Waived != "" || len(m.Bandwidth) != 2 {
		t.Errorf("without peer access: %+v", m)
	}
	none, err := New(Options{Topology: gpuHost(t), CUDA: func() (*cuda.Lib, error) { return cuda.Load("/nowhere/libcuda.so.1") }})
	if err != nil {
		t.Fatal(err)
	}
	m := none.Round(t.Context(), []probe.Pair{gpuPair("gpu:0", "numa:0", "")}, gpuSpec, nil)[0]
	if m.Err != nil || !strings.Contains(m.Waived, "is not installed (it comes with NVIDIA's driver)") {
		t.Errorf("without CUDA: %q, %v", m.Waived, m.Err)
	}
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

// A GPU that fails costs its pairs and no other, also of the same round.
func TestGPULost(t *testing.T) {
	p := gpuProber(t, cudafake.Options{FromHost: 40e9, ToHost: 40e9, Peer: 40e9})
	pairs := []probe.Pair{gpuPair("numa:0", "gpu:0", ""), gpuPair("gpu:1", "numa:0", ""), gpuPair("gpu:0", "gpu:1", "")}
	if m := p.Round(t.Context(), pairs, gpuSpec, nil); m[0].Err != nil || m[1].Err != nil || m[2].Err != nil {
		t.Fatalf("%v, %v, %v", m[0].Err, m[1].Err, m[2].Err)
	}
	cudafake.Lose(1, 214)
	m := p.Round(t.Context(), pairs, gpuSpec, nil)
	if m[0].Err != nil || len(m[0].Bandwidth) != 2 {
		t.Errorf("the GPU that is well: %+v", m[0])
	}
	for _, lost := range m[1:] {
		if !errors.Is(lost.Err, cuda.Result(214)) || !strings.Contains(lost.Err.Error(), "look at dmesg for Xid") || lost.Waived != "" {
			t.Errorf("the GPU that is lost: %v", lost.Err)
		}
	}
}

// What fails on the way leaves nothing behind, whatever it is.
func TestGPUFailures(t *testing.T) {
	pairs := []probe.Pair{gpuPair("numa:0", "gpu:0", probe.VariantBothWays), gpuPair("gpu:0", "gpu:1", "")}
	for _, function := range []string{"cuMemAlloc_v2", "cuMemHostRegister_v2", "cuStreamCreate", "cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime",
		"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyPeerAsync", "cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess", "cuDevicePrimaryCtxRetain"} {
		p := gpuProber(t, cudafake.Options{FromHost: 40e9, ToHost: 40e9, Peer: 40e9})
		for after := range 3 {
			failed := 0
			for _, pair := range pairs {
				before := cudafake.Count()
				cudafake.Fail(function, 999, after, 1)
				m := p.Round(t.Context(), []probe.Pair{pair}, gpuSpec, nil)[0]
				if m.Waived != "" || m.Err != nil && !errors.Is(m.Err, cuda.Result(999)) {
					t.Errorf("%s fails after %d: %q, %v", function, after, m.Waived, m.Err)
				}
				if m.Err != nil {
					failed++
				}
				cudafake.Fail(function, 0, 0, 0)
				if s := cudafake.Count(); s.Allocations != before.Allocations || s.Pinned != before.Pinned || s.Streams != before.Streams || s.Events != before.Events {
					t.Errorf("%s fails after %d: left behind %+v", function, after, s)
				}
			}
			if after == 0 && failed == 0 {
				t.Errorf("%s fails, and nobody notices", function)
			}
		}
	}
}

// A path that corrupts data is an error, however fast it is.
func TestGPUCorrupts(t *testing.T) {
	p := gpuProber(t, cudafake.Options{Spoil: true, FromHost: 40e9, ToHost: 40e9, Peer: 40e9})
	for _, pair := range []probe.Pair{gpuPair("numa:0", "gpu:0", ""), gpuPair("gpu:0", "numa:0", ""), gpuPair("gpu:1", "gpu:0", "")} {
		m := p.Round(t.Context(), []probe.Pair{pair}, gpuSpec, nil)[0]
		if m.Err == nil || !strings.Contains(m.Err.Error(), "bytes that were copied are wrong") {
			t.Errorf("%s: %+v", pair.ID, m)
		}
	}
}

// What was measured until the run is stopped, or its time is over, is kept.
func TestGPUStopped(t *testing.T) {
	p := gpuProber(t, cudafake.Options{FromHost: 40e9})
	spec := gpuSpec
	spec.MinSamples, spec.MaxSamples, spec.LatencySamples = 5000, 60000, 0
	spec.SizesBytes = []int64{64 << 10}
	ctx, cancel := context.WithCancel(t.Context())
	m := p.Round(ctx, []probe.Pair{gpuPair("numa:0", "gpu:0", "")}, spec, func(int, probe.Sample) { cancel() })[0]
	if !errors.Is(m.Err, context.Canceled) || len(m.Bandwidth) != 1 || m.Bandwidth[0].Stopped != probe.StoppedInterrupted || len(m.Bandwidth[0].SamplesBytesPerSec) == 0 {
		t.Errorf("interrupted: %+v", m)
	}
	spec.PairTime = 50 * time.Millisecond
	m = p.Round(t.Context(), []probe.Pair{gpuPair("numa:0", "gpu:0", "")}, spec, nil)[0]
	if m.Err != nil || len(m.Bandwidth) != 1 || m.Bandwidth[0].Stopped != probe.StoppedTime || len(m.Bandwidth[0].SamplesBytesPerSec) == 0 {
		t.Errorf("no time: %+v", m)
	}
}

// A timer that stands still is no rate.
func TestGPUTimerStands(t *testing.T) {
	p := gpuProber(t, cudafake.Options{})
	spec := gpuSpec
	spec.SizesBytes, spec.PairTime = []int64{4096}, 0
	m := p.Round(t.Context(), []probe.Pair{gpuPair("numa:0", "gpu:0", "")}, spec, nil)[0]
	if m.Err == nil || !strings.Contains(m.Err.Error(), "took no time by the GPU's own timer") {
		t.Errorf("%+v", m)
	}
}

// Peer access is on for who wants it and off afterwards; both at once are refused.
func TestGPUPeering(t *testing.T) {
	p := gpuProber(t, cudafake.Options{Peer: 40e9, Staged: 10e9})
	m := p.Round(t.Context(), []probe.Pair{gpuPair("gpu:0", "gpu:1", ""), gpuPair("gpu:1", "gpu:0", probe.VariantNoPeer)}, gpuSpec, nil)
	if (m[0].Err == nil) == (m[1].Err == nil) {
		t.Errorf("both at once: %v, %v", m[0].Err, m[1].Err)
	}
	lib, err := cudafake.Again()
	if err != nil {
		t.Fatal(err)
	}
	a, err := lib.Retain(0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := lib.Retain(1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(a.Release(), b.Release()) }()
	if err := a.EnablePeer(b); err != nil {
		t.Errorf("it was left on: %v", err)
	}
	m = p.Round(t.Context(), []probe.Pair{gpuPair("gpu:0", "gpu:1", probe.VariantNoPeer)}, gpuSpec, nil)
	if !strings.Contains(m[0].Waived, "was enabled by other code of this process") {
		t.Errorf("it is on: %+v", m[0])
	}
	m = p.Round(t.Context(), []probe.Pair{gpuPair("gpu:0", "gpu:1", "")}, gpuSpec, nil)
	if m[0].Err != nil || m[0].Waived != "" {
		t.Errorf("it is on: %+v", m[0])
	}
	if err := a.DisablePeer(b); err != nil {
		t.Errorf("what others enabled was switched off: %v", err)
	}
}

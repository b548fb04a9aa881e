package lanes

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/compute"
	"github.com/topoctl/topoctl/internal/kv/layout"
	"github.com/topoctl/topoctl/internal/kv/metrics"
	"github.com/topoctl/topoctl/internal/kv/predict"
	"github.com/topoctl/topoctl/internal/kv/replay"
	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/internal/kv/workload"
	"github.com/topoctl/topoctl/internal/sim"
	"github.com/topoctl/topoctl/pathsel"
)

// The KV caches of this lab: 8 KiB for each token, 256 KiB of a prompt for each lane.
var kvModel = layout.Model{Name: "Qwen2.5-7B, 4 layers", Layers: 4, KVHeads: 4, HeadDim: 128, ElementBytes: 2}

const (
	kvTokens = 32  // for each lane
	kvPages  = 512 // of 16 tokens: 64 MiB
	kvLoad   = 0.6 // of what the lanes carry
)

// kvCompute takes 20 us for each token of a prompt, and 2 ms for a step of decode.
type kvCompute struct{}

func (kvCompute) StepNS(s compute.Step) int64 {
	ns := int64(0)
	for _, c := range s.Chunks {
		ns += 20_000 * int64(c.Tokens)
	}
	if s.Decode > 0 {
		ns += 2_000_000
	}
	return ns
}

func kvServe(t *testing.T) serve.Config {
	t.Helper()
	s := layout.Side{TP: 1, PageTokens: 16}
	cache, err := layout.New(kvModel, s, s)
	if err != nil {
		t.Fatal(err)
	}
	pool := serve.Pool{Instances: 1, Compute: kvCompute{}, PageTokens: 16, Pages: kvPages, MaxBatchedTokens: 1 << 16}
	return serve.Config{Prefill: pool, Decode: pool, Cache: cache, Move: serve.Push, Admit: serve.Beside,
		FirstToken: serve.FromDecode, Router: serve.LeastTokens, LayersPerMove: 1}
}

// What is predicted for lanes beside what they do: the time that caches take after prefill,
// where the wire is most of the time to first token. Links are so slow that what a busy host
// takes from this process is little beside them, which makes all of it take 20 minutes: give
// -timeout 40m, and -run for a part of it.
func TestKVPredictAndReplay(t *testing.T) {
	if os.Getenv("TOPOCTL_LANES") != "alone" {
		t.Skip("times need the machine alone: set TOPOCTL_LANES=alone")
	}
	requests, seen := kvRequests(t), map[string]kvFigures{}
	for _, mbits := range [][]int{{20}, {20, 20}, {20, 20, 20, 20}, {10}} {
		tokens := kvTokens * len(mbits)
		for _, arrivals := range []workload.Arrivals{
			{RatePerSec: kvLoad * payload(mbits...) / float64(tokens*int(kvModel.BytesPerToken()))}, {Concurrency: 4},
		} {
			if mbits[0] == 10 && arrivals.Concurrency == 0 {
				continue // half the rate is compared at the same concurrency
			}
			t.Run(fmt.Sprintf("%d of %d, %s", len(mbits), mbits[0], arrivals), func(t *testing.T) {
				w, err := workload.Generate(workload.Spec{Requests: requests, Seed: 11, Arrivals: arrivals,
					Input: workload.Uniform(tokens, 0.5), Output: workload.Fixed(2)})
				if err != nil {
					t.Fatal(err)
				}
				f := kvCompare(t, kvPredict(t, mbits, w), kvReplay(t, mbits, w))
				if arrivals.Concurrency > 0 {
					seen[fmt.Sprint(mbits)] = f
				}
			})
		}
	}
	fast, slow := seen["[20]"], seen["[10]"]
	if fast.real > 0 && slow.real > 0 {
		predicted, real := slow.predicted/fast.predicted, slow.real/fast.real
		t.Logf("a link of half the rate: %.3f times the median predicted, %.3f times the real one", predicted, real)
		if math.Abs(real/predicted-1) > 0.1 {
			t.Error("half the rate does not do to both the same")
		}
	}
}

// kvFigures are medians of the exposed time in ns.
type kvFigures struct{ predicted, real float64 }

// kvRequests is how many there are: TOPOCTL_KV_REQUESTS, or 1000.
func kvRequests(t *testing.T) int {
	t.Helper()
	text := os.Getenv("TOPOCTL_KV_REQUESTS")
	if text == "" {
		return 1000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// kvCompare prints the figures, and holds medians to 10 % and P99 to 20 %.
func kvCompare(t *testing.T, predicted []kv.Times, real *replay.Result) kvFigures {
	t.Helper()
	p, r, off := kvExposed(t, predicted), kvExposed(t, real.Times), []float64(nil)
	share := 0.
	for i := range p {
		off = append(off, math.Abs(r[i]-p[i])/p[i])
		share += p[i] / (p[i] + float64(predicted[i].PrefilledNS-predicted[i].SentNS) + 2e6) / float64(len(p))
	}
	slices.Sort(p)
	slices.Sort(r)
	slices.Sort(off)
	again, sent := int64(0), int64(0)
	for _, l := range real.Lanes {
		again, sent = again+l.Retries, sent+l.Slices
	}
	at := func(x []float64, part float64) float64 { return x[int(float64(len(x)-1)*part)] }
	t.Logf("exposed KV in ms, predicted and real: median %.2f %.2f (%+.1f %%), P99 %.2f %.2f (%+.1f %%); off by request: median %.1f %%, P99 %.1f %%; %.0f %% of TTFT; timers late by %v at P50, %v at P99, %v at most; slices sent again: %d of %d",
		at(p, 0.5)/1e6, at(r, 0.5)/1e6, 100*(at(r, 0.5)/at(p, 0.5)-1), at(p, 0.99)/1e6, at(r, 0.99)/1e6, 100*(at(r, 0.99)/at(p, 0.99)-1),
		100*at(off, 0.5), 100*at(off, 0.99), 100*share,
		time.Duration(real.Timers.P50NS), time.Duration(real.Timers.P99NS), time.Duration(real.Timers.MaxNS), again, sent)
	for _, x := range []struct {
		name       string
		part, most float64
	}{{"median", 0.5, 0.1}, {"P99", 0.99, 0.2}} {
		if miss := at(r, x.part)/at(p, x.part) - 1; math.Abs(miss) > x.most {
			t.Errorf("the real %s is %+.1f %% off what was predicted, more than %.0f %%", x.name, 100*miss, 100*x.most)
		}
	}
	if share < 0.5 {
		t.Errorf("the wire is %.0f %% of the time to first token: it has to be half", 100*share)
	}
	return kvFigures{at(p, 0.5), at(r, 0.5)}
}

func kvExposed(t *testing.T, times []kv.Times) (out []float64) {
	t.Helper()
	for i := range times {
		p, err := metrics.PartsOf(&times[i], false)
		if err != nil || times[i].Failed != "" {
			t.Fatalf("request %d: %v %s", i, err, times[i].Failed)
		}
		out = append(out, float64(p.ExposedNS))
	}
	return out
}

func kvReplay(t *testing.T, mbits []int, w *kv.Workload) *replay.Result {
	t.Helper()
	l := newLab(t, mbits...)
	for i, mbit := range mbits {
		l.tight(i, mbit)
	}
	n := l.open(len(mbits), l.far.ask(ask{Do: "engine", Lanes: len(mbits)}), pathsel.Adaptive)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	r, err := replay.Run(ctx, replay.Options{Serve: kvServe(t), Workload: w, Local: [][]*engine.Region{{n.local}}, Remote: [][]*engine.RemoteRegion{{n.remote}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range mbits {
		l.must("down", l.near.LinkDel(l.link(l.near, nearName(i))))
	}
	return r
}

// tight shapes a lane with a burst that caches cannot hide in.
func (l *lab) tight(i, mbit int) {
	l.t.Helper()
	l.ends(i, func(h *netlink.Handle, link netlink.Link) {
		rate := uint64(mbit) * 1e6 / 8
		l.must("tbf", h.QdiscReplace(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       rate, Limit: 4 << 20, Buffer: netlink.Xmittime(rate, 16<<10),
		}))
	})
}

func kvPredict(t *testing.T, mbits []int, w *kv.Workload) []kv.Times {
	t.Helper()
	host, err := topology("near", len(mbits), nearAddr)
	if err != nil {
		t.Fatal(err)
	}
	kind, err := sim.NewKind(host, sim.KindOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Lanes of a lab are as fast as each other here.
	fabric, err := sim.Shape{Hosts: 2, Ports: kind.DataPorts(), PortBytesPerSec: topo.Rate(payload(mbits[0])), HostsPerGroup: 2}.RailOptimized()
	if err != nil {
		t.Fatal(err)
	}
	r, err := predict.Run(predict.Spec{Hosts: []sim.HostSpec{{Name: "near", Kind: kind}, {Name: "far", Kind: kind}}, Fabric: fabric,
		Prefill: []predict.Instance{{{Host: 0, Location: "cpu:0"}}}, Decode: []predict.Instance{{{Host: 1, Location: "cpu:0"}}},
		Serve: kvServe(t), Workload: w, Network: predict.Network{Policy: pathsel.Adaptive}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return r.Times
}

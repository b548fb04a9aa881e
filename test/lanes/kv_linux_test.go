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

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/kv/replay"
	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/internal/sim"
)

// The KV caches of this lab: 8 KiB for each token, 256 KiB of a prompt for each lane.
var kvModel = kv.Model{Name: "Qwen2.5-7B, 4 layers", Layers: 4, KVHeads: 4, HeadDim: 128, ElementBytes: 2}

const (
	kvTokens = 32  // for each lane
	kvPages  = 512 // of 16 tokens: 64 MiB
	kvLoad   = 0.6 // of what the lanes carry
)

// kvCompute takes 20 us for each token of a prompt, and 2 ms for a step of decode.
type kvCompute struct{}

func (kvCompute) StepNS(s serve.Step) int64 {
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
	s := kv.Side{TP: 1, PageTokens: 16}
	cache, err := kv.New(kvModel, s, s)
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
		for _, arrivals := range []kv.Arrivals{
			{RatePerSec: kvLoad * payload(mbits...) / float64(tokens*int(kvModel.BytesPerToken()))}, {Concurrency: 4},
		} {
			if mbits[0] == 10 && arrivals.Concurrency == 0 {
				continue // half the rate is compared at the same concurrency
			}
			t.Run(fmt.Sprintf("%d of %d, %s", len(mbits), mbits[0], arrivals), func(t *testing.T) {
				w, err := kv.Generate(kv.Spec{Requests: requests, Seed: 11, Arrivals: arrivals,
					Input: kv.Uniform(tokens, 0.5), Output: kv.Fixed(2)})
				if err != nil {
					t.Fatal(err)
				}
				real, met := kvReplay(t, mbits, w, arrivals.Concurrency > 0)
				f := kvCompare(t, kvPredict(t, mbits, w), real, met)
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

// kvCompare prints the figures of all requests, then holds medians to 10 % and P99 to 20 %: of
// those that met no moment in which this machine stood still, if these are many and have waited as
// long as the others.
func kvCompare(t *testing.T, predicted []kv.Times, real *replay.Result, met []bool) kvFigures {
	t.Helper()
	all := kvFiguresOf(t, predicted, real, nil)
	f := kvFiguresOf(t, predicted, real, met)
	if f.requests*4 < all.requests || f.predictedP99 < 0.8*all.predictedP99 {
		t.Errorf("this machine stood still too often: %d of %d requests are left, and P99 of what is predicted of them is %.2f of that of all",
			f.requests, all.requests, f.predictedP99/all.predictedP99)
	}
	if f.share < 0.5 {
		t.Errorf("the wire is %.0f %% of the time to first token: it has to be half", 100*f.share)
	}
	if math.Abs(f.median) > 0.1 || math.Abs(f.p99) > 0.2 || f.off > 0.1 {
		t.Errorf("the real median is %+.1f %% off what was predicted, P99 %+.1f %%, half the requests by more than %.1f %%: want 10, 20 and 10", 100*f.median, 100*f.p99, 100*f.off)
	}
	return f
}

// kvFigures are of the exposed times of some requests.
type kvFigures struct {
	requests        int
	predicted, real float64 // medians, in ns
	predictedP99    float64
	median, p99     float64 // by how much of the predicted the real ones are off
	off             float64 // the median of that by request, whatever its sign
	share           float64 // of the wire in the time to first token
}

// kvFiguresOf prints the figures of requests, but for those that are left out.
func kvFiguresOf(t *testing.T, predicted []kv.Times, real *replay.Result, out []bool) kvFigures {
	t.Helper()
	var p, r, off []float64
	share, all := 0., kvExposed(t, real.Times)
	for i, x := range kvExposed(t, predicted) {
		if out != nil && out[i] {
			continue
		}
		p, r, off = append(p, x), append(r, all[i]), append(off, math.Abs(all[i]-x)/x)
		share += x / (x + float64(predicted[i].PrefilledNS-predicted[i].SentNS) + 2e6)
	}
	if len(p) == 0 {
		t.Fatal("no request met no moment in which this machine stood still")
	}
	share /= float64(len(p))
	slices.Sort(p)
	slices.Sort(r)
	slices.Sort(off)
	again, sent := int64(0), int64(0)
	for _, l := range real.Lanes {
		again, sent = again+l.Retries, sent+l.Slices
	}
	at := func(x []float64, part float64) float64 { return x[int(float64(len(x)-1)*part)] }
	f := kvFigures{len(p), at(p, 0.5), at(r, 0.5), at(p, 0.99), at(r, 0.5)/at(p, 0.5) - 1, at(r, 0.99)/at(p, 0.99) - 1, at(off, 0.5), share}
	t.Logf("%d requests, exposed KV in ms, predicted and real: median %.2f %.2f (%+.1f %%), P99 %.2f %.2f (%+.1f %%); off by request: median %.1f %%, P99 %.1f %%; %.0f %% of TTFT; timers late by %v at P50, %v at P99, %v at most; slices sent again: %d of %d",
		len(p), f.predicted/1e6, f.real/1e6, 100*f.median, at(p, 0.99)/1e6, at(r, 0.99)/1e6, 100*f.p99, 100*at(off, 0.5), 100*at(off, 0.99), 100*share,
		time.Duration(real.Timers.P50NS), time.Duration(real.Timers.P99NS), time.Duration(real.Timers.MaxNS), again, sent)
	return f
}

func kvExposed(t *testing.T, times []kv.Times) (out []float64) {
	t.Helper()
	for i := range times {
		p, err := kv.PartsOf(&times[i], false)
		if err != nil || times[i].Failed != nil {
			t.Fatalf("request %d: %v %s", i, err, times[i].Failed)
		}
		out = append(out, float64(p.ExposedNS))
	}
	return out
}

func kvReplay(t *testing.T, mbits []int, w *kv.Workload, closedLoop bool) (r *replay.Result, met []bool) {
	t.Helper()
	l := newWires(t, mbits...)
	n := l.open(len(mbits), l.far.ask(ask{Do: "engine", Lanes: len(mbits)}))
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	l.far.ask(ask{Do: "watch"})
	began := time.Now()
	r, err := replay.Run(ctx, replay.Options{Serve: kvServe(t), Workload: w, Local: [][]*engine.Region{{n.local}}, Remote: [][]*engine.RemoteRegion{{n.remote}}})
	stood := l.far.ask(ask{Do: "stops"}).Stops
	if err != nil {
		t.Fatal(err)
	}
	kvExposed(t, r.Times) // all have an answer
	for i := range mbits {
		l.must("down", l.near.LinkDel(l.link(l.near, nearName(i))))
	}
	return r, stood.meet(began, r.Times, closedLoop)
}

func kvPredict(t *testing.T, mbits []int, w *kv.Workload) []kv.Times {
	t.Helper()
	host, err := topology("near", len(mbits), nearAddr)
	if err != nil {
		t.Fatal(err)
	}
	kind, err := sim.NewKind(host, "")
	if err != nil {
		t.Fatal(err)
	}
	// Lanes of a lab are as fast as each other here.
	fabric := &sim.Fabric{Leaves: len(kind.DataPorts()), RailOnly: len(kind.DataPorts()) > 1}
	for rail, port := range kind.DataPorts() {
		for host := range 2 {
			fabric.Cables = append(fabric.Cables, sim.Cable{Host: host, Port: port, Leaf: rail, Rail: rail, BytesPerSec: topo.Rate(payload(mbits[0]))})
		}
	}
	r, err := serve.Run(serve.Spec{Hosts: []sim.HostSpec{{Name: "near", Kind: kind}, {Name: "far", Kind: kind}}, Fabric: fabric,
		Prefill: []serve.Instance{{{Host: 0, Location: "cpu:0"}}}, Decode: []serve.Instance{{{Host: 1, Location: "cpu:0"}}},
		Serve: kvServe(t), Workload: w, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return r.Times
}

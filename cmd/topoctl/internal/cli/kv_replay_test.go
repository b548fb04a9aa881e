package cli

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/replay"
	kvreport "github.com/topoctl/topoctl/internal/kv/report"
	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/schematest"
)

// kvServer is an engine as an agent has it, with regions for caches.
func kvServer(t *testing.T, regions ...engine.RegionOptions) *engine.Engine {
	t.Helper()
	e, err := engine.New(t.Context(), engine.Options{Transports: []engine.TransportFactory{engine.TCP()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	for _, o := range regions {
		o.Grant = memory.PeerRead | memory.PeerWrite
		if _, err := e.Alloc(16<<20, o); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// replayed runs the command against peers and gives exit code, document and errors.
func replayed(ctx context.Context, t *testing.T, peers []*engine.Engine, args ...string) (int, *kvreport.Report, string) {
	t.Helper()
	f := newStreams()
	args = append([]string{"kv", "replay", "--model", "qwen2.5-7b", "--gpu", "a10", "--transport", "tcp", "--memory", "16MiB", "--output-len", "2", "-o", "json"}, args...)
	for _, e := range peers {
		args = append(args, "--peer", e.Addrs()[0].String())
	}
	code := runFake(ctx, f, args...)
	if f.Stdout.Len() == 0 {
		return code, nil, f.Stderr.String()
	}
	var r kvreport.Report
	if err := json.Unmarshal(f.Stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if err := schematest.Open(t, "../../../../internal/kv/report/schema/kv.v1.schema.json").Validate(f.Stdout.Bytes()); err != nil {
		t.Error(err)
	}
	return code, &r, f.Stderr.String()
}

// Instances are spread over the peers in order, and so are ranks where there are as many regions.
func TestKVReplayPeers(t *testing.T) {
	a := kvServer(t, engine.RegionOptions{Name: "kv0"}, engine.RegionOptions{Name: "kv1", Location: "cpu:1"})
	b := kvServer(t, engine.RegionOptions{Name: "kv0", Location: "gpu:3"}, engine.RegionOptions{Name: "kv1"})
	for _, tt := range []struct {
		mode, there, shape string
		want               [][]string
	}{
		{"push", "--decode", "4xtp2", [][]string{{"peer1:kv0", "peer1:kv0"}, {"peer1:cpu:1", "peer1:cpu:1"}, {"peer2:gpu:3", "peer2:gpu:3"}, {"peer2:kv1", "peer2:kv1"}}},
		{"layers", "--decode", "2xtp2", [][]string{{"peer1:kv0", "peer1:cpu:1"}, {"peer2:gpu:3", "peer2:kv1"}}},
		{"pull", "--prefill", "1xtp4", [][]string{{"peer1:kv0", "peer1:cpu:1", "peer2:gpu:3", "peer2:kv1"}}},
	} {
		code, r, errs := replayed(t.Context(), t, []*engine.Engine{a, b}, "--region", "kv0,kv1", "--mode", tt.mode, tt.there, tt.shape, "--requests", "4", "--input-len", "40", "--check")
		if code != 0 {
			t.Fatalf("%s: code %d: %s", tt.mode, code, errs)
		}
		pool := r.Decode
		if tt.mode == "pull" {
			pool = &r.Prefill
		}
		var got [][]string
		for _, x := range pool.Instances {
			got = append(got, x.Ranks)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.mode, diff)
		}
		peers := map[string]bool{}
		for _, l := range r.Lanes {
			peers[l.Lane[strings.LastIndexByte(l.Lane, ' '):]] = l.Bytes > 0
		}
		if len(r.Hosts) != 3 || !peers[" (peer1)"] || !peers[" (peer2)"] || r.Prefill.Busy == nil || r.Decode.Busy == nil {
			t.Errorf("%s: hosts %+v, lanes %+v", tt.mode, r.Hosts, r.Lanes)
		}
	}
}

// A peer goes away in the middle: what it had fails, the rest is answered, and report and exit
// code say so.
func TestKVReplayLosesPeer(t *testing.T) {
	a, b := kvServer(t, engine.RegionOptions{Name: "kv"}), kvServer(t, engine.RegionOptions{Name: "kv"})
	ended := whenWritten(b, 0, func() { b.Close() })
	code, r, errs := replayed(t.Context(), t, []*engine.Engine{a, b}, "--region", "kv", "--decode", "2xtp1", "--requests", "30", "--rate", "20", "--input-len", "100", "--output-len", "10")
	ended()
	if code != 1 || r == nil {
		t.Fatalf("code %d: %s", code, errs)
	}
	m, why := r.Metrics, ""
	for _, f := range r.Failures {
		why += f.Reason
	}
	if m.Failed == 0 || m.Completed < 20 || !strings.Contains(why, `peer "`+b.Addrs()[0].String()+`"`) || strings.Contains(why, a.Addrs()[0].String()) {
		t.Errorf("%d answered, %d failed: %s", m.Completed, m.Failed, why)
	}
	if !strings.HasPrefix(r.Notes[0], "peer2 ("+b.Addrs()[0].String()+") was lost ") {
		t.Errorf("notes: %q", r.Notes)
	}
}

// whenWritten does something once an engine has been written more than a number of bytes. What it
// returns ends the waiting.
func whenWritten(e *engine.Engine, bytes int64, do func()) (ended func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for e.Stats().ServedWrittenBytes <= bytes {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
		do()
	}()
	return func() {
		close(over)
		<-done
	}
}

// Interrupted, it prints what there is.
func TestKVReplayInterrupted(t *testing.T) {
	a := kvServer(t, engine.RegionOptions{Name: "kv"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := whenWritten(a, 4*100*57344, cancel)
	code, r, errs := replayed(ctx, t, []*engine.Engine{a}, "--region", "kv", "--requests", "10000", "--concurrency", "1", "--input-len", "100")
	ended()
	if code != exitInterrupted || r == nil || r.Metrics.Completed < 2 || r.Metrics.Completed > 9999 || r.Metrics.Completed+r.Metrics.Unfinished != 10000 || len(r.Failures) > 0 {
		t.Fatalf("code %d, %+v: %s", code, r, errs)
	}
}

func TestRankPlaces(t *testing.T) {
	for _, tt := range []struct {
		fixture string
		given   []pathsel.Location
		ranks   int
		want    string
		nodes   string // NUMA nodes of these places
	}{
		{"hgx-h100-8nic", nil, 6, "gpu:0 gpu:1 gpu:2 gpu:3 gpu:4 gpu:5", "0 0 0 0 1 1"},
		{"hgx-h100-8nic", nil, 9, "cpu:0 cpu:1 cpu:0 cpu:1 cpu:0 cpu:1 cpu:0 cpu:1 cpu:0", "0 1 0 1 0 1 0 1 0"},
		{"hgx-h100-8nic", []pathsel.Location{"cpu:1", "gpu:7"}, 3, "cpu:1 gpu:7 cpu:1", "1 1 1"},
		{"cpu-2eth", nil, 3, "cpu:0 cpu:1 cpu:0", "0 1 0"},
	} {
		top := fixturetest.Topology(t, tt.fixture)
		got, err := rankPlaces(top, tt.given, tt.ranks)
		if err != nil {
			t.Errorf("%s: %v", tt.fixture, err)
			continue
		}
		var places, nodes []string
		for _, at := range got {
			node := "-"
			if n := nodeOf(top, at); n != nil {
				node = strconv.Itoa(*n)
			}
			places, nodes = append(places, string(at)), append(nodes, node)
		}
		if strings.Join(places, " ") != tt.want || strings.Join(nodes, " ") != tt.nodes {
			t.Errorf("%s, %d ranks: %v on nodes %v, want %s on %s", tt.fixture, tt.ranks, places, nodes, tt.want, tt.nodes)
		}
	}
	if _, err := rankPlaces(fixturetest.Topology(t, "cpu-2eth"), []pathsel.Location{"gpu:0"}, 1); err == nil {
		t.Error("a GPU that is not there was taken")
	}
}

// What failed on the way is named, and rates are those that are known.
func TestKVReplayReport(t *testing.T) {
	model, err := kv.Find("qwen2.5-7b")
	if err != nil {
		t.Fatal(err)
	}
	side := kv.Side{TP: 1, PageTokens: 16}
	cache, err := kv.New(model, side, side)
	if err != nil {
		t.Fatal(err)
	}
	rate := int64(1000)
	r := &replayRun{o: &replayOptions{servingFlags: servingFlags{model: model, move: serve.Push}, peers: []string{"a:1", "b:2"}, regions: []string{"x"}}}
	r.o.prefillShape, r.o.decodeShape = kvShape{1, 1}, kvShape{2, 1}
	r.Workload = &kv.Workload{Requests: []kv.Request{{Input: 40, Output: 1}}}
	r.Serve = serve.Config{Cache: cache, Prefill: serve.Pool{Pages: 2}, Decode: serve.Pool{Pages: 2}}
	x := &replay.Result{EndNS: 2e9, Times: []kv.Times{{TokensNS: []int64{1e9}}}, Lost: []replay.Lost{{Peer: "b:2", AtNS: 1_250_000_000, Err: engine.ErrPeerLost}},
		Lanes: []replay.Lane{{Peer: "a:1", Name: "n0 > f0", Transport: "tcp", Bytes: 500, Slices: 4, Retries: 1, BytesPerSec: &rate, Error: "it broke"}, {Peer: "b:2", Name: "n1 > f1", Transport: "rdma", Bytes: 1500}}}
	doc, err := r.report(x, false)
	if err != nil {
		t.Fatal(err)
	}
	quarter := 0.25
	rest := 0.75
	want := []kvreport.Lane{{Lane: "tcp n0 > f0 (peer1)", Bytes: 500, Share: &quarter, BytesPerSec: &rate, Use: &quarter, Slices: 4, Retries: 1}, {Lane: "rdma n1 > f1 (peer2)", Bytes: 1500, Share: &rest}}
	if diff := cmp.Diff(want, doc.Lanes); diff != "" {
		t.Error(diff)
	}
	notes := []string{"peer2 (b:2) was lost 1.2 s after the start: peer is lost", "lane tcp n0 > f0 (peer1) failed: 1 slice sent again, the last error: it broke",
		`the longest request needs --memory 3MiB and "topoctl agent --region NAME=3MiB"`}
	if diff := cmp.Diff(notes, doc.Notes[:3]); diff != "" {
		t.Error(diff)
	}
	if doc.Prefill.Busy != nil || doc.Decode.Busy != nil {
		t.Error("a run that was stopped says which part of it was computed")
	}
}

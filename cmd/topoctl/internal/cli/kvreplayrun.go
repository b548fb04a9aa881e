package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/compute"
	kvlayout "github.com/topoctl/topoctl/internal/kv/layout"
	"github.com/topoctl/topoctl/internal/kv/metrics"
	"github.com/topoctl/topoctl/internal/kv/replay"
	kvreport "github.com/topoctl/topoctl/internal/kv/report"
	"github.com/topoctl/topoctl/internal/kv/serve"
)

func runKVReplay(ctx context.Context, o *kvReplayOptions) error {
	if err := writable(o.outFile); err != nil {
		return fmt.Errorf("--out-file: %w", err)
	}
	w, err := o.load.workload(ctx, o.input)
	if err != nil {
		return err
	}
	c, err := o.serving(w)
	if err != nil {
		return err
	}
	t, err := o.find(ctx)
	if err != nil {
		return err
	}
	token, stop, err := o.otherEnd(ctx)
	if err != nil {
		return err
	}
	defer stop() //nolint:errcheck // the run is over; the child ends with this process at the latest
	e, err := engine.New(ctx, engine.Options{Name: fmt.Sprintf("kv-replay-%d", os.Getpid()), Token: token, Topology: t, Policy: o.policy,
		Transports: o.rdma.transports(withTCP(o.transports))})
	if err != nil {
		return err
	}
	defer e.Close() //nolint:errcheck // what was moved is there
	run := replay.Options{Serve: *c, Workload: w, Seed: o.load.seed, Check: o.verify}
	if err := o.memories(ctx, e, &run); err != nil {
		return (&benchOptions{}).hint(err)
	}
	result, err := replay.Run(ctx, run)
	if result == nil {
		return err
	}
	r, reportErr := o.report(&run, result)
	if reportErr != nil {
		return errors.Join(err, reportErr)
	}
	ended := (&kvPredictOptions{input: o.input, format: o.format, units: o.units, outFile: o.outFile}).answer(r)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return ended
}

// serving is the serving system. How many pages there are is found out when there is memory.
func (o *kvReplayOptions) serving(w *kv.Workload) (*serve.Config, error) {
	cache, err := kvlayout.New(o.model, kvlayout.Side{TP: o.prefillShape.tp, PageTokens: o.pageTokens}, kvlayout.Side{TP: o.decodeShape.tp, PageTokens: o.pageTokens})
	if err != nil {
		return nil, withHint(err, "--prefill and --decode say how many tensor ranks an instance has")
	}
	c := &serve.Config{Cache: cache, Move: o.move, Admit: serve.After, FirstToken: serve.FromDecode, Router: serve.LeastTokens}
	if o.move == serve.PushLayers {
		c.Admit, c.LayersPerMove = serve.Beside, min(kvLayersTogether, o.model.Layers)
	}
	longest := slices.MaxFunc(w.Requests, func(a, b kv.Request) int { return a.Input - b.Input }).Input
	for _, x := range []struct {
		pool  *serve.Pool
		shape shape
		flag  string
	}{{&c.Prefill, o.prefillShape, "prefill"}, {&c.Decode, o.decodeShape, "decode"}} {
		params, err := compute.Find(o.model.Name, o.gpu, x.shape.tp, 1)
		if err != nil {
			return nil, fmt.Errorf("--%s %s: %w", x.flag, x.shape, err)
		}
		*x.pool = serve.Pool{Instances: x.shape.instances, Compute: &params, PageTokens: o.pageTokens, MaxBatchedTokens: max(kvBatchTokens, longest), MaxSequences: kvSequences}
	}
	return c, nil
}

// otherEnd is the peer's secret; without a peer an agent is started on this host.
func (o *kvReplayOptions) otherEnd(ctx context.Context) (token []byte, stop func() error, err error) {
	if o.peer != "" {
		token, err = readToken(o.tokenFile, o.streams.In, o.streams.Err)
		return token, func() error { return nil }, err
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, nil, err
	}
	token = []byte(hex.EncodeToString(secret))
	args := []string{"agent", "--listen", "127.0.0.1:0", "--token-file", "-", "--until-eof", "-o", "json", "-q", "--size", "0", "--timeout", o.globals.timeout.String()}
	for _, name := range o.regions {
		args = append(args, "--region", fmt.Sprintf("%s=%d", name, o.memory))
	}
	if o.globals.hostRoot != "" {
		args = append(args, "--host-root", o.globals.hostRoot)
	}
	var ready agentReady
	_, stop, err = child(ctx, append(args, o.rdma.args()...), append(slices.Clone(token), '\n'), &ready)
	if err != nil {
		return nil, nil, fmt.Errorf("start an agent: %w", err)
	}
	if len(ready.Addresses) == 0 {
		return nil, nil, errors.Join(errors.New("start an agent: it says no address"), stop())
	}
	o.peer = ready.Addresses[0]
	return token, stop, nil
}

// memories finds the memory of the instances, and says how many pages that is.
func (o *kvReplayOptions) memories(ctx context.Context, e *engine.Engine, run *replay.Options) error {
	c := &run.Serve
	here, there, hereSide, thereSide := &c.Prefill, &c.Decode, c.Cache.Prefill, c.Cache.Decode
	if o.move == serve.Pull {
		here, there, hereSide, thereSide = there, here, thereSide, hereSide
	}
	limited, stop := context.WithTimeout(ctx, o.globals.timeout)
	defer stop()
	peer, err := e.Open(limited, o.peer)
	if err != nil {
		return err
	}
	least := int64(0)
	for _, name := range o.regions {
		r, err := peer.Region(limited, name)
		if err != nil {
			return err
		}
		if run.Remote = append(run.Remote, r); least == 0 || r.Size() < least {
			least = r.Size()
		}
	}
	for range here.Instances {
		r, err := e.Alloc(o.memory, engine.RegionOptions{})
		if err != nil {
			return fmt.Errorf("--memory %s: %w", o.memoryText, err)
		}
		run.Local = append(run.Local, r)
	}
	if here.Pages, err = pagesIn(o.model, hereSide, o.memory, "--memory"); err == nil {
		there.Pages, err = pagesIn(o.model, thereSide, least, "--region")
	}
	return err
}

func pagesIn(m kvlayout.Model, s kvlayout.Side, size int64, flag string) (int, error) {
	page, err := replay.RegionBytes(m, s, 1)
	if err == nil && size < page {
		err = fmt.Errorf("%s: memory for no request: it has %d bytes, a page takes %d", flag, size, page)
	}
	if err != nil {
		return 0, err
	}
	return int(size / page), nil
}

// report says what came of a run.
func (o *kvReplayOptions) report(run *replay.Options, x *replay.Result) (*kvreport.Report, error) {
	w, c := run.Workload, &run.Serve
	m, err := metrics.Compute(w, x.Times, metrics.Options{SLO: o.slo})
	if err != nil {
		return nil, err
	}
	prefillAt, decodeAt := "here", "peer"
	if o.move == serve.Pull {
		prefillAt, decodeAt = decodeAt, prefillAt
	}
	decode := o.pool(&c.Decode, c.Cache.Decode, decodeAt)
	out := &kvreport.Report{Tool: topo.Tool{Name: "topoctl", Version: buildInfo().Version}, ComputeBasis: kvreport.Modelled, NetworkBasis: kvreport.Measured,
		Workload: kvreport.Workload{Name: w.Name, Requests: len(w.Requests), Seed: o.load.seed},
		Model:    kvreport.Model{Name: o.model.Name, Layers: o.model.Layers, KVBytesPerToken: o.model.BytesPerToken(), Source: o.model.Source},
		Prefill:  o.pool(&c.Prefill, c.Cache.Prefill, prefillAt), Decode: &decode,
		Serving: kvreport.Serving{Move: string(c.Move), Admit: string(c.Admit), FirstToken: string(c.FirstToken), Router: string(c.Router)},
		Network: kvreport.Network{Choice: "pathsel", Policy: string(o.policy)}, Metrics: m, Failures: failuresOf(w, x.Times),
		Hosts: []kvreport.Host{{Name: "here", Source: "this host", Prefill: prefillAt == "here", Decode: decodeAt == "here"},
			{Name: "peer", Source: o.peer, Prefill: prefillAt == "peer", Decode: decodeAt == "peer"}}}
	if w.Concurrency > 0 {
		n := w.Concurrency
		out.Workload.Concurrency = &n
	}
	if o.load.trace != "" {
		name := o.load.trace
		out.Workload.Trace = &name
	}
	if c.Move == serve.PushLayers {
		n := c.LayersPerMove
		out.Serving.LayersPerMove = &n
	}
	total := int64(0)
	for _, l := range x.Lanes {
		total += l.Bytes
	}
	for _, l := range x.Lanes {
		line := kvreport.Lane{Lane: l.Transport + " " + l.Name, Bytes: l.Bytes, Slices: l.Slices, Retries: l.Retries}
		if total > 0 {
			part := float64(l.Bytes) / float64(total)
			line.Share = &part
		}
		out.Lanes = append(out.Lanes, line)
	}
	out.Notes = append(out.Notes, fmt.Sprintf("timers were late by %d us at the median and %d us at P99: that is in the times", x.Timers.P50NS/1000, x.Timers.P99NS/1000))
	if o.verify {
		out.Notes = append(out.Notes, fmt.Sprintf("%d bytes were read back, and are as they should be: times are those of verifying", x.CheckedBytes))
	}
	return out, nil
}

func (o *kvReplayOptions) pool(p *serve.Pool, side kvlayout.Side, at string) kvreport.Pool {
	most := p.MaxSequences
	page, _ := side.RankBytes(o.model, side.PageTokens) // it was fine before
	out := kvreport.Pool{TP: side.TP, PP: 1, GPU: o.gpu, CacheBytes: page * int64(p.Pages), PageTokens: p.PageTokens, Pages: p.Pages, MaxBatchedTokens: p.MaxBatchedTokens, MaxSequences: &most}
	if params, ok := p.Compute.(*compute.Params); ok {
		out.Compute = kvreport.ComputeOf(params)
	}
	for i := range p.Instances {
		out.Instances = append(out.Instances, kvreport.Instance{Ranks: []string{fmt.Sprintf("%s:%d", at, i)}})
	}
	return out
}

// withTCP adds what goes where RDMA and shared memory do not.
func withTCP(names []string) []string {
	if slices.Contains(names, "tcp") {
		return names
	}
	return append(slices.Clone(names), "tcp")
}

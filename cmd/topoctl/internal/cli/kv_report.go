package cli

import (
	"errors"
	"slices"

	"github.com/topoctl/topoctl/internal/build"
	"github.com/topoctl/topoctl/internal/kv"

	kvreport "github.com/topoctl/topoctl/internal/kv/report"
	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/internal/sim"
)

// report says what came of a run: the first result is its own, the others are compared with it.
func (r *predictRun) report(results []*serve.Result) (*kvreport.Report, error) {
	out := r.described()
	own, err := r.metricsOf(results[0])
	if err != nil {
		return nil, err
	}
	out.Metrics = own
	if size := results[0].SliceBytes; size > 0 {
		out.Network.SliceBytes = &size
	}
	out.Prefill.Busy, out.Prefill.Preempted = kvBusy(results[0].PrefillUse, own.DurationNS)
	if out.Decode != nil {
		out.Decode.Busy, out.Decode.Preempted = kvBusy(results[0].DecodeUse, own.DurationNS)
	}
	out.Prefill.PrefixTokens, out.Prefill.PrefixHitRatio = r.prefixes(results[0].PrefillUse)
	c, err := sim.New(sim.Spec{Hosts: r.site.hosts, Fabric: r.site.fabric})
	if err != nil {
		return nil, err
	}
	out.Lanes = lanesOf(results[0].Lanes, own.DurationNS, c)
	for i, x := range results[1:] {
		m, err := r.metricsOf(x)
		if err != nil {
			return nil, err
		}
		n := r.networks[i+1]
		c := kvreport.Compared{Name: n.Name, Choice: string(n.Choice), Policy: "adaptive", Metrics: m}
		if n.Ports != nil || n.Down != nil {
			c.WhatIf = r.whatIf
		}
		if own.TTFT != nil && m.TTFT != nil && own.TTFT.Mean > 0 && !synchronizes(r.w) {
			ratio := m.TTFT.Mean / own.TTFT.Mean
			c.TTFTRatio = &ratio
		}
		out.Compared = append(out.Compared, c)
	}
	out.Failures = failuresOf(r.w, results[0].Times)
	return out, nil
}

// document is what the flags and the workload tell of a report.
func (o *servingFlags) document(w *kv.Workload, c *serve.Config) *kvreport.Report {
	out := &kvreport.Report{Tool: build.Tool(), ComputeBasis: kvreport.Modelled,
		Workload: kvreport.Workload{Name: w.Name, Requests: len(w.Requests), Seed: o.load.seed},
		Model:    kvreport.Model{Name: o.model.Name, Layers: o.model.Layers, KVBytesPerToken: o.model.BytesPerToken(), Source: o.model.Source},
		Serving: kvreport.Serving{Move: string(c.Move), Admit: string(c.Admit), FirstToken: string(c.FirstToken), Router: string(c.Router), ReserveOutput: c.ReserveOutput,
			PageOrder: string(o.layouts()[0].Order), SendBlocks: c.SendBlocks, ReceiveBlocks: c.ReceiveBlocks, HandoffNS: c.HandoffNS},
		Network: kvreport.Network{Policy: "adaptive"}}
	if w.Concurrency > 0 {
		out.Workload.Concurrency = &w.Concurrency
	}
	if o.load.trace != "" {
		out.Workload.Trace = &o.load.trace
	}
	if c.Move == serve.PushLayers {
		out.Serving.LayersPerMove = &c.LayersPerMove
	}
	return out
}

// setCapacity says what each side can compute.
func setCapacity(out *kvreport.Report, c *serve.Config, w *kv.Workload) {
	prefill, decode := c.Capacity(w)
	if prefill > 0 {
		out.Prefill.CapacityPerSec = &prefill
	}
	if out.Decode != nil && decode > 0 {
		out.Decode.CapacityPerSec = &decode
	}
}

// describePool is a side of the serving system with the names of its ranks, by instance.
func describePool(p *serve.Pool, gpu string, tp int, cacheBytes int64, ranks [][]string) kvreport.Pool {
	most := p.MaxSequences
	out := kvreport.Pool{TP: tp, PP: 1, GPU: gpu, CacheBytes: cacheBytes, PageTokens: p.PageTokens, Pages: p.Pages, MaxBatchedTokens: p.MaxBatchedTokens,
		MaxSequences: &most, Chunked: p.Chunked}
	if params, ok := p.Compute.(*serve.Params); ok {
		out.Compute = kvreport.ComputeOf(params)
	}
	for _, names := range ranks {
		out.Instances = append(out.Instances, kvreport.Instance{Ranks: names})
	}
	return out
}

// described is what was run.
func (r *predictRun) described() *kvreport.Report {
	o, c := r.o, &r.spec.Serve
	out := o.document(r.w, c)
	out.NetworkBasis, out.Prefill, out.Notes = kvreport.Simulated, r.pools[0], r.site.notes
	out.Serving.SetupNS, out.Serving.PieceNS = r.spec.SetupNS, r.spec.PieceNS
	out.Network.Leaves, out.Network.Spines, out.Network.Choice, out.Network.WhatIf = &r.site.fabric.Leaves, &r.site.fabric.Spines, string(serve.Ours), r.whatIf
	if c.Split() {
		out.Decode = &r.pools[1]
	}
	setCapacity(out, c, r.w)
	if o.fabricFile != "" {
		name := o.fabricFile
		out.Network.FabricFile = &name
	}
	for i, h := range r.site.hosts {
		out.Hosts = append(out.Hosts, kvreport.Host{Name: h.Name, Source: r.site.sources[i], Prefill: runsOn(r.spec.Prefill, i), Decode: runsOn(r.spec.Decode, i)})
	}
	out.Notes = append(out.Notes, r.caveats()...)
	if synchronizes(r.w) && len(r.networks) > 1 {
		out.Notes = append(out.Notes, "networks are not compared: with a fixed concurrency and equal lengths, requests synchronize, and small differences of the network have large effects; use --rate or --input-range to compare")
	}
	return out
}

// synchronizes says whether the requests of a workload fall into step, so that any difference shifts
// the whole pattern: at a fixed concurrency, with equal lengths.
func synchronizes(w *kv.Workload) bool {
	return w.Concurrency > 0 && !slices.ContainsFunc(w.Requests, func(x kv.Request) bool {
		return x.Input != w.Requests[0].Input || x.Output != w.Requests[0].Output
	})
}

// caveats are what a reader of the figures should know of this run.
func (r *predictRun) caveats() []string {
	var out []string
	keeps := r.spec.Serve.Prefill.PrefixPages > 0
	switch shared := slices.ContainsFunc(r.w.Requests, func(x kv.Request) bool { return x.Blocks != nil }); {
	case shared && !keeps:
		out = append(out, "shared prefixes of prompts are not reused: each prompt is computed in full (--prefix-memory reuses them)")
	case !shared && keeps:
		out = append(out, "--prefix-memory has no effect: the trace has no hash_ids, so no prompts share a prefix")
	case keeps && r.spec.Serve.Split():
		out = append(out, "a reused prefix moves like the rest of its prompt: decode keeps nothing of earlier prompts here")
	}
	split := func(x serve.Instance) bool {
		return slices.ContainsFunc(x, func(at serve.Rank) bool { return at.Host != x[0].Host })
	}
	if slices.ContainsFunc(r.spec.Prefill, split) || slices.ContainsFunc(r.spec.Decode, split) {
		out = append(out, "traffic between the ranks of an instance on several hosts is not simulated; compute times may include it")
	}
	return out
}

// prefixes sums up what prefill found of earlier prompts.
func (r *predictRun) prefixes(uses []serve.Use) (found *int64, ratio *float64) {
	if r.spec.Serve.Prefill.PrefixPages == 0 {
		return nil, nil
	}
	var n, all int64
	for i := range uses {
		n += uses[i].CachedTokens
		all += uses[i].CachedTokens + uses[i].Computed
	}
	if all == 0 {
		return &n, nil
	}
	part := float64(n) / float64(all)
	return &n, &part
}

// kvBusy sums up what instances did.
func kvBusy(uses []serve.Use, durationNS *int64) (part *float64, preempted *int64) {
	if durationNS == nil || *durationNS == 0 || len(uses) == 0 {
		return nil, nil
	}
	var ns float64
	var again int64
	for i := range uses {
		ns += float64(uses[i].BusyNS)
		again += uses[i].Preempted
	}
	ns /= float64(len(uses)) * float64(*durationNS)
	return &ns, &again
}

func runsOn(instances []serve.Instance, host int) bool {
	for _, ranks := range instances {
		for _, at := range ranks {
			if at.Host == host {
				return true
			}
		}
	}
	return false
}

// failuresOf gathers the reasons why requests have no answer.
func failuresOf(w *kv.Workload, times []kv.Times) []kvreport.Failure {
	var out []kvreport.Failure
	at := map[string]int{}
	for i := range times {
		why := times[i].Failed
		if why == nil || errors.Is(why, kv.ErrStopped) {
			continue
		}
		k, known := at[why.Kind]
		if !known {
			k = len(out)
			at[why.Kind] = k
			f := kvreport.Failure{First: i, Reason: why.Error()}
			if line := w.Requests[i].Line; line > 0 {
				f.Line = &line
			}
			out = append(out, f)
		}
		out[k].Requests++
	}
	return out
}

// lanesOf says what each lane carried, and which part that is of what it should carry.
func lanesOf(lanes []serve.Lane, durationNS *int64, c *sim.Cluster) []kvreport.Lane {
	var out []kvreport.Lane
	for i := range lanes {
		l := &lanes[i]
		out = append(out, kvreport.Lane{Lane: l.Name, Bytes: l.Bytes, Slices: l.Slices, Retries: l.Retries, BytesPerSec: laneRate(c, l)})
	}
	setShares(out, durationNS)
	return out
}

// setShares fills in what part of all bytes, and of its rate, each lane carried.
func setShares(lanes []kvreport.Lane, durationNS *int64) {
	total := int64(0)
	for i := range lanes {
		total += lanes[i].Bytes
	}
	for i := range lanes {
		l := &lanes[i]
		if total > 0 {
			part := float64(l.Bytes) / float64(total)
			l.Share = &part
		}
		if l.BytesPerSec != nil && *l.BytesPerSec > 0 && durationNS != nil && *durationNS > 0 {
			use := float64(l.Bytes) / (float64(*l.BytesPerSec) * float64(*durationNS) / 1e9)
			l.Use = &use
		}
	}
}

// laneRate is the lowest rate between the ports of a lane, nil where none is known.
func laneRate(c *sim.Cluster, l *serve.Lane) *int64 {
	path, err := c.Path(l.From, l.To, 0)
	if err != nil {
		return nil
	}
	var least *int64
	for _, link := range path {
		if rate, ok := c.Rate(link); ok && (least == nil || int64(rate) < *least) {
			v := int64(rate)
			least = &v
		}
	}
	return least
}

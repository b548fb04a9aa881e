package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/internal/kv"

	kvreport "github.com/topoctl/topoctl/internal/kv/report"
	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// What the modelled serving system has, as vLLM has it by default: sequences that run at once,
// and tokens of prompts that a step takes, unless a prompt is longer. Layers that move while a
// prompt is computed go in fours, so that pieces of them are not too small.
const (
	maxSequences   = 256
	maxBatchTokens = 8192
	layersTogether = 4
)

func (o *predictOptions) run(ctx context.Context) error {
	if err := o.outFile.Check(); err != nil {
		return err
	}
	w, err := o.load.workload(ctx, o.Host)
	if err != nil {
		return err
	}
	site, err := o.site(ctx)
	if err != nil {
		return err
	}
	run, err := o.prepare(w, site)
	if err != nil {
		return err
	}
	bar := status{in: o.Host}
	results, err := interruptible(ctx, func() ([]*serve.Result, error) {
		return serve.Compare(run.spec, run.networks, func(which int) {
			bar.show(fmt.Sprintf("predicting %s: %s (%d of %d)", text.Plural(len(w.Requests), "request"), run.networks[which].Name, which+1, len(run.networks)))
		})
	})
	bar.end()
	if err != nil {
		return predictHint(err)
	}
	r, err := run.report(results)
	if err != nil {
		return err
	}
	return o.answer(r, func() string { return run.advice(results[0].Times) })
}

// layouts are how caches are stored on both sides. Where these have different numbers of ranks, the tokens of a
// head follow each other, as vLLM's NIXL connector wants it then: a rank gets one piece of each page, and not
// one of each token.
func (o *servingFlags) layouts() [2]kv.Side {
	order := kv.NHD
	if o.decodeShape.instances > 0 && o.prefillShape.tp != o.decodeShape.tp {
		order = kv.HND
	}
	return [2]kv.Side{{TP: o.prefillShape.tp, PageTokens: o.pageTokens, Order: order}, {TP: o.decodeShape.tp, PageTokens: o.pageTokens, Order: order}}
}

// config is the serving system of the flags, without its pools and caches.
func (o *servingFlags) config() serve.Config {
	c := serve.Config{Move: o.move, Admit: serve.After, FirstToken: serve.FromDecode, Router: serve.LeastTokens}
	if o.move == serve.PushLayers { // there must be memory before the first layers come
		c.Admit, c.LayersPerMove = serve.Beside, min(layersTogether, o.model.Layers)
	}
	return c
}

// pool is what the instances of a side do with a workload, without its pages.
func (o *servingFlags) pool(w *kv.Workload, s kvShape, params *serve.Params) serve.Pool {
	longest := slices.MaxFunc(w.Requests, func(a, b kv.Request) int { return a.Input - b.Input }).Input
	p := serve.Pool{Instances: s.instances, Compute: params, PageTokens: o.pageTokens, MaxBatchedTokens: max(maxBatchTokens, longest), MaxSequences: maxSequences}
	if o.chunk > 0 {
		p.Chunked, p.MaxBatchedTokens = true, o.chunk
	}
	return p
}

// predictRun is a run that is ready to go.
type predictRun struct {
	o        *predictOptions
	w        *kv.Workload
	site     *kvSite
	spec     serve.Spec
	networks []serve.Network // the first is this run's
	whatIf   []string
	pools    [2]kvreport.Pool
}

// prepare puts a run together.
func (o *predictOptions) prepare(w *kv.Workload, site *kvSite) (*predictRun, error) {
	r := &predictRun{o: o, w: w, site: site}
	sides := o.layouts()
	c := o.config()
	var err error
	if c.Prefill, err = r.pool(0, &site.prefill, sides[0]); err == nil {
		err = r.keepPrefixes(&c.Prefill, sides[0])
	}
	if err != nil {
		return nil, err
	}
	if o.decodeShape.instances > 0 {
		if c.Decode, err = r.pool(1, &site.decode, sides[1]); err != nil {
			return nil, err
		}
		if c.Cache, err = kv.New(o.model, sides[0], sides[1]); err != nil {
			return nil, withHint(err, "--prefill and --decode set the number of tensor ranks of an instance")
		}
	}
	r.spec = serve.Spec{Hosts: site.hosts, Fabric: site.fabric, Prefill: site.prefill.instances, Decode: site.decode.instances, Serve: c, Workload: w, Seed: o.load.seed,
		SetupNS: o.setup.Nanoseconds(), PieceNS: o.piece.Nanoseconds()}
	return r, r.addNetworks()
}

// pool is what the instances of a side are to the serving system, and in the report.
func (r *predictRun) pool(which int, p *sidePool, side kv.Side) (serve.Pool, error) {
	params, err := serve.Find(r.o.model.Name, p.gpu, p.shape.tp, 1)
	if err != nil {
		return serve.Pool{}, fmt.Errorf("--%s %s: %w", p.side, p.shape, err)
	}
	memory, err := serve.CacheBytes(r.o.model.Name, p.gpu, p.shape.tp, 1)
	if err != nil {
		return serve.Pool{}, withHint(fmt.Errorf("--%s %s: %w", p.side, p.shape, err), "%s", r.memoryHint(p))
	}
	page, err := side.RankBytes(r.o.model, side.PageTokens)
	if err != nil {
		return serve.Pool{}, withHint(fmt.Errorf("--%s %s: %w", p.side, p.shape, err), "--prefill and --decode set the number of tensor ranks of an instance")
	}
	pages := int(memory / page)
	if pages < 1 {
		return serve.Pool{}, withHint(fmt.Errorf("--page-tokens %d: not enough memory for one page: it takes %d bytes on each rank, which has %d", side.PageTokens, page, memory), "use fewer")
	}
	pool := r.o.pool(r.w, p.shape, &params)
	pool.Pages = pages
	var names [][]string
	for _, ranks := range p.instances {
		var list []string
		for _, at := range ranks {
			list = append(list, r.site.hosts[at.Host].Name+":"+string(at.Location))
		}
		names = append(names, list)
	}
	r.pools[which] = describePool(&pool, p.gpu, p.shape.tp, memory, names)
	return pool, nil
}

// memoryHint is the next step where the weights do not fit: more ranks to share them, if the hosts
// have the GPUs.
func (r *predictRun) memoryHint(p *sidePool) string {
	larger := p.shape
	for larger.tp *= 2; larger.tp <= maxRanks; larger.tp *= 2 {
		_, tooSmall := serve.CacheBytes(r.o.model.Name, p.gpu, larger.tp, 1)
		_, uneven := kv.Side{TP: larger.tp, PageTokens: r.o.pageTokens}.RankBytes(r.o.model, r.o.pageTokens)
		if uneven != nil {
			break
		}
		if tooSmall != nil {
			continue
		}
		for _, larger.instances = range []int{p.shape.instances, 1} {
			if r.site.hasRoom(p, larger) {
				return fmt.Sprintf("use more ranks, which share the weights: --%s %s", p.side, larger)
			}
		}
		return fmt.Sprintf("it needs %d ranks of %s, more GPUs than the hosts of %s have free: add hosts (--%s-hosts), or choose a smaller --model", larger.tp, p.gpu, p.side, p.side)
	}
	return "choose a smaller --model, or hosts whose GPUs have more memory"
}

// keepPrefixes gives prefill instances memory for prompts that are over.
func (r *predictRun) keepPrefixes(pool *serve.Pool, side kv.Side) error {
	if r.o.prefixBytes == 0 {
		return nil
	}
	page, err := side.RankBytes(r.o.model, side.PageTokens)
	if err != nil {
		return err
	}
	page *= int64(side.TP)
	pool.PrefixPages = int(r.o.prefixBytes / page)
	if block := (page*kv.BlockTokens + int64(side.PageTokens) - 1) / int64(side.PageTokens); pool.PrefixPages*side.PageTokens < kv.BlockTokens {
		return fmt.Errorf("--prefix-memory %s: want at least one block of %d tokens, which takes %s on %s", sizeText(r.o.prefixBytes), kv.BlockTokens, units.Bytes(block), text.Plural(side.TP, "rank"))
	}
	r.pools[0].PrefixBytes = &r.o.prefixBytes
	return nil
}

// addNetworks lists this run's network and those that it is compared with.
func (r *predictRun) addNetworks() error {
	this := serve.Network{Name: "this run", Choice: serve.Ours}
	plain := this
	plain.Name = "without what-ifs"
	for _, text := range r.o.nics {
		ports, err := r.site.ports("nics", text, true)
		if err != nil {
			return err
		}
		if this.Ports == nil {
			this.Ports = ports
			continue
		}
		for h, more := range ports {
			for _, id := range more {
				if !slices.Contains(this.Ports[h], id) {
					this.Ports[h] = append(this.Ports[h], id)
				}
			}
		}
	}
	for h := range r.site.hosts {
		for _, id := range this.Ports[h] {
			r.whatIf = append(r.whatIf, fmt.Sprintf("only %s/%s is used", r.site.hosts[h].Name, portName(r.site.hosts[h], id)))
		}
	}
	for _, text := range r.o.downs {
		ports, err := r.site.ports("down", text, false)
		if err != nil {
			return err
		}
		for h, ids := range ports {
			for _, id := range ids {
				this.Down = append(this.Down, serve.Port{Host: h, Port: id})
				r.whatIf = append(r.whatIf, fmt.Sprintf("%s/%s is down", r.site.hosts[h].Name, portName(r.site.hosts[h], id)))
			}
		}
	}
	r.networks = []serve.Network{this}
	if len(r.whatIf) > 0 {
		r.networks = append(r.networks, plain)
	}
	if r.o.compare {
		for _, x := range []struct {
			name   string
			choice serve.Choice
		}{{"infinite network", serve.Infinite}, {"best NIC alone", serve.BestNIC}, {"random NIC", serve.RandomNIC}} {
			other := this
			other.Name, other.Choice = x.name, x.choice
			r.networks = append(r.networks, other)
		}
	}
	return nil
}

// predictHint says what to do where ranks do not reach each other.
func predictHint(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return withHint(err, "use \"topoctl path gpu:0 --peer FILE\" to see which ports reach each other, and check --fabric and --nics")
}

// advice is the next step where no request can be answered.
func (r *predictRun) advice(times []kv.Times) string {
	if len(times) > 0 && errors.Is(times[0].Failed, sched.ErrDeadline) {
		return "no lane moved any data: check --down, --nics and --fabric"
	}
	for _, p := range []*sidePool{&r.site.prefill, &r.site.decode} {
		larger := kvShape{p.shape.instances, 2 * p.shape.tp}
		_, uneven := kv.Side{TP: larger.tp, PageTokens: r.o.pageTokens}.RankBytes(r.o.model, r.o.pageTokens)
		if p.shape.instances > 0 && uneven == nil && r.site.hasRoom(p, larger) {
			return fmt.Sprintf("use shorter requests, or instances with more ranks, such as --%s %s", p.side, larger)
		}
	}
	return "use shorter requests, or hosts with more GPUs"
}

// answer prints a report, and says by an error what it comes to. advice is the next step where no
// request has an answer.
func (o *servingFlags) answer(r *kvreport.Report, advice func() string) error {
	if r.Metrics.Completed == 0 {
		return noAnswer(r.Failures, advice())
	}
	if err := o.put(r); err != nil {
		return err
	}
	if r.Metrics.Failed+r.Metrics.Unfinished > 0 {
		return errBad
	}
	return nil
}

// noAnswer is the error where no request can be answered.
func noAnswer(failures []kvreport.Failure, advice string) error {
	why := "none has completed"
	if len(failures) > 0 {
		why = failures[0].Reason
		if failures[0].Line != nil {
			why = fmt.Sprintf("line %d: %s", *failures[0].Line, why)
		}
	}
	return withHint(fmt.Errorf("no request can be answered: %s", why), "%s", advice)
}

// put prints a report.
func (o *servingFlags) put(r *kvreport.Report) error {
	look := kvreport.Options{Units: o.units, Width: o.Streams.Width, All: o.all}
	return o.print(answer{doc: r, svg: r.SVG, html: func() ([]byte, error) { return r.HTML(look) }, text: func() string { return r.Text(look) }}, o.outFile)
}

// metricsOf sums a result up.
func (r *predictRun) metricsOf(x *serve.Result) (*kv.Metrics, error) {
	return kv.Compute(r.w, x.Times, kv.Options{SLO: r.o.slo, MemoryFirst: r.spec.Serve.Admit == serve.Before})
}

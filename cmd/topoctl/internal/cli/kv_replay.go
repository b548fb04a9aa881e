package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/kv/replay"
	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

type replayOptions struct {
	servingFlags
	peers       []string
	own         bool // the peer is an agent that is started here
	credentials Credentials
	registry    Registry
	regions     []string // that each peer has
	placeTexts  []string
	locations   []pathsel.Location
	transports  Transports
	verify      bool
	memory      int64 // of an instance
}

func newReplayCmd(f *Env) *cobra.Command {
	opts := &replayOptions{servingFlags: servingFlags{Host: f.Host()}}
	cmd := newCommand(opts, "replay", "Run a workload in real time, with real transfers through the engine")
	opts.add(cmd)
	return cmd
}

func (o *replayOptions) add(cmd *cobra.Command) {
	o.servingFlags.add(cmd, "`GPU` to model", "decode instances and tensor ranks of each (`NxtpN`)")
	fl := cmd.Flags()
	Var(cmd, &o.memory, "memory", "1GiB", "`SIZE` of the caches of each instance here (without --peer, also of those in the agent), all ranks together", parseBytes)
	fl.StringSliceVar(&o.peers, "peer", nil, "`HOST:PORT` of an agent, or its name in --registry; repeatable (default: an agent that replay starts on this host)")
	o.credentials.Add(cmd)
	o.registry.Add(cmd, "find --peer by name in the registry at `URL`, such as etcd://HOST/PREFIX")
	fl.StringSliceVar(&o.regions, "region", nil, "`NAME` of a region of each peer for caches, one for each instance or rank; repeatable")
	fl.StringSliceVar(&o.placeTexts, "location", nil, "`LOCATIONS` of ranks on this host, in turn, such as cpu:0,cpu:1")
	o.transports.Add(cmd, "`TRANSPORT` to use: rdma, tcp, shm, or auto to let the engine choose; repeatable")
	fl.BoolVar(&o.verify, "check", false, "read every cache back and verify it; the times include this")
	Offer(cmd, map[string]completer{"memory": Words("1GiB", "4GiB"), "location": WordList("cpu:0", "cpu:1", "gpu:0", "gpu:1")})
	mainFlags(cmd, "peer", "token-file", "region")
	Uses(cmd, "host-root", "timeout", "quiet", "verbose", "units")
	Lasts(cmd)
	Formats(cmd, formatTable, formatJSON, formatSVG, formatHTML)
}

func (o *replayOptions) parse(cmd *cobra.Command, _ []string) (err error) {
	if err := cmp.Or(o.credentials.Check(cmd), o.registry.Check(), checkTogether(cmd, forPeers)); err != nil {
		return err
	}
	for _, text := range o.placeTexts {
		o.locations = append(o.locations, pathsel.Location(text))
	}
	if err := o.check(cmd); err != nil {
		return err
	}
	if o.gpu == "" {
		return withHint(errors.New("no GPU: want --gpu NAME"), "this is the GPU to model; this host needs none")
	}
	if o.decodeShape, err = parseShape(o.decodeText); err != nil {
		return fmt.Errorf("--decode %w", err)
	}
	if err := o.transports.Check(cmd); err != nil {
		return err
	}
	return o.parsePeers()
}

func (o *replayOptions) parsePeers() error {
	if o.own = len(o.peers) == 0; o.own {
		return nil
	}
	for i, text := range o.peers {
		at, err := o.registry.Peer(text)
		if err != nil {
			return err
		}
		if slices.Contains(o.peers[:i], at) {
			return fmt.Errorf("--peer %s is given twice", at)
		}
		o.peers[i] = at
	}
	for i, name := range o.regions {
		if slices.Contains(o.regions[:i], name) {
			return withHint(fmt.Errorf("--region %s is given twice", name), "each peer has its own region of that name")
		}
	}
	_, there := o.sides()
	if o.regionsEach() == 0 {
		want := text.Plural(there.instances, "instance")
		if there.tp > 1 {
			want += fmt.Sprintf(" of %d ranks", there.tp)
		}
		return withHint(fmt.Errorf("--region: %s at %s cannot be divided among %s", text.Plural(len(o.regions), "name"), text.Plural(len(o.peers), "peer"), want),
			"all peers together need one region for each instance, or one for each rank; \"topoctl agent --region NAME=SIZE\" serves one")
	}
	return nil
}

// regionsEach is how many regions of the peers an instance there has; 0: they cannot be shared out.
func (o *replayOptions) regionsEach() int {
	_, there := o.sides()
	all := len(o.peers) * len(o.regions)
	each := all / there.instances
	if each == 0 || all%there.instances != 0 || there.tp%each != 0 {
		return 0
	}
	return each
}

// sides are the shapes here and at the peers.
func (o *replayOptions) sides() (here, there kvShape) {
	if o.move == serve.Pull {
		return o.decodeShape, o.prefillShape
	}
	return o.prefillShape, o.decodeShape
}

// kvPlacement are where the ranks of this host have their caches, instance by instance; "" is
// not known.
type kvPlacement struct {
	t           *topo.Topology
	here, there []pathsel.Location // there: of an agent that is started here
	unbound     bool               // memory here is not on the NUMA nodes of its places
}

// place gives the ranks of this host their places; those of prefill come first.
func (o *replayOptions) place(t *topo.Topology) (*kvPlacement, error) {
	here, there := o.sides()
	n := here.instances * here.tp
	all := n
	if o.own {
		all += there.instances * there.tp
	}
	at, err := rankPlaces(t, o.locations, all)
	if err != nil {
		return nil, err
	}
	p := &kvPlacement{t: t, here: at[:n], there: at[n:]}
	if o.move == serve.Pull {
		p.here, p.there = at[all-n:], at[:all-n]
	}
	return p, nil
}

// rankPlaces are those that were given, in order and round again. Otherwise the GPUs, or round
// the NUMA nodes where there are fewer GPUs than ranks.
func rankPlaces(t *topo.Topology, given []pathsel.Location, ranks int) ([]pathsel.Location, error) {
	h, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		return nil, err
	}
	known := h.Locations()
	for _, l := range given {
		if !slices.Contains(known, l) {
			return nil, unknownLocation(fmt.Errorf("--location %q: this host has no such location", l), known)
		}
	}
	out := make([]pathsel.Location, ranks)
	if given == nil {
		if len(known) == 0 {
			return out, nil
		}
		consumers, err := h.Ranks(ranks)
		if err != nil {
			return nil, withHint(err, "use --location to set the locations of ranks on this host")
		}
		for i := range consumers {
			given = append(given, consumers[i].Location)
		}
	}
	for i := range out {
		out[i] = given[i%len(given)]
	}
	return out, nil
}

// allocate makes the memory of the instances here, a region for each rank.
func (o *replayOptions) allocate(e *engine.Engine, p *kvPlacement) ([][]*engine.Region, error) {
	var out [][]*engine.Region
	here, _ := o.sides()
	tp := here.tp
	for i, at := range p.here {
		nodes := nodesAt(p.t, at)
		p.unbound = p.unbound || nodes == nil && nodeOf(p.t, at) != nil
		r, err := e.Alloc(o.memory/int64(tp), engine.RegionOptions{Location: at, Memory: memory.Options{Nodes: nodes}})
		if err != nil {
			return nil, withHint(fmt.Errorf("--memory %s for each of %s here: %w", sizeText(o.memory), text.Plural(len(p.here)/tp, "instance"), err), "use less memory or fewer instances")
		}
		if i%tp == 0 {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r)
	}
	return out, nil
}

func (o *replayOptions) run(ctx context.Context) error {
	if err := o.outFile.Check(); err != nil {
		return err
	}
	waiting, stop := o.Waiting(ctx)
	defer stop()
	credentials, err := o.credentials.Read(waiting, o.Host, nil)
	if err != nil {
		return err
	}
	w, err := o.load.workload(waiting, o.Host)
	if err != nil {
		return err
	}
	c, err := o.serving(w)
	if err != nil {
		return err
	}
	t, err := o.Find(waiting)
	if err != nil {
		return err
	}
	places, err := o.place(t)
	if err != nil {
		return err
	}
	if o.own {
		a, err := o.startAgent(ctx, places)
		if err != nil {
			return err
		}
		defer a.Stop() //nolint:errcheck // the run is over
		credentials = a.Credentials
	}
	names, err := o.registry.Open(waiting, o.Host, nil)
	if err != nil {
		return err
	}
	if names != nil {
		defer names.Close() //nolint:errcheck // it only finds peers
	}
	e, err := engine.New(ctx, engine.Options{Name: fmt.Sprintf("kv-replay-%d", os.Getpid()), Registry: finder(names), Security: engine.Security{Credentials: credentials, Protection: o.transports.Protection}, Ports: engine.Ports{Topology: t},
		Transports: o.transports.Factories(append(slices.Clone(o.transports.Names), "tcp")...)})
	if err != nil {
		return err
	}
	defer e.Close() //nolint:errcheck // what was moved is there
	run := &replayRun{o: o, Options: replay.Options{Serve: *c, Workload: w, Seed: o.load.seed, Check: o.verify}}
	if err := run.memories(waiting, e); err != nil {
		return err
	}
	// Making a large memory resident takes seconds and cannot be stopped.
	if run.Local, err = interruptible(ctx, func() ([][]*engine.Region, error) { return o.allocate(e, places) }); err != nil {
		return err
	}
	run.unbound = places.unbound
	return run.replay(ctx)
}

// replayRun is a run that is ready to go.
type replayRun struct {
	o *replayOptions
	replay.Options
	unbound bool // memory here is not on the NUMA nodes of its places
}

func (r *replayRun) replay(ctx context.Context) error {
	if err := r.checkMemory(); err != nil {
		return err
	}
	if q := r.Workload.Requests; !r.o.Globals.Quiet && len(q) > 0 {
		at := "an agent on this host"
		if !r.o.own {
			at = text.Plural(len(r.o.peers), "peer")
		}
		fmt.Fprintf(r.o.Streams.Err, "topoctl: %s with %s, %s; the last request arrives after %v or later\n", text.Plural(len(q), "request"), at, text.Printable(r.Workload.Name),
			time.Duration(q[len(q)-1].ArriveNS).Round(time.Millisecond))
	}
	result, err := replay.Run(ctx, r.Options)
	if result == nil {
		return err
	}
	report, reportErr := r.report(result, err == nil)
	if reportErr != nil {
		return errors.Join(err, reportErr)
	}
	if ctx.Err() != nil {
		if result.Transfers > 0 || report.Metrics.Completed > 0 {
			if err := r.o.put(report); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
	return r.o.answer(report, func() string {
		if more := r.needs(); more != "" {
			return more
		}
		return "use \"topoctl bench --peer HOST:PORT\" to check the connection to a peer"
	})
}

// checkMemory says before the run which requests can never be answered, and fails if that is all.
func (r *replayRun) checkMemory() error {
	times, never := make([]kv.Times, len(r.Workload.Requests)), 0
	for i := range times {
		if times[i].Failed = r.Serve.WhyImpossible(&r.Workload.Requests[i]); times[i].Failed != nil {
			never++
		}
	}
	failures := failuresOf(r.Workload, times)
	if never > 0 && never == len(times) {
		return noAnswer(failures, cmp.Or(r.needs(), "use shorter prompts, or --chunk"))
	}
	if never > 0 && !r.o.Globals.Quiet {
		fmt.Fprintf(r.o.Streams.Err, "topoctl: %d of %d requests cannot be answered: %s\n", never, len(times), failures[0].Reason)
	}
	return nil
}

// needs says what memory the longest request takes where there is not enough for it; else "".
func (r *replayRun) needs() string {
	prompt, all := 0, 0
	for i := range r.Workload.Requests {
		q := &r.Workload.Requests[i]
		prompt, all = max(prompt, q.Input), max(all, q.Input+q.Output-1)
	}
	here, there := int64(0), int64(0) // bytes of an instance
	for _, x := range []struct {
		pool   *serve.Pool
		side   kv.Side
		tokens int
		here   bool
	}{{&r.Serve.Prefill, r.Serve.Cache.Prefill, prompt, r.o.move != serve.Pull}, {&r.Serve.Decode, r.Serve.Cache.Decode, all, r.o.move == serve.Pull}} {
		pages := x.side.Pages(x.tokens)
		size, err := replay.RegionBytes(r.o.model, x.side, pages)
		switch {
		case err != nil || pages <= x.pool.Pages:
		case x.here || r.o.own:
			here = max(here, size)
		default:
			there = size
		}
	}
	var out []string
	if here > 0 {
		out = append(out, fmt.Sprintf("--memory %dMiB", mebibytes(here)))
	}
	if there > 0 {
		out = append(out, fmt.Sprintf("\"topoctl agent --region NAME=%dMiB\"", mebibytes(there/int64(r.o.regionsEach()))))
	}
	if out == nil {
		return ""
	}
	return "the longest request needs " + strings.Join(out, " and ")
}

// mebibytes is the number of MiB that hold that many bytes.
func mebibytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }

// serving is the serving system. How many pages there are is found out when there is memory.
func (o *replayOptions) serving(w *kv.Workload) (*serve.Config, error) {
	sides := o.layouts()
	cache, err := kv.New(o.model, sides[0], sides[1])
	if err != nil {
		return nil, withHint(err, "--prefill and --decode set the number of tensor ranks of an instance")
	}
	c := o.config()
	c.Cache = cache
	for _, x := range []struct {
		pool  *serve.Pool
		shape kvShape
		flag  string
	}{{&c.Prefill, o.prefillShape, "prefill"}, {&c.Decode, o.decodeShape, "decode"}} {
		params, err := serve.Find(o.model.Name, o.gpu, x.shape.tp, 1)
		if err != nil {
			return nil, fmt.Errorf("--%s %s: %w", x.flag, x.shape, err)
		}
		*x.pool = o.pool(w, x.shape, &params)
	}
	return &c, nil
}

// startAgent starts the other side on this host, with a region for each of its ranks.
func (o *replayOptions) startAgent(ctx context.Context, places *kvPlacement) (*childAgent, error) {
	args := []string{"--size", "0"}
	_, there := o.sides()
	for i, at := range places.there {
		name := fmt.Sprintf("kv%d", i)
		text := fmt.Sprintf("%s=%d", name, o.memory/int64(there.tp))
		if at != "" {
			text += "@" + string(at)
		}
		o.regions, args = append(o.regions, name), append(args, "--region", text)
	}
	a, err := startAgent(ctx, o.Host, &o.transports.RDMA, args...)
	if err != nil {
		return nil, withHint(err, "--memory %s is needed for each instance, here and in the agent", sizeText(o.memory))
	}
	o.peers = []string{a.Address}
	return a, nil
}

// memories finds the memory of the peers, and how many pages instances have on both sides.
func (r *replayRun) memories(ctx context.Context, e *engine.Engine) error {
	o, c := r.o, &r.Serve
	here, there, hereSide, thereSide := &c.Prefill, &c.Decode, c.Cache.Prefill, c.Cache.Decode
	if o.move == serve.Pull {
		here, there, hereSide, thereSide = there, here, thereSide, hereSide
	}
	var err error
	if here.Pages, err = o.pagesIn(hereSide, hereSide.TP, o.memory/int64(hereSide.TP), "--memory"); err != nil {
		return err
	}
	least := int64(-1)
	for _, address := range o.peers {
		found, err := o.regionsAt(ctx, e, address)
		if err != nil {
			return err
		}
		for _, x := range found {
			if last := len(r.Remote) - 1; last < 0 || len(r.Remote[last]) == o.regionsEach() {
				r.Remote = append(r.Remote, nil)
			}
			last := len(r.Remote) - 1
			r.Remote[last] = append(r.Remote[last], x)
			if least < 0 || x.Size() < least {
				least = x.Size()
			}
		}
	}
	if o.own {
		there.Pages, err = o.pagesIn(thereSide, len(r.Remote[0]), least, "--memory")
	} else if there.Pages, err = o.pagesIn(thereSide, len(r.Remote[0]), least, "--region"); err != nil {
		err = withHint(err, "use \"topoctl agent --region NAME=SIZE\" there for a larger region")
	}
	return err
}

// regionsAt opens a peer and finds its regions.
func (o *replayOptions) regionsAt(ctx context.Context, e *engine.Engine, address string) ([]*engine.RemoteRegion, error) {
	p, err := e.Open(ctx, address)
	if err != nil {
		return nil, o.peerHint(ctx, err, address)
	}
	var out []*engine.RemoteRegion
	limited, stop := context.WithTimeout(ctx, bench.RegionTime)
	defer stop()
	for _, name := range o.regions {
		x, err := p.Region(limited, name)
		if err != nil {
			return nil, o.regionHint(ctx, err, p, name)
		}
		out = append(out, x)
	}
	return out, nil
}

// pagesIn is how many pages an instance has whose regions have at least that many bytes; of regions
// that are larger than any run can use, a part is used.
func (o *replayOptions) pagesIn(s kv.Side, regions int, size int64, flag string) (int, error) {
	page, err := replay.RegionBytes(o.model, s, 1)
	page /= int64(regions)
	if err == nil && size < page {
		err = fmt.Errorf("%s: not enough memory for one page: there are %d bytes for %s, and a page of %d tokens takes %d", flag, size, text.Plural(s.TP/regions, "rank"), s.PageTokens, page)
	}
	if err != nil {
		return 0, err
	}
	return int(min(size/page, replay.MaxPages)), nil
}

// peerHint says what to do where a peer cannot be opened.
func (o *replayOptions) peerHint(ctx context.Context, err error, address string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	err = fmt.Errorf("--peer %s: %w", address, pkgerr.Plain(err))
	if o.registry.Given() && errors.Is(err, engine.ErrNoPeer) {
		return o.registry.Hint(err)
	}
	return peerHint(advise(advise(err, peerAdvice...), advice{engine.ErrNoPeer, "--peer is the --listen address of \"topoctl agent\" on the other host"}))
}

// regionHint says what to do where a peer has no such region.
func (o *replayOptions) regionHint(ctx context.Context, err error, p *engine.Peer, name string) error {
	if !errors.Is(err, engine.ErrNoRegion) {
		return o.peerHint(ctx, fmt.Errorf("--region %s: %w", name, err), p.Name())
	}
	err = fmt.Errorf("--region %s: the peer at %s has no such region", name, p.Name())
	var known []string
	if list, asked := p.Regions(ctx); asked == nil {
		for _, r := range list {
			known = append(known, r.Name())
		}
	}
	serves := fmt.Sprintf("start \"topoctl agent --region %s=SIZE\" there", name)
	if near := text.Closest(name, known); near != "" {
		return withHint(err, "did you mean %q? Otherwise, %s", near, serves)
	}
	if len(known) > 0 {
		return withHint(err, "it has %s; %s", text.List(known, 8), serves)
	}
	return withHint(err, "%s", serves)
}

package serving

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/cli/peers"
	"github.com/topoctl/topoctl/internal/app/cli/transfer"
	"github.com/topoctl/topoctl/internal/app/kv"
	"github.com/topoctl/topoctl/internal/app/kv/compute"
	kvlayout "github.com/topoctl/topoctl/internal/app/kv/layout"
	"github.com/topoctl/topoctl/internal/app/kv/replay"
	"github.com/topoctl/topoctl/internal/app/kv/serve"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
	"github.com/topoctl/topoctl/internal/base/text"
)

func runReplay(ctx context.Context, o *kvReplayOptions) error {
	if err := command.Writable(o.outFile); err != nil {
		return fmt.Errorf("--out-file: %w", err)
	}
	token, err := peers.ReadToken(o.tokenFile, o.Streams.In, o.Streams.Err)
	if err != nil {
		return err
	}
	w, err := o.load.workload(ctx, o.Host)
	if err != nil {
		return err
	}
	c, err := o.serving(w)
	if err != nil {
		return err
	}
	t, err := o.Find(ctx)
	if err != nil {
		return err
	}
	places, err := o.place(t)
	if err != nil {
		return err
	}
	if o.own {
		var stop func() error
		if token, stop, err = o.startAgent(ctx, places); err != nil {
			return err
		}
		defer stop() //nolint:errcheck // the run is over; the child ends with this process at the latest
	}
	e, err := engine.New(ctx, engine.Options{Name: fmt.Sprintf("kv-replay-%d", os.Getpid()), Token: token, Ports: engine.Ports{Topology: t}, Policy: string(o.policy),
		Transports: o.rdma.Transports(withTCP(o.transports))})
	if err != nil {
		return err
	}
	defer e.Close() //nolint:errcheck // what was moved is there
	run := &kvReplayRun{o: o, Options: replay.Options{Serve: *c, Workload: w, Seed: o.load.seed, Check: o.verify}}
	if err := run.memories(ctx, e, places); err != nil {
		return err
	}
	return run.replay(ctx)
}

// kvReplayRun is a run that is ready to go.
type kvReplayRun struct {
	o *kvReplayOptions
	replay.Options
	unbound bool // memory here is not on the NUMA nodes of its places
}

func (r *kvReplayRun) replay(ctx context.Context) error {
	if q := r.Workload.Requests; !r.o.Globals.Quiet && len(q) > 0 {
		at := "an agent started here"
		if !r.o.own {
			at = text.Plural(len(r.o.peers), "peer")
		}
		fmt.Fprintf(r.o.Streams.Err, "topoctl: %s with %s, %s; the last request comes at %v or later\n", text.Plural(len(q), "request"), at, text.Printable(r.Workload.Name),
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
	return r.o.answer(report, func(string) string {
		if more := r.needs(); more != "" {
			return more
		}
		return "\"topoctl bench --peer HOST:PORT\" says how a peer is reached"
	})
}

// needs says what memory the longest request takes where there is not enough for it; else "".
func (r *kvReplayRun) needs() string {
	prompt, all := 0, 0
	for i := range r.Workload.Requests {
		q := &r.Workload.Requests[i]
		prompt, all = max(prompt, q.Input), max(all, q.Input+q.Output-1)
	}
	here, there := int64(0), int64(0) // bytes of an instance
	for _, x := range []struct {
		pool   *serve.Pool
		side   kvlayout.Side
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

// mebibytes are those that hold so many bytes.
func mebibytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }

// serving is the serving system. How many pages there are is found out when there is memory.
func (o *kvReplayOptions) serving(w *kv.Workload) (*serve.Config, error) {
	cache, err := kvlayout.New(o.model, kvlayout.Side{TP: o.prefillShape.tp, PageTokens: o.pageTokens}, kvlayout.Side{TP: o.decodeShape.tp, PageTokens: o.pageTokens})
	if err != nil {
		return nil, command.WithHint(err, "--prefill and --decode say how many tensor ranks an instance has")
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
		if o.chunk > 0 {
			x.pool.Chunked, x.pool.MaxBatchedTokens = true, o.chunk
		}
	}
	return c, nil
}

// startAgent starts the other side on this host, with a region for each of its ranks.
func (o *kvReplayOptions) startAgent(ctx context.Context, places *kvPlaces) (token []byte, stop func() error, err error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, nil, err
	}
	token = []byte(hex.EncodeToString(secret))
	args := []string{"agent", "--listen", "127.0.0.1:0", "--token-file", "-", "--until-eof", "-o", "json", "-q", "--size", "0", "--timeout", o.Globals.Timeout.String()}
	_, there := o.sides()
	for i, at := range places.there {
		name := fmt.Sprintf("kv%d", i)
		text := fmt.Sprintf("%s=%d", name, o.memory/int64(there.tp))
		if at != "" {
			text += "@" + string(at)
		}
		o.regions, args = append(o.regions, name), append(args, "--region", text)
	}
	if o.Globals.HostRoot != "" {
		args = append(args, "--host-root", o.Globals.HostRoot)
	}
	var ready transfer.AgentReady
	_, stop, err = transfer.StartChild(ctx, append(args, o.rdma.Args()...), append(slices.Clone(token), '\n'), &ready)
	if ctx.Err() != nil {
		return nil, nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, nil, command.WithHint(fmt.Errorf("start an agent: %w", err), "--memory %s is for each instance, here and there", o.memoryText)
	}
	if len(ready.Addresses) == 0 {
		return nil, nil, errors.Join(errors.New("start an agent: it says no address"), stop())
	}
	o.peers = ready.Addresses[:1]
	return token, stop, nil
}

// memories finds the memory of the instances, and says how many pages that is.
func (r *kvReplayRun) memories(ctx context.Context, e *engine.Engine, places *kvPlaces) error {
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
		err = command.WithHint(err, "\"topoctl agent --region NAME=SIZE\" there gives more")
	}
	if err != nil {
		return err
	}
	r.Local, err = o.allocate(e, places, hereSide.TP)
	r.unbound = places.unbound
	return err
}

// regionsAt opens a peer and finds its regions, in the time that --timeout gives each peer.
func (o *kvReplayOptions) regionsAt(ctx context.Context, e *engine.Engine, address string) ([]*engine.RemoteRegion, error) {
	limited, stop := context.WithTimeout(ctx, o.Globals.Timeout)
	defer stop()
	p, err := e.Open(limited, address)
	if err != nil {
		return nil, o.peerHint(ctx, err, address)
	}
	var out []*engine.RemoteRegion
	for _, name := range o.regions {
		x, err := p.Region(limited, name)
		if err != nil {
			return nil, o.regionHint(ctx, err, p, name)
		}
		out = append(out, x)
	}
	return out, nil
}

// pagesIn is how many pages an instance has whose regions have at least so many bytes; of regions
// that are larger than any run can use, a part is used.
func (o *kvReplayOptions) pagesIn(s kvlayout.Side, regions int, size int64, flag string) (int, error) {
	page, err := replay.RegionBytes(o.model, s, 1)
	page /= int64(regions)
	if err == nil && size < page {
		err = fmt.Errorf("%s: memory for no request: there are %d bytes for %s, a page of %d tokens takes %d", flag, size, text.Plural(s.TP/regions, "rank"), s.PageTokens, page)
	}
	if err != nil {
		return 0, err
	}
	return int(min(size/page, replay.MostPages)), nil
}

// peerHint says what to do where a peer cannot be opened.
func (o *kvReplayOptions) peerHint(ctx context.Context, err error, address string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = fmt.Errorf("--peer %s: %w", address, pkgerr.Plain(err))
	if errors.Is(err, engine.ErrToken) {
		if o.tokenFile == "" {
			return command.WithHint(err, "--token-file FILE: the one that \"topoctl agent\" was started with; all peers need the same")
		}
		return command.WithHint(err, "all peers need the same --token-file as this side")
	}
	if errors.Is(err, engine.ErrNoPeer) {
		return command.WithHint(err, "--peer is the --listen address of \"topoctl agent\" at the other end")
	}
	return (&transfer.BenchOptions{}).Hint(err)
}

// regionHint says what to do where a peer has no such region.
func (o *kvReplayOptions) regionHint(ctx context.Context, err error, p *engine.Peer, name string) error {
	if !errors.Is(err, engine.ErrNoRegion) {
		return o.peerHint(ctx, fmt.Errorf("--region %s: %w", name, err), p.Name())
	}
	err = fmt.Errorf("--region %s: the peer at %s has no such region", name, p.Name())
	var known []string
	limited, stop := context.WithTimeout(ctx, o.Globals.Timeout)
	defer stop()
	if list, asked := p.Regions(limited); asked == nil {
		for _, r := range list {
			known = append(known, r.Name())
		}
	}
	serves := fmt.Sprintf("\"topoctl agent --region %s=SIZE\" there serves it", name)
	if near := command.Closest(name, known); near != "" {
		return command.WithHint(err, "did you mean %q? %s", near, serves)
	}
	if len(known) > 0 {
		return command.WithHint(err, "it has %s; %s", text.List(known, 8), serves)
	}
	return command.WithHint(err, "%s", serves)
}

// withTCP adds what goes where RDMA and shared memory do not.
func withTCP(names []string) []string {
	if slices.Contains(names, "tcp") {
		return names
	}
	return append(slices.Clone(names), "tcp")
}

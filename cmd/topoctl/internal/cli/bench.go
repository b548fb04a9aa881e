package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/units"
)

// benchOptions are the flags of topoctl bench.
type benchOptions struct {
	*Host
	credentials Credentials
	registry    Registry
	http        []string
	job         bench.Options
	transports  Transports
	measured    Measured
	typed       benchFlags
}

// benchFlags are the flags as they are typed.
type benchFlags struct {
	ops, sizes, lanes []string
	failLane          string
	seed              uint64
}

func newBenchCmd(f *Env) *cobra.Command {
	opts := &benchOptions{Host: f.Host()}
	cmd := newCommand(opts, "bench", "Benchmark transfers to a peer")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return withHint(fmt.Errorf("unexpected argument %q", args[0]), "name the peer by a flag: %q", "topoctl bench --peer "+args[0])
	}
	opts.addFlags(cmd)
	Offer(cmd, map[string]completer{
		"size":     WordList("4KiB", "64KiB", "1MiB", "16MiB"),
		"duration": Words("1s", "5s", "10s"), "memory": Words("256MiB", "1GiB"),
	})
	mainFlags(cmd, "peer", "token-file", "op", "size", "transport", "duration", "check")
	Uses(cmd, "host-root", "timeout", "quiet", "verbose", "units")
	Lasts(cmd)
	Formats(cmd, formatTable, formatJSON)
	return cmd
}

func (o *benchOptions) addFlags(cmd *cobra.Command) {
	fl, r, typed := cmd.Flags(), &o.job, &o.typed
	fl.StringVar(&r.Peer, "peer", "", "`HOST:PORT` of the peer, or its name in --registry (default: an agent that bench starts on this host)")
	o.credentials.Add(cmd)
	o.registry.Add(cmd, "find --peer by name in the registry at `URL`, such as etcd://HOST/PREFIX")
	fl.StringVar(&r.Region, "region", benchRegion, "`NAME` of the peer's region")
	wordListFlag(cmd, &typed.ops, "op", []string{engine.Write.String(), engine.Read.String()}, "`OP` to measure: read or write, as seen from this host; repeatable", []string{engine.Read.String(), engine.Write.String()})
	fl.StringSliceVar(&typed.sizes, "size", []string{"4KiB", "64KiB", "1MiB"}, "`SIZE` of each op; repeatable")
	intFlag(cmd, &r.Batch, "batch", 0, 0, 1<<20, "`N` ops in a batch (default: as many as make 16 MiB, at most 128)")
	intFlag(cmd, &r.Threads, "threads", 1, 1, 1<<20, "number `N` of threads that submit batches")
	intFlag(cmd, &r.InFlight, "in-flight", 2, 1, 1<<20, "number `N` of batches that each thread has in flight")
	timeFlag(cmd, &r.Duration, "duration", time.Second, 1, unbounded, "`TIME` of each measurement")
	timeFlag(cmd, &r.Warmup, "warmup", 200*time.Millisecond, 0, unbounded, "`TIME` before each measurement that is not counted")
	o.transports.Add(cmd, "`TRANSPORT` to use: rdma, tcp, shm, or auto to let the engine choose; repeatable")
	fl.StringArrayVar(&typed.lanes, "lanes", nil, "use only lane `NAME` (repeatable), or a number for the best lanes")
	Var(cmd, &r.Memory, "memory", units.Bytes(benchDefault), "`SIZE` of the memory used on each side", parseBytes)
	fl.BoolVar(&r.Check, "check", false, "verify every byte, also of writes by reading them back; the rates include this")
	fl.StringVar(&typed.failLane, "fail-lane", "", "fail lane NAME at `NAME@TIME` of each measurement; NAME@TIME+DURATION restores it")
	fl.StringSliceVar(&o.http, "http", nil, "serve HTTP on `ADDRESS` during the run (host:port; without a host, only to this host); repeatable")
	fl.Uint64Var(&typed.seed, "seed", 0, "`SEED` of the data for --check; 0 for a random one")
	o.measured.Add(cmd)
}

func (o *benchOptions) parse(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(o.measured.Check(cmd), o.parsePeer(cmd), httpAddresses(o.http, o.credentials.Given()), o.parseLists(), o.parseLanes(o.typed.lanes), o.transports.Check(cmd)); err != nil {
		return err
	}
	r, typed := &o.job, &o.typed
	if typed.failLane != "" {
		var err error
		if r.Fault, err = parseFault(typed.failLane, r.Duration); err != nil {
			return err
		}
	}
	if r.Seed = typed.seed; r.Seed == 0 {
		r.Seed = rand.Uint64()
	}
	r.Transports, r.Now = o.transports.Names, o.Now
	return nil
}

func (o *benchOptions) parsePeer(cmd *cobra.Command) error {
	err := cmp.Or(o.credentials.Check(cmd), o.registry.Check(), checkTogether(cmd, forPeers))
	if err != nil || o.job.Peer == "" {
		return err
	}
	o.job.Peer, err = o.registry.Peer(o.job.Peer)
	return err
}

// parseLists reads the flags that take several values.
func (o *benchOptions) parseLists() error {
	for _, word := range o.typed.ops {
		kind := engine.Write
		if word == engine.Read.String() {
			kind = engine.Read
		}
		o.job.Ops = append(o.job.Ops, kind)
	}
	for _, text := range o.typed.sizes {
		size, err := parseBytes(text)
		if err != nil {
			return fmt.Errorf("--size %w", err)
		}
		if slices.Contains(o.job.Sizes, size) {
			return fmt.Errorf("--size %s is given twice", text)
		}
		o.job.Sizes = append(o.job.Sizes, size)
	}
	return nil
}

func (o *benchOptions) parseLanes(given []string) error {
	for _, text := range given {
		n, err := strconv.Atoi(text)
		switch {
		case err != nil:
			o.job.Lanes = append(o.job.Lanes, text)
		case n < 1:
			return fmt.Errorf("--lanes %d: want 1 or more", n)
		case len(given) > 1:
			return errors.New("--lanes: want one number, or names")
		default:
			o.job.LaneCount = n
		}
	}
	return nil
}

// parseFault reads "eth1@3s" or "eth1@3s+2s".
func parseFault(text string, duration time.Duration) (*bench.FaultPlan, error) {
	at := strings.LastIndexByte(text, '@')
	if at < 1 {
		return nil, fmt.Errorf("--fail-lane %q: want NAME@TIME, such as eth1@3s", text)
	}
	p := &bench.FaultPlan{Lane: text[:at]}
	when, length, both := strings.Cut(text[at+1:], "+")
	var err error
	if p.At, err = time.ParseDuration(when); err == nil && both {
		p.For, err = time.ParseDuration(length)
	}
	switch {
	case err != nil || p.At < 0 || both && p.For <= 0:
		return nil, fmt.Errorf("--fail-lane %q: want NAME@TIME, such as eth1@3s, or NAME@TIME+DURATION", text)
	case p.At+p.For >= duration:
		return nil, withHint(fmt.Errorf("--fail-lane %s: a measurement ends after %s", text, duration), "use --duration %s or more", p.At+p.For+2*time.Second)
	}
	return p, nil
}

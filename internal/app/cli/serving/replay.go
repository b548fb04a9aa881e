package serving

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/app/bench"
	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/cli/peers"
	"github.com/topoctl/topoctl/internal/app/kv/serve"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
	"github.com/topoctl/topoctl/pathsel"
)

type kvReplayOptions struct {
	kvServing
	memoryText string
	peers      []string
	own        bool // the peer is an agent that is started here
	tokenFile  string
	regions    []string // that each peer has
	placeTexts []string
	locations  []pathsel.Location
	transports []string
	rdma       peers.RDMA
	verify     bool
	memory     int64 // of an instance
}

func newKVReplayCmd(f *command.Env, runF func(context.Context, *kvReplayOptions) error) *cobra.Command {
	opts := &kvReplayOptions{kvServing: kvServing{Host: f.Host()}}
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Work a workload off in real time, with real bytes through the engine",
		Long: "replay is predict without a simulated network: requests come when they come, computing is\n" +
			"waited for by the same formulas, and each KV cache moves between this process and peers by\n" +
			"the engine, page by page and rank by rank. A run takes as long as it says.\n\n" +
			"Prefill is here and decode at the peers; with --mode pull it is the other way round. A peer\n" +
			"is \"topoctl agent\", and each one has all regions that --region names. In order, peer by\n" +
			"peer, they are shared out among the instances there: one for each, or several, each for as\n" +
			"many of its ranks. Without --peer an agent is started on this host. How much memory there\n" +
			"is for caches, --memory says; at peers, the regions do.\n\n" +
			"Caches are in host memory, but lanes are those of the place that memory says it has. Ranks\n" +
			"here are at the GPUs in order, or go round the NUMA nodes where there are fewer GPUs;\n" +
			"--location says otherwise. At a peer \"topoctl agent --region NAME=SIZE@LOCATION\" says it.\n\n" +
			"A peer that dies costs the requests that it has; those that come later go to the others. The\n" +
			"exit code is 1 if a request has no answer. Interrupted, it prints what was measured.",
		Example: "  topoctl kv replay --model llama-3.1-8b --gpu a10 --requests 20 --rate 2 --output-len 6\n" +
			"  topoctl agent --listen 10.0.0.2:7411 --token-file token --region kv=4GiB\n" +
			"  topoctl kv replay --peer 10.0.0.2:7411 --token-file token --region kv --model qwen3-32b --gpu h20 --prefill tp4 --decode tp4 --rate 1\n" +
			"  topoctl kv replay --peer 10.0.0.2 --peer 10.0.0.3 --token-file token --region kv0,kv1 --model qwen3-32b --gpu h20 \\\n" +
			"      --prefill 2xtp4 --decode 4xtp4 --rate 1",
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.parse(f, cmd); err != nil {
				return err
			}
			return runF(cmd.Context(), opts)
		},
	}
	opts.add(cmd)
	return cmd
}

func (o *kvReplayOptions) add(cmd *cobra.Command) {
	o.kvServing.add(cmd, "compute as `GPU` does", "decode on `INSTANCES`xtpRANKS")
	fl := cmd.Flags()
	fl.StringVar(&o.memoryText, "memory", "1GiB", "`SIZE` of the caches of each instance here, all ranks together; without --peer also there")
	fl.StringSliceVar(&o.peers, "peer", nil, "the other side is the agent at `HOST:PORT`; repeatable (without it one is started on this host)")
	fl.StringVar(&o.tokenFile, "token-file", "", "the secret that peers want is in `FILE` (its first line), - is standard input")
	fl.StringSliceVar(&o.regions, "region", nil, "each peer keeps caches in its region `NAME`; repeatable: one for each instance there, or for each rank")
	fl.StringSliceVar(&o.placeTexts, "location", nil, "ranks on this host keep their caches at `LOCATIONS`, such as cpu:0,cpu:1, in order and round again")
	fl.StringSliceVar(&o.transports, "transport", []string{bench.Auto}, "over `TRANSPORT`: rdma, tcp, shm, or auto, which is the engine's choice; repeatable")
	fl.BoolVar(&o.verify, "check", false, "read every cache back and verify it; times are then those of verifying")
	o.rdma.Add(cmd)
	command.Offer(cmd, map[string]command.Completer{"memory": command.Words("1GiB", "4GiB"), "peer": command.Words(), "region": command.Words(), "location": command.WordList("cpu:0", "cpu:1", "gpu:0", "gpu:1"),
		"transport": command.WordList(peers.Transports...)})
	command.Uses(cmd, "host-root", "timeout", "quiet", "verbose", "output", "json", "units")
	command.Formats(cmd, command.FormatTable, command.FormatJSON, command.FormatSVG, command.FormatHTML)
}

func (o *kvReplayOptions) parse(f *command.Env, cmd *cobra.Command) error {
	var err error
	if o.format, err = f.Format(cmd); err != nil {
		return err
	}
	if err := errors.Join(command.CheckHost(cmd), o.Choose(f)); err != nil {
		return err
	}
	o.units = units.System(f.Globals.Units).Or(units.Gbyte)
	if cmd.Flags().Changed("token-file") && o.tokenFile == "" {
		return errors.New("--token-file is empty")
	}
	for _, list := range []struct {
		flag  string
		given []string
	}{{"peer", o.peers}, {"region", o.regions}, {"location", o.placeTexts}} {
		if cmd.Flags().Changed(list.flag) && (len(list.given) == 0 || slices.Contains(list.given, "")) {
			return fmt.Errorf("--%s is empty", list.flag)
		}
	}
	for _, text := range o.placeTexts {
		o.locations = append(o.locations, pathsel.Location(text))
	}
	if err := o.check(cmd); err != nil {
		return err
	}
	if o.gpu == "" {
		return command.WithHint(errors.New("no GPU: want --gpu NAME"), "what it computes is modelled; this host needs none")
	}
	if o.decodeShape, err = parseShape(o.decodeText); err != nil {
		return fmt.Errorf("--decode %w", err)
	}
	if o.memory, err = command.ParseBytes(strings.ReplaceAll(o.memoryText, " ", "")); err != nil {
		return fmt.Errorf("--memory %w", err)
	}
	if err := errors.Join(command.CheckWords("transport", o.transports, peers.Transports), o.rdma.Check(cmd, peers.UsesRDMA(o.transports))); err != nil {
		return err
	}
	return o.parsePeers()
}

func (o *kvReplayOptions) parsePeers() error {
	if o.own = len(o.peers) == 0; o.own {
		for _, name := range []struct {
			flag  string
			given bool
		}{{"token-file", o.tokenFile != ""}, {"region", len(o.regions) > 0}} {
			if name.given {
				return fmt.Errorf("--%s has no effect without --peer: the agent is then started here", name.flag)
			}
		}
		return nil
	}
	for i, text := range o.peers {
		at, err := peers.Address(text)
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
			return command.WithHint(fmt.Errorf("--region %s is given twice", name), "each peer has its own of that name; give it once")
		}
	}
	_, there := o.sides()
	if o.regionsEach() == 0 {
		want := text.Plural(there.instances, "instance")
		if there.tp > 1 {
			want += fmt.Sprintf(" of %d ranks", there.tp)
		}
		return command.WithHint(fmt.Errorf("--region: %s at %s cannot be shared out among %s", text.Plural(len(o.regions), "name"), text.Plural(len(o.peers), "peer"), want),
			"every peer has each of them; together there must be one for each instance there, or one for each rank: \"topoctl agent --region NAME=SIZE\" serves one")
	}
	return nil
}

// regionsEach is how many regions of the peers an instance there has; 0: they cannot be shared out.
func (o *kvReplayOptions) regionsEach() int {
	_, there := o.sides()
	all := len(o.peers) * len(o.regions)
	each := all / there.instances
	if each == 0 || all%there.instances != 0 || there.tp%each != 0 {
		return 0
	}
	return each
}

// sides are the shapes here and at the peers.
func (o *kvReplayOptions) sides() (here, there shape) {
	if o.move == serve.Pull {
		return o.decodeShape, o.prefillShape
	}
	return o.prefillShape, o.decodeShape
}

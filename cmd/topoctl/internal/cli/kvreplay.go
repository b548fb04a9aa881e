package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/kv/compute"
	kvlayout "github.com/topoctl/topoctl/internal/kv/layout"
	"github.com/topoctl/topoctl/internal/kv/metrics"
	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

type kvReplayOptions struct {
	*input
	format string
	load   kvLoad
	units  units.System

	modelName, gpu            string
	prefillText, decodeText   string
	mode, policyName          string
	memoryText                string
	pageTokens                int
	sloText                   []string
	outFile                   string
	peer, tokenFile           string
	regions                   []string // of the peer, one for each instance there
	transports                []string
	rdma                      rdmaFlags
	verify                    bool
	model                     kvlayout.Model
	move                      serve.Move
	policy                    pathsel.Policy
	slo                       metrics.SLO
	memory                    int64 // of an instance
	prefillShape, decodeShape shape
}

func newKVReplayCmd(f *factory, runF func(context.Context, *kvReplayOptions) error) *cobra.Command {
	opts := &kvReplayOptions{input: f.input()}
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Work a workload off in real time, with real bytes through the engine",
		Long: "replay is predict without a simulated network: requests come when they come, computing is\n" +
			"waited for by the same formulas, and each KV cache moves from this process to a peer by the\n" +
			"engine, page by page and rank by rank. A run takes as long as it says.\n\n" +
			"Prefill is here and decode at the peer; with --mode pull it is the other way round. The peer\n" +
			"is \"topoctl agent\" with a region for each instance, named by --region. Without --peer an agent\n" +
			"is started on this host. How much memory there is for caches, --memory says; there, the regions do.\n\n" +
			"The exit code is 1 if a request has no answer. Interrupted, it prints what was measured.",
		Example: "  topoctl kv replay --model llama-3.1-8b --gpu a10 --requests 20 --rate 2 --output-len 6\n" +
			"  topoctl agent --listen 10.0.0.2:7411 --token-file token --region kv=4GiB\n" +
			"  topoctl kv replay --peer 10.0.0.2:7411 --token-file token --region kv --model qwen3-32b --gpu h20 --prefill tp4 --decode tp4 --rate 1",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.parse(f, cmd); err != nil {
				return err
			}
			return runF(cmd.Context(), opts)
		},
	}
	opts.load.add(cmd)
	opts.add(cmd)
	return cmd
}

func (o *kvReplayOptions) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&o.modelName, "model", "", "whose KV cache moves: `MODEL`, such as llama-3.1-8b")
	fl.StringVar(&o.gpu, "gpu", "", "compute as `GPU` does")
	fl.StringVar(&o.prefillText, "prefill", "1xtp1", "prefill on `INSTANCES`xtpRANKS, such as 2xtp4")
	fl.StringVar(&o.decodeText, "decode", "1xtp1", "decode on `INSTANCES`xtpRANKS")
	fl.StringVar(&o.mode, "mode", kvModeNames[0], "move a cache by `MODE`: push or pull once a prompt is computed, or layers while it is")
	fl.IntVar(&o.pageTokens, "page-tokens", 16, "keep the cache in pages of `N` tokens")
	fl.StringVar(&o.policyName, "policy", string(pathsel.Adaptive), "share a transfer among lanes by `POLICY`: "+either(pathsel.Policies()))
	fl.StringSliceVar(&o.sloText, "slo", nil, "count requests that meet `LIMITS`, such as ttft=500ms,tpot=50ms; also e2e")
	fl.StringVar(&o.outFile, "out-file", "", "write the output to `FILE`, in one step")
	fl.StringVar(&o.memoryText, "memory", "1GiB", "`SIZE` of the caches of each instance here, all ranks together; without --peer also there")
	fl.StringVar(&o.peer, "peer", "", "the other side is the agent at `HOST:PORT` (without it one is started on this host)")
	fl.StringVar(&o.tokenFile, "token-file", "", "the secret that the peer wants is in `FILE` (its first line), - is standard input")
	fl.StringSliceVar(&o.regions, "region", nil, "the peer keeps the caches of an instance in its region `NAME`; one for each instance there")
	fl.StringSliceVar(&o.transports, "transport", []string{bench.Auto}, "over `TRANSPORT`: rdma, tcp, shm, or auto, which is the engine's choice; repeatable")
	fl.BoolVar(&o.verify, "check", false, "read every cache back and verify it; times are then those of verifying")
	o.rdma.add(cmd)
	var names []string
	for _, m := range kvlayout.Models() {
		names = append(names, strings.ToLower(m.Name))
	}
	offer(cmd, map[string]completer{
		"model": words(names...), "gpu": words(gpuNames()...), "mode": words(kvModeNames...), "policy": words(pathsel.Policies()...),
		"prefill": words(), "decode": words(), "slo": wordList("ttft=", "tpot=", "e2e="), "memory": words("1GiB", "4GiB"),
		"peer": words(), "region": words(), "transport": wordList(benchTransports...),
	})
	uses(cmd, "host-root", "timeout", "quiet", "verbose", "output", "json", "units")
	formats(cmd, formatTable, formatJSON)
}

func (o *kvReplayOptions) parse(f *factory, cmd *cobra.Command) error {
	var err error
	if o.format, err = f.format(cmd); err != nil {
		return err
	}
	if err := errors.Join(checkInput(cmd), o.choose(f)); err != nil {
		return err
	}
	o.units = units.System(f.globals.units).Or(units.Gbyte)
	for _, name := range []string{"gpu", "trace", "out-file", "peer", "token-file"} {
		if fl := cmd.Flag(name); fl.Changed && fl.Value.String() == "" {
			return fmt.Errorf("--%s is empty", name)
		}
	}
	if err := errors.Join(checkWords("mode", []string{o.mode}, kvModeNames), checkWords("transport", o.transports, benchTransports)); err != nil {
		return err
	}
	o.move = kvModes[o.mode]
	if err := errors.Join(o.parseModel(), o.rdma.check(cmd, usesRDMA(o.transports))); err != nil {
		return err
	}
	if err := o.parsePeer(); err != nil {
		return err
	}
	if o.slo, err = parseSLO(o.sloText); err != nil {
		return fmt.Errorf("--slo %w", err)
	}
	if o.memory, err = parseBytes(strings.ReplaceAll(o.memoryText, " ", "")); err != nil {
		return fmt.Errorf("--memory %w", err)
	}
	if o.pageTokens < 1 || o.pageTokens > 1<<16 {
		return fmt.Errorf("--page-tokens %d: want 1 to %d", o.pageTokens, 1<<16)
	}
	return o.load.check(cmd)
}

// parseModel finds out what computes.
func (o *kvReplayOptions) parseModel() error {
	if o.modelName == "" {
		return withHint(errors.New("no model: want --model NAME"), "known are %s", strings.ToLower(strings.Join(modelNames(), ", ")))
	}
	var err error
	if o.model, err = kvlayout.Find(o.modelName); err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	if o.gpu == "" {
		return withHint(errors.New("no GPU: want --gpu NAME"), "what it computes is modelled; this host needs none")
	}
	g, err := compute.FindGPU(o.gpu)
	if err != nil {
		return fmt.Errorf("--gpu: %w", err)
	}
	o.gpu = g.Name
	if o.prefillShape, err = parseShape(o.prefillText); err != nil {
		return fmt.Errorf("--prefill %w", err)
	}
	if o.decodeShape, err = parseShape(o.decodeText); err != nil {
		return fmt.Errorf("--decode %w", err)
	}
	if o.policy, err = pathsel.ParsePolicy(o.policyName); err != nil {
		return fmt.Errorf("--policy %q: want %s", o.policyName, either(pathsel.Policies()))
	}
	return nil
}

func (o *kvReplayOptions) parsePeer() error {
	_, there := o.sides()
	if o.peer == "" {
		for _, name := range []struct {
			flag  string
			given bool
		}{{"token-file", o.tokenFile != ""}, {"region", len(o.regions) > 0}} {
			if name.given {
				return fmt.Errorf("--%s has no effect without --peer: the agent is then started here", name.flag)
			}
		}
		for i := range there.instances {
			o.regions = append(o.regions, fmt.Sprintf("kv%d", i))
		}
		return nil
	}
	if len(o.regions) != there.instances || slices.Contains(o.regions, "") {
		return withHint(fmt.Errorf("--region: %d names for %s at the peer", len(o.regions), plural(there.instances, "instance")),
			"\"topoctl agent --region NAME=SIZE\" there, and --region NAME here for each of them")
	}
	var err error
	o.peer, err = peerAddress(o.peer)
	return err
}

// sides are the shapes here and at the peer.
func (o *kvReplayOptions) sides() (here, there shape) {
	if o.move == serve.Pull {
		return o.decodeShape, o.prefillShape
	}
	return o.prefillShape, o.decodeShape
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/kv/compute"
	kvlayout "github.com/topoctl/topoctl/internal/kv/layout"
	"github.com/topoctl/topoctl/internal/kv/metrics"
	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/internal/kv/workload"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

type kvPredictOptions struct {
	*input
	format string
	load   kvLoad
	units  units.System

	modelName, gpu            string
	prefillText, decodeText   string
	hostFlags                 []string
	prefillHosts, decodeHosts []string
	fabricFile                string
	mode, policyName          string
	chunk                     int
	pageTokens                int
	nics, downs, sloText      []string
	compare                   bool
	outFile                   string
	model                     kvlayout.Model
	move                      serve.Move
	policy                    pathsel.Policy
	slo                       metrics.SLO
	prefillShape, decodeShape shape
}

// shape is how many instances of how many tensor ranks there are.
type shape struct{ instances, tp int }

// kvModes are the values of --mode and what they are to the serving system.
var kvModes = map[string]serve.Move{"push": serve.Push, "layers": serve.PushLayers, "pull": serve.Pull}

var kvModeNames = []string{"push", "layers", "pull"}

func newKVPredictCmd(f *factory, runF func(context.Context, *kvPredictOptions) error) *cobra.Command {
	opts := &kvPredictOptions{input: f.input()}
	cmd := &cobra.Command{
		Use:   "predict",
		Short: "Predict times to first token on described hosts and networks",
		Long: "predict works a workload off on hosts that need not be there. How long GPUs compute is\n" +
			"modelled by formula; the network is simulated with the lanes and policies that real\n" +
			"transfers use. Nothing is measured, and the output says so.\n\n" +
			"Hosts are files that --from reads, or " + fixturePrefix + "NAME. The first one prefills and the second\n" +
			"one decodes, unless --prefill-hosts and --decode-hosts say otherwise; instances take the\n" +
			"GPUs of their hosts in order. Without --fabric one switch joins all ports for data.\n\n" +
			"Requests are generated (--requests, --rate or --concurrency, --input-len, --output-len), read\n" +
			"from Mooncake's trace format (--trace), or drawn with the statistics of Mooncake's\n" +
			"conversation trace (--conversation).\n\n" +
			"--nics and --down ask what if: the same run without them stands beside it. --compare adds\n" +
			"an infinite network, the best NIC alone and a random NIC.\n\n" +
			"The columns are those of vLLM's serving benchmark, by its definitions. The exit code is 1\n" +
			"if a request has no answer.",
		Example: "  topoctl kv predict --model llama-3.1-8b --host p=fixture:a10-2nic --host d=fixture:a10-2nic --rate 2 --output-len 6\n" +
			"  topoctl kv predict --model qwen3-32b --prefill 2xtp4 --decode 1xtp4 --host p=fixture:hgx-h20-8nic \\\n" +
			"      --host d=fixture:hgx-h20-8nic --concurrency 16 --mode layers --compare\n" +
			"  topoctl kv predict --model llama-3.1-8b --host p=fixture:a10-2nic --host d=fixture:a10-2nic --rate 2 --down p/mlx5_1\n" +
			"  topoctl kv predict --model llama-3.1-70b --prefill 1xtp8 --decode 1xtp8 --host p=p.json --host d=d.json --trace trace.jsonl -o json",
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

func (o *kvPredictOptions) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&o.modelName, "model", "", "whose KV cache moves: `MODEL`, such as llama-3.1-8b")
	fl.StringVar(&o.gpu, "gpu", "", "compute as `GPU` does, whatever the hosts have")
	fl.StringArrayVar(&o.hostFlags, "host", nil, "`NAME=FILE` is a host, also NAME="+fixturePrefix+"NAME; repeatable")
	fl.StringVar(&o.fabricFile, "fabric", "", "`FILE` with leaf and rail of each port, and the uplinks of leaves (topoctl.fabric/v1)")
	fl.StringVar(&o.prefillText, "prefill", "1xtp1", "prefill on `INSTANCES`xtpRANKS, such as 2xtp4")
	fl.StringVar(&o.decodeText, "decode", "1xtp1", "decode on `INSTANCES`xtpRANKS, or none: the instances of --prefill do both")
	fl.StringSliceVar(&o.prefillHosts, "prefill-hosts", nil, "prefill on the hosts of `NAMES` (without it on the first)")
	fl.StringSliceVar(&o.decodeHosts, "decode-hosts", nil, "decode on the hosts of `NAMES` (without it on the second; on the first where it is the only one)")
	fl.StringVar(&o.mode, "mode", kvModeNames[0], "move a cache by `MODE`: push or pull once a prompt is computed, or layers while it is")
	fl.IntVar(&o.pageTokens, "page-tokens", 16, "keep the cache in pages of `N` tokens")
	fl.IntVar(&o.chunk, "chunk", 0, "compute prompts in parts, `N` tokens in a step at most (without it at once)")
	fl.StringSliceVar(&o.nics, "nics", nil, "what if only the ports of `NAMES` are used: on each host that has them, or HOST/PORT")
	fl.StringArrayVar(&o.downs, "down", nil, "what if the port at `HOST/PORT` is down; repeatable")
	fl.StringVar(&o.policyName, "policy", string(pathsel.Adaptive), "share a transfer among lanes by `POLICY`: "+either(pathsel.Policies()))
	fl.BoolVar(&o.compare, "compare", false, "run it over an infinite network, the best NIC alone and a random NIC as well")
	fl.StringSliceVar(&o.sloText, "slo", nil, "count requests that meet `LIMITS`, such as ttft=500ms,tpot=50ms; also e2e")
	fl.StringVar(&o.outFile, "out-file", "", "write the output to `FILE`, in one step")
	var names []string
	for _, m := range kvlayout.Models() {
		names = append(names, strings.ToLower(m.Name))
	}
	offer(cmd, map[string]completer{
		"model": words(names...), "gpu": words(gpuNames()...), "mode": words(kvModeNames...), "policy": words(pathsel.Policies()...), "host": words(),
		"prefill": words(), "decode": words(noDecode), "prefill-hosts": words(), "decode-hosts": words(), "nics": words(), "down": words(), "slo": wordList("ttft=", "tpot=", "e2e="),
	})
	uses(cmd, "timeout", "output", "json", "units")
	formats(cmd, formatTable, formatJSON, formatSVG, formatHTML)
}

func (o *kvPredictOptions) parse(f *factory, cmd *cobra.Command) error {
	var err error
	if o.format, err = f.format(cmd); err != nil {
		if _, bad := strconv.Atoi(f.globals.output); bad == nil {
			return withHint(err, "--output-len says how many tokens answers have")
		}
		return err
	}
	o.globals, o.units = f.globals, units.System(f.globals.units).Or(units.Gbyte)
	for _, name := range []string{"gpu", "fabric", "trace", "out-file"} {
		if fl := cmd.Flag(name); fl.Changed && fl.Value.String() == "" {
			return fmt.Errorf("--%s is empty", name)
		}
	}
	if o.modelName == "" {
		return withHint(errors.New("no model: want --model NAME"), "known are %s", strings.ToLower(strings.Join(modelNames(), ", ")))
	}
	if o.model, err = kvlayout.Find(o.modelName); err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	if o.gpu != "" {
		g, err := compute.FindGPU(o.gpu)
		if err != nil {
			return fmt.Errorf("--gpu: %w", err)
		}
		o.gpu = g.Name
	}
	if o.prefillShape, err = parseShape(o.prefillText); err != nil {
		return fmt.Errorf("--prefill %w", err)
	}
	if err := o.parseDecode(cmd); err != nil {
		return err
	}
	if o.policy, err = pathsel.ParsePolicy(o.policyName); err != nil {
		return fmt.Errorf("--policy %q: want %s", o.policyName, either(pathsel.Policies()))
	}
	if err := checkWords("mode", []string{o.mode}, kvModeNames); err != nil {
		return err
	}
	o.move = kvModes[o.mode]
	if o.slo, err = parseSLO(o.sloText); err != nil {
		return fmt.Errorf("--slo %w", err)
	}
	if o.pageTokens < 1 || o.pageTokens > 1<<16 {
		return fmt.Errorf("--page-tokens %d: want 1 to %d", o.pageTokens, 1<<16)
	}
	if cmd.Flags().Changed("chunk") && (o.chunk < 1 || o.chunk > workload.MaxTokens) {
		return fmt.Errorf("--chunk %d: want 1 to %d tokens", o.chunk, workload.MaxTokens)
	}
	return o.load.check(cmd)
}

// noDecode is the value of --decode that has the instances of --prefill do both.
const noDecode = "none"

func (o *kvPredictOptions) parseDecode(cmd *cobra.Command) (err error) {
	if o.decodeText != noDecode {
		if o.decodeShape, err = parseShape(o.decodeText); err != nil {
			return fmt.Errorf("--decode %w, or %s", err, noDecode)
		}
		return nil
	}
	for _, name := range []string{"decode-hosts", "fabric", "mode", "nics", "down", "policy", "compare"} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s has no effect with --decode %s: nothing moves", name, noDecode)
		}
	}
	return nil
}

func modelNames() []string {
	var out []string
	for _, m := range kvlayout.Models() {
		out = append(out, m.Name)
	}
	return out
}

var shapeForm = regexp.MustCompile(`^(?:([0-9]{1,5})x)?tp([0-9]{1,4})$`)

// parseShape reads "2xtp4", or "tp4" for one instance.
func parseShape(text string) (shape, error) {
	m := shapeForm.FindStringSubmatch(strings.ToLower(text))
	if m == nil {
		return shape{}, fmt.Errorf("%q: want instances and tensor ranks, such as 2xtp4", text)
	}
	n, err := strconv.Atoi(cmp.Or(m[1], "1"))
	tp, err2 := strconv.Atoi(m[2])
	if err := errors.Join(err, err2); err != nil {
		return shape{}, fmt.Errorf("%q: %w", text, err)
	}
	if n < 1 || n > 4096 || tp < 1 || tp > 1024 {
		return shape{}, fmt.Errorf("%q: want 1 to 4096 instances of 1 to 1024 ranks", text)
	}
	return shape{n, tp}, nil
}

func (s shape) String() string { return fmt.Sprintf("%dxtp%d", s.instances, s.tp) }

// parseSLO reads "ttft=500ms", "tpot=50ms", "e2e=3s".
func parseSLO(given []string) (metrics.SLO, error) {
	var slo metrics.SLO
	to := map[string]**int64{"ttft": &slo.TTFTNS, "tpot": &slo.TPOTNS, "e2e": &slo.E2ENS}
	for _, text := range given {
		name, limit, _ := strings.Cut(text, "=")
		at, known := to[strings.ToLower(strings.TrimSpace(name))]
		if !known {
			return slo, fmt.Errorf("%q: want ttft, tpot or e2e, and a time, such as ttft=500ms", text)
		}
		d, err := time.ParseDuration(strings.TrimSpace(limit))
		switch {
		case err != nil || d <= 0:
			return slo, fmt.Errorf("%q: want a time above 0 with its unit, such as %s=500ms", text, name)
		case *at != nil:
			return slo, fmt.Errorf("%q: %s is given twice", text, name)
		}
		ns := int64(d)
		*at = &ns
	}
	return slo, nil
}

// kvGPUs are the GPUs whose data sheets are known, by the names that drivers give them. What a name alone
// does not tell (memory, form) has no entry.
var kvGPUs = map[string]string{
	"NVIDIA A10": "A10", "NVIDIA A100-SXM4-40GB": "A100-40GB", "NVIDIA A100-SXM4-80GB": "A100-80GB",
	"NVIDIA H20": "H20", "NVIDIA H100 80GB HBM3": "H100", "NVIDIA H200": "H200",
}

func gpuNames() []string { return slices.Sorted(maps.Values(kvGPUs)) }

package serving

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/kv/compute"
	kvlayout "github.com/topoctl/topoctl/internal/app/kv/layout"
	"github.com/topoctl/topoctl/internal/app/kv/metrics"
	"github.com/topoctl/topoctl/internal/app/kv/serve"
	"github.com/topoctl/topoctl/internal/app/kv/workload"
	"github.com/topoctl/topoctl/internal/base/pick"
	"github.com/topoctl/topoctl/internal/base/units"
)

// servingFlags are the flags that say how a workload is served, and where the answer goes.
type servingFlags struct {
	*command.Host
	load  loadFlags
	units units.System

	modelName, gpu            string
	prefillText, decodeText   string
	mode, policyName          string
	chunk, pageTokens         int
	sloText                   []string
	outFile                   command.OutFile
	model                     kvlayout.Model
	move                      serve.Move
	policy                    pick.Policy
	slo                       metrics.SLO
	prefillShape, decodeShape shape
}

// add adds the flags. Those of which subcommands differ, --gpu and --decode, come with their
// help.
func (o *servingFlags) add(cmd *cobra.Command, gpuHelp, decodeHelp string, decodeWords ...string) {
	o.load.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&o.modelName, "model", "", "whose KV cache moves: `MODEL`, such as llama-3.1-8b")
	fl.StringVar(&o.gpu, "gpu", "", gpuHelp)
	fl.StringVar(&o.prefillText, "prefill", "1xtp1", "prefill on `INSTANCES`xtpRANKS, such as 2xtp4")
	fl.StringVar(&o.decodeText, "decode", "1xtp1", decodeHelp)
	fl.StringVar(&o.mode, "mode", modeNames[0], "move a cache by `MODE`: push or pull once a prompt is computed, or layers while it is")
	fl.IntVar(&o.pageTokens, "page-tokens", 16, "keep the cache in pages of `N` tokens")
	fl.IntVar(&o.chunk, "chunk", 0, "compute prompts in parts, `N` tokens in a step at most (without it at once)")
	fl.StringVar(&o.policyName, "policy", string(pick.Adaptive), "share a transfer among lanes by `POLICY`: "+command.Either(pick.Policies()))
	fl.StringSliceVar(&o.sloText, "slo", nil, "count requests that meet `LIMITS`, such as ttft=500ms,tpot=50ms; also e2e")
	o.outFile.Add(cmd)
	var names []string
	for _, name := range modelNames() {
		names = append(names, strings.ToLower(name))
	}
	command.Offer(cmd, map[string]command.Completer{
		"model": command.Words(names...), "gpu": command.Words(gpuNames()...), "mode": command.Words(modeNames...), "policy": command.Words(pick.Policies()...),
		"prefill": command.Words(), "decode": command.Words(decodeWords...), "slo": command.WordList("ttft=", "tpot=", "e2e="),
	})
}

// check reads the flags, but for the shape of --decode.
func (o *servingFlags) check(cmd *cobra.Command) error {
	o.units = units.System(o.Globals.Units).Or(units.Gbyte)
	if err := command.NotEmpty(cmd, "gpu", "trace", "out-file"); err != nil {
		return err
	}
	if o.modelName == "" {
		return command.WithHint(errors.New("no model: want --model NAME"), "known are %s", strings.ToLower(strings.Join(modelNames(), ", ")))
	}
	var err error
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
	if err := command.CheckWords("mode", []string{o.mode}, modeNames); err != nil {
		return err
	}
	o.move = modes[o.mode]
	if o.policy, err = pick.ParsePolicy(o.policyName); err != nil {
		return fmt.Errorf("--policy %q: want %s", o.policyName, command.Either(pick.Policies()))
	}
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

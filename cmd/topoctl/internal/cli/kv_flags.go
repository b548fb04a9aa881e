package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/internal/units"
)

// servingFlags are the flags that say how a workload is served, and where the answer goes.
type servingFlags struct {
	*Host
	load  loadFlags
	units units.System

	modelName, gpu            string
	decodeText                string
	chunk, pageTokens         int
	sloText                   []string
	outFile                   OutFile
	all                       bool
	model                     kv.Model
	move                      serve.Move
	slo                       kv.SLO
	prefillShape, decodeShape kvShape
}

// add adds the flags. Those of which subcommands differ, --gpu and --decode, come with their
// help.
func (o *servingFlags) add(cmd *cobra.Command, gpuHelp, decodeHelp string, decodeWords ...string) {
	o.load.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&o.modelName, "model", "", "`MODEL` to serve, such as llama-3.1-8b")
	fl.StringVar(&o.gpu, "gpu", "", gpuHelp)
	Var(cmd, &o.prefillShape, "prefill", "1xtp1", "prefill instances and tensor ranks of each (`NxtpN`), such as 2xtp4", parseShape)
	fl.StringVar(&o.decodeText, "decode", "1xtp1", decodeHelp)
	Var(cmd, &o.move, "mode", kvModeNames[0], "how caches move (`MODE`): push or pull after prefill, or layers during it", parseKVMode)
	intFlag(cmd, &o.pageTokens, "page-tokens", 16, 1, 1<<16, "`N` tokens in a page of the cache")
	intFlag(cmd, &o.chunk, "chunk", 0, 1, kv.MaxTokens, "process prompts in chunks of at most `N` tokens (default: not chunked)")
	fl.StringSliceVar(&o.sloText, "slo", nil, "count the requests that meet `LIMITS` for ttft, tpot or e2e, such as ttft=500ms,tpot=50ms")
	fl.BoolVar(&o.all, "all", false, "also print what was run, where the time goes, prompt lengths and lanes")
	o.outFile.Add(cmd)
	mainFlags(cmd, "model", "gpu", "prefill", "decode", "rate", "requests", "input-len", "output-len", "mode", "all")
	var names []string
	for _, name := range modelNames() {
		names = append(names, strings.ToLower(name))
	}
	Offer(cmd, map[string]completer{
		"model": Words(names...), "gpu": Words(gpuNames()...), "mode": Words(kvModeNames...),
		"decode": Words(decodeWords...), "slo": WordList("ttft=", "tpot=", "e2e="),
	})
}

// check reads the flags, but for the shape of --decode.
func (o *servingFlags) check(cmd *cobra.Command) error {
	o.units = units.System(o.Globals.Units).Or(units.Gbyte)
	if err := checkTogether(cmd, allInTables); err != nil {
		return err
	}
	if o.modelName == "" {
		return withHint(errors.New("no model: want --model NAME"), "known models: %s", strings.ToLower(strings.Join(modelNames(), ", ")))
	}
	var err error
	if o.model, err = kv.Find(o.modelName); err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	if o.gpu != "" {
		g, err := serve.FindGPU(o.gpu)
		if err != nil {
			return fmt.Errorf("--gpu: %w", err)
		}
		o.gpu = g.Name
	}
	if o.slo, err = parseSLO(o.sloText); err != nil {
		return fmt.Errorf("--slo %w", err)
	}
	return o.load.check(cmd)
}

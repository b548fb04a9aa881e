package cli

import (
	"github.com/spf13/cobra"
)

func newKVCmd(f *Env) *cobra.Command {
	return below(&cobra.Command{
		Use:   "kv",
		Short: "Predict how NICs and paths affect LLM serving that moves KV caches",
		Long: "kv is about serving in which some hosts process prompts (prefill), others generate the\n" +
			"answers (decode), and the KV cache of each prompt moves between them. It shows the time to\n" +
			"the first token, how much of it is network time, and how other NICs or paths change it.",
		Example: "  topoctl kv predict --model llama-3.1-8b --host p=fixture:a10-2nic --host d=fixture:a10-2nic --rate 2",
	}, newPredictCmd(f, runPredict), newReplayCmd(f, runReplay), newPresetCmd(f, runPreset))
}

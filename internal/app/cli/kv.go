package cli

import (
	"context"

	"github.com/spf13/cobra"
)

// kvRuns carry the subcommands out.
type kvRuns struct {
	predict func(context.Context, *kvPredictOptions) error
}

func newKVCmd(f *factory, run kvRuns) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kv",
		Short: "Say what topology and path choice do to serving with a KV cache that moves",
		Long: "kv is about serving where some hosts compute prompts (prefill), others the answers\n" +
			"(decode), and the KV cache of each prompt moves between them: how long until the first\n" +
			"token, which part of that is the network's, and what other NICs or paths would change.",
		Example: "  topoctl kv predict --model llama-3.1-8b --host p=fixture:a10-2nic --host d=fixture:a10-2nic --rate 2",
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKVPredictCmd(f, run.predict), newKVReplayCmd(f, runKVReplay), newKVPresetCmd(f, runKVPreset))
	return cmd
}

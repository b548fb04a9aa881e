// Package serving has the commands about serving with a KV cache that moves: kv predict, replay
// and preset.
package serving

import (
	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/app/cli/command"
)

// Commands are those about serving with a KV cache that moves.
func Commands(f *command.Env) []*cobra.Command {
	return []*cobra.Command{newKVCmd(f)}
}

func newKVCmd(f *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kv",
		Short: "Say what topology and path choice do to serving with a KV cache that moves",
		Long: "kv is about serving where some hosts compute prompts (prefill), others the answers\n" +
			"(decode), and the KV cache of each prompt moves between them: how long until the first\n" +
			"token, which part of that is the network's, and what other NICs or paths would change.",
		Example: "  topoctl kv predict --model llama-3.1-8b --host p=fixture:a10-2nic --host d=fixture:a10-2nic --rate 2",
		Args:    command.UnknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPredictCmd(f, runPredict), newReplayCmd(f, runReplay), newPresetCmd(f, runPreset))
	return cmd
}

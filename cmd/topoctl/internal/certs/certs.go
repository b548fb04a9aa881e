// Package certs has the commands cert ca, cert host and cert show: the certificates by which
// engines know each other, where there is no other CA.
package certs

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/cmd/topoctl/internal/command"
)

// runs carry the subcommands out.
type runs struct {
	ca   func(context.Context, *caOptions) error
	host func(context.Context, *hostOptions) error
	show func(context.Context, *showOptions) error
}

// Commands are those about certificates.
func Commands(f *command.Env) []*cobra.Command {
	return []*cobra.Command{newCertCmd(f, runs{runCA, runHost, runShow})}
}

func newCertCmd(f *command.Env, run runs) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cert",
		Short: "Make and explain the certificates by which hosts know each other",
		Long: "cert makes a certificate authority (CA) and a certificate for each host. Agents and clients\n" +
			"that are given one with --cert-file, --key-file and --ca-file talk only to holders of others\n" +
			"of that CA. Certificates of another CA do as well, if they are for servers and clients.",
		Example: "  topoctl cert ca\n  topoctl cert host node1 --ip 10.0.0.1\n  topoctl cert show node1.crt --ca-file ca.crt",
		Args:    command.UnknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCACmd(f, run.ca), newHostCmd(f, run.host), newShowCmd(f, run.show))
	return cmd
}

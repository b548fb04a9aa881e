package cli

import (
	"context"

	"github.com/spf13/cobra"
)

// certRuns carry the subcommands out.
type certRuns struct {
	ca   func(context.Context, *certCAOptions) error
	host func(context.Context, *certHostOptions) error
	show func(context.Context, *certShowOptions) error
}

func newCertCmd(f *Env, run certRuns) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cert",
		Short: "Make and explain the certificates by which hosts know each other",
		Long: "cert makes a certificate authority (CA) and a certificate for each host. Agents and clients\n" +
			"that are given one with --cert-file, --key-file and --ca-file talk only to holders of others\n" +
			"of that CA. Certificates of another CA do as well, if they are for servers and clients.",
		Example: "  topoctl cert ca\n  topoctl cert host node1 --ip 10.0.0.1\n  topoctl cert show node1.crt --ca-file ca.crt",
		Args:    UnknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCertCACmd(f, run.ca), newCertHostCmd(f, run.host), newCertShowCmd(f, run.show))
	return cmd
}

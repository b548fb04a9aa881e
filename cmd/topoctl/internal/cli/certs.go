package cli

import (
	"github.com/spf13/cobra"
)

func newCertCmd(f *Env) *cobra.Command {
	return below(&cobra.Command{
		Use:   "cert",
		Short: "Make and explain the certificates by which hosts know each other",
		Long: "cert makes a certificate authority (CA) and a certificate for each host. Agents and clients\n" +
			"that are given one with --cert-file, --key-file and --ca-file talk only to holders of others\n" +
			"of that CA. Certificates of another CA do as well, if they are for servers and clients.",
		Example: "  topoctl cert ca\n  topoctl cert host node1 --ip 10.0.0.1\n  topoctl cert show node1.crt --ca-file ca.crt",
	}, newCertCACmd(f, runCertCA), newCertHostCmd(f, runCertHost), newCertShowCmd(f, runCertShow))
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/text"
)

// Credentials are the flags --token-file, --cert-file, --key-file and --ca-file.
type Credentials struct{ Files trust.Files }

// credentialFlags are their names.
var credentialFlags = []string{"token-file", "cert-file", "key-file", "ca-file"}

// forPeers is the rule of commands that start a peer themselves where no flag names one.
var forPeers = flagRule{"region registry " + strings.Join(credentialFlags, " "), needs, "peer", ""}

// Add registers the flags.
func (c *Credentials) Add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&c.Files.Token, "token-file", "", "read the token that both ends share from `FILE`, - for the first line of standard input")
	fl.StringVar(&c.Files.Certificate, "cert-file", "", "this host's certificate in `FILE`; peers must have one too")
	fl.StringVar(&c.Files.Key, "key-file", "", "the key of --cert-file in `FILE`")
	fl.StringVar(&c.Files.CA, "ca-file", "", "`FILE` with the CAs that sign the certificates of peers")
}

// Check refuses a certificate without what it needs.
func (c *Credentials) Check(cmd *cobra.Command) error {
	const hint = "--cert-file, --key-file and --ca-file come together; \"topoctl cert\" makes the files"
	return checkTogether(cmd,
		flagRule{"cert-file", needs, "key-file", hint}, flagRule{"key-file", needs, "ca-file", hint}, flagRule{"ca-file", needs, "cert-file", hint})
}

// Given says whether there are any.
func (c *Credentials) Given() bool { return c.Files.Token != "" || c.Files.CA != "" }

// Read reads the files, and gives what they have from then on; nil without flags. It warns where
// others on this host can read a secret. The time limit of the command bounds it. log is told of
// files that change; nil: no one is.
func (c *Credentials) Read(ctx context.Context, h *Host, log *slog.Logger) (func() *trust.Credentials, error) {
	if !c.Given() {
		return nil, nil
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	files := c.Files
	for _, name := range []string{files.Token, files.Key} {
		if mode, exposed := trust.Exposed(name); exposed {
			name = text.Printable(name)
			fmt.Fprintf(h.Streams.Err, "topoctl: warning: %s can be read or changed by others (mode %04o): chmod 600 %s\n", name, mode, name)
		}
	}
	return Within(ctx, h, c.names(), func() (func() *trust.Credentials, error) {
		if files.Token != "-" {
			source, err := files.Watch(log)
			return source, fileHint(err)
		}
		t, err := trust.ReadToken(h.Streams.In)
		if err != nil {
			return nil, fileHint(&trust.FileError{Kind: "token", Name: "standard input", Err: err})
		}
		files.Token = ""
		source, err := files.Watch(log)
		return withToken(source, t), fileHint(err)
	})
}

// withToken adds a token that no file has.
func withToken(source func() *trust.Credentials, t trust.Token) func() *trust.Credentials {
	return func() *trust.Credentials {
		c := *source()
		c.Tokens = []trust.Token{t}
		return &c
	}
}

// names are the flags that were given, as they were typed.
func (c *Credentials) names() string {
	out := ""
	for i, file := range []string{c.Files.Token, c.Files.Certificate, c.Files.Key, c.Files.CA} {
		if file != "" {
			out += " --" + credentialFlags[i] + " " + file
		}
	}
	return out[min(1, len(out)):]
}

// fileHint names the flag of a file that cannot be read, and says how to get one.
func fileHint(err error) error {
	file, ok := errors.AsType[*trust.FileError](err)
	if !ok {
		return err
	}
	out := fmt.Errorf("--%s-file %s: %w", file.Kind, file.Name, file.Err)
	_, short := errors.AsType[trust.ShortError](file.Err)
	switch {
	case file.Kind == "token" && errors.Is(file.Err, fs.ErrNotExist):
		return withHint(out, "create one with (umask 077; head -c 32 /dev/urandom | base64 > %s), and copy it to the other host", file.Name)
	case file.Kind != "token" && errors.Is(file.Err, fs.ErrNotExist):
		return withHint(out, "\"topoctl cert\" makes one")
	case short:
		return withHint(out, "create one with: head -c 32 /dev/urandom | base64")
	case file.Kind != "token":
		return withHint(out, "\"topoctl cert show FILE\" explains a certificate")
	}
	return out
}

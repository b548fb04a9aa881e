package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/base/secret"
	"github.com/topoctl/topoctl/internal/base/text"
)

// Token is the flag --token-file.
type Token struct{ File string }

// Add registers the flag.
func (t *Token) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.File, "token-file", "", "read the token that both ends share from the first line of `FILE`, - for standard input")
}

// Read reads the secret, nil without the flag. The time limit of the command bounds it.
func (t *Token) Read(ctx context.Context, h *command.Host) ([]byte, error) {
	limit := h.Globals.Timeout
	if t.File == "-" {
		limit = 0
	}
	return command.Within(ctx, limit, "--token-file "+t.File, func() ([]byte, error) { return ReadToken(t.File, h.Streams.In, h.Streams.Err) })
}

// ReadToken reads the secret that engines share: a file's first line, or that of
// standard input ("-"). It warns where others of this host may read the file.
func ReadToken(name string, in io.Reader, warn io.Writer) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	from := "standard input"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			err := fmt.Errorf("--token-file %s: %w", name, command.Cause(err))
			if errors.Is(err, fs.ErrNotExist) {
				return nil, command.WithHint(err, "create one with (umask 077; head -c 32 /dev/urandom | base64 > %s), and copy it to the other host", name)
			}
			return nil, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("--token-file %s: %w", name, command.Cause(err))
		}
		if open := info.Mode().Perm() & 0o077; info.Mode().IsRegular() && open != 0 {
			fmt.Fprintf(warn, "topoctl: warning: %s can be read or changed by others (mode %04o): chmod 600 %s\n", text.Printable(name), info.Mode().Perm(), text.Printable(name))
		}
		in, from = f, name
	}
	token, err := secret.Read(in)
	if err != nil {
		_, short := errors.AsType[secret.ShortError](err)
		err = fmt.Errorf("--token-file: %s: %w", from, command.Cause(err))
		if short {
			err = command.WithHint(err, "create one with: head -c 32 /dev/urandom | base64")
		}
		return nil, err
	}
	return token, nil
}

package peers

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/base/text"
)

// tokenMin is how many bytes a secret must have; the engine refuses less.
const tokenMin = 16

// tokenMost bounds a token file: a secret, not a disk image.
const tokenMost = 4 << 10

// Token is the flag --token-file.
type Token struct{ File string }

// Add registers the flag.
func (t *Token) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.File, "token-file", "", "read the token that both ends share from the first line of `FILE`, - for standard input")
}

// Read reads the secret, nil without the flag.
func (t *Token) Read(s command.Streams) ([]byte, error) { return ReadToken(t.File, s.In, s.Err) }

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
	line, err := firstLine(in)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--token-file: %s: %w", from, command.Cause(err))
	case len(line) < tokenMin:
		return nil, command.WithHint(fmt.Errorf("--token-file: %s: the token has %d bytes, want %d or more", from, len(line), tokenMin),
			"create one with: head -c 32 /dev/urandom | base64")
	}
	return line, nil
}

// firstLine reads up to the end of a line and not a byte further: what follows on
// standard input is somebody else's.
func firstLine(in io.Reader) ([]byte, error) {
	if _, ok := in.(io.ByteReader); !ok {
		in = &byteReader{in}
	}
	var out []byte
	for {
		b, err := in.(io.ByteReader).ReadByte()
		switch {
		case errors.Is(err, io.EOF) || b == '\n' && err == nil:
			return []byte(strings.TrimSpace(string(out))), nil
		case err != nil:
			return nil, err
		case len(out) == tokenMost:
			return nil, fmt.Errorf("the first line is longer than %d bytes", tokenMost)
		}
		out = append(out, b)
	}
}

// byteReader reads single bytes, without a buffer.
type byteReader struct{ io.Reader }

func (r *byteReader) ReadByte() (byte, error) {
	var b [1]byte
	_, err := io.ReadFull(r.Reader, b[:])
	return b[0], err
}

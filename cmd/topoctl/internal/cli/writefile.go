package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// Who may read a file that a command writes: a capture tells much about a host,
// what is written for other programs is for all of them.
const (
	ownerOnly os.FileMode = 0o600
	everyone  os.FileMode = 0o644
)

// writeFile puts data into a file in one step: the file is never seen half
// written.
func writeFile(name string, data []byte, mode os.FileMode) error {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() { // a pipe or /dev/null: there is nothing to replace
		if err := os.WriteFile(name, data, mode); err != nil {
			return fmt.Errorf("%s: %w", name, Cause(err))
		}
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".topoctl-*")
	if err != nil {
		return fmt.Errorf("%s: %w", name, Cause(err))
	}
	if _, err = tmp.Write(data); err == nil {
		err = tmp.Chmod(mode)
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, errors.Join(Cause(err), os.Remove(tmp.Name())))
	}
	return nil
}

// OutFile is the flag --out-file.
type OutFile struct{ Name string }

// Add registers the flag.
func (f *OutFile) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Name, "out-file", "", "write the output to `FILE`")
}

// Stdout says whether the output goes to standard output.
func (f *OutFile) Stdout() bool { return f.Name == "" || f.Name == "-" }

// Write puts the output into the file in one step, or on standard output.
func (f *OutFile) Write(s Streams, data []byte) error {
	if f.Stdout() {
		return Write(s.Out, data)
	}
	return f.wrap(writeFile(f.Name, data, everyone))
}

// Check says what keeps the output from being written later.
func (f *OutFile) Check() error { return f.wrap(writable(f.Name)) }

func (f *OutFile) wrap(err error) error {
	if err != nil {
		return fmt.Errorf("--out-file: %w", err)
	}
	return nil
}

// writable says what keeps a file from being written later.
func writable(name string) error {
	if name == "" || name == "-" {
		return nil
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s: is a directory", name)
	case err == nil && !info.Mode().IsRegular():
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".topoctl-*")
	if err != nil {
		return fmt.Errorf("%s: %w", name, Cause(err))
	}
	return errors.Join(tmp.Close(), os.Remove(tmp.Name()))
}

package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Who may read a file that a command writes: a capture tells much about a host,
// what is written for other programs is for all of them.
const (
	OwnerOnly os.FileMode = 0o600
	Everyone  os.FileMode = 0o644
)

// WriteFile puts data into a file in one step: the file is never seen half
// written.
func WriteFile(name string, data []byte, mode os.FileMode) error {
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

// Writable says what keeps a file from being written later.
func Writable(name string) error {
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

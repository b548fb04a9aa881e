package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
			return fmt.Errorf("%s: %w", name, bare(err))
		}
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".topoctl-*")
	if err != nil {
		return fmt.Errorf("%s: %w", name, bare(err))
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
		return fmt.Errorf("%s: %w", name, errors.Join(bare(err), os.Remove(tmp.Name())))
	}
	return nil
}

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// writeFile puts data into a file in one step: the file is never seen half
// written. A capture tells much about a host, so only its owner may read it.
func writeFile(name string, data []byte) error {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() { // a pipe or /dev/null: there is nothing to replace
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return fmt.Errorf("%s: %w", name, bare(err))
		}
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".topoctl-*")
	if err != nil {
		return fmt.Errorf("%s: %w", name, bare(err))
	}
	_, err = tmp.Write(data)
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

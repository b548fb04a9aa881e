package pciids

import (
	"fmt"
	"os"
)

// tempFile is File where there is no memfd_create.
func tempFile(data []byte) (path string, remove func(), err error) {
	f, err := os.CreateTemp("", "topoctl-*.ids")
	if err != nil {
		return "", nil, fmt.Errorf("pciids: %w", err)
	}
	remove = func() { _ = os.Remove(f.Name()) }
	_, err = f.Write(data)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("pciids: %w", err)
	}
	return f.Name(), remove, nil
}

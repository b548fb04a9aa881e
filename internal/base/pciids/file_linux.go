package pciids

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// File makes a file with the given content that can be opened by its path,
// because pcidb and ghw read paths only. It lives in memory (memfd_create);
// remove ends it.
func File(data []byte) (path string, remove func(), err error) {
	fd, err := unix.MemfdCreate("pci.ids", unix.MFD_CLOEXEC)
	if err != nil {
		return tempFile(data)
	}
	f := os.NewFile(uintptr(fd), "pci.ids")
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return "", nil, fmt.Errorf("pciids: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), func() { _ = f.Close() }, nil
}

package vmlab

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sharedLibraries lists the shared libraries that programs need, and those need, by their
// names, with the file of each. It looks in the folders in order. What is nowhere is
// an error that names who needs it.
func sharedLibraries(programs []string, folders []string) (map[string]string, error) {
	found := map[string]string{}
	missing := map[string]string{}
	queue := slices.Clone(programs)
	for len(queue) > 0 {
		file := queue[0]
		queue = queue[1:]
		needed, err := needs(file)
		if err != nil {
			return nil, err
		}
		for _, lib := range needed {
			if found[lib] != "" || missing[lib] != "" {
				continue
			}
			at := find(lib, folders)
			if at == "" {
				missing[lib] = filepath.Base(file)
				continue
			}
			found[lib] = at
			queue = append(queue, at)
		}
	}
	if len(missing) > 0 {
		var list []string
		for lib, who := range missing {
			list = append(list, fmt.Sprintf("%s (for %s)", lib, who))
		}
		slices.Sort(list)
		return nil, fmt.Errorf("image: shared libraries not found: %s; looked in %s", strings.Join(list, ", "), strings.Join(folders, ", "))
	}
	return found, nil
}

func find(lib string, folders []string) string {
	for _, dir := range folders {
		at := filepath.Join(dir, lib)
		if info, err := os.Stat(at); err == nil && info.Mode().IsRegular() {
			return at
		}
	}
	return ""
}

// needs reads a file's own list. A script, or a program without one, needs nothing. The
// loader (PT_INTERP) is in every list of the C library's own.
func needs(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) {
			return nil, nil
		}
		return nil, fmt.Errorf("image: %w", err)
	}
	defer func() { _ = f.Close() }() // it was read only
	libs, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("image: %s: %w", file, err)
	}
	return libs, nil
}

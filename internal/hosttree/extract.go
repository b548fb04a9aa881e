package hosttree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Extract writes a tree into an empty or new directory, for tools that read
// directories. Absolute links are written as relative ones. A file that cannot
// be read in the tree is written empty and without permissions. A link that
// leaves the tree is an error; nothing is written outside dir.
func Extract(t Tree, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return pkgerr.Errorf("hosttree", "extract: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return pkgerr.Errorf("hosttree", "extract: %w", err)
	}
	defer root.Close()
	if err := extractDir(t, root, "."); err != nil {
		return pkgerr.Errorf("hosttree", "extract: %w", err)
	}
	return nil
}

func extractDir(t Tree, root *os.Root, name string) error {
	entries, err := t.ReadDir(name)
	if err != nil {
		entries = hiddenEntries(t, name)
	}
	for _, e := range entries {
		child := childName(name, e.Name())
		if err := checkName(child); err != nil {
			return pathError("extract", child, err)
		}
		file := filepath.FromSlash(child)
		switch e.Type() {
		case fs.ModeDir:
			if err := root.Mkdir(file, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			err = extractDir(t, root, child)
		case fs.ModeSymlink:
			err = extractLink(t, root, child)
		case 0:
			err = extractFile(t, root, child)
		default:
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func extractFile(t Tree, root *os.Root, name string) error {
	data, err := t.ReadFile(name)
	mode := fs.FileMode(0o644)
	if err != nil {
		data, mode = nil, 0
	}
	// O_EXCL: what is there already, perhaps a link, is never written to.
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func extractLink(t Tree, root *os.Root, name string) error {
	target, err := t.ReadLink(name)
	if err != nil {
		return err
	}
	if _, err := RealPath(t, name); errors.Is(err, ErrEscapes) {
		return err
	}
	if strings.HasPrefix(target, "/") {
		up := "./" + strings.Repeat("../", strings.Count(name, "/"))
		target = up + strings.TrimLeft(target, "/")
	}
	return root.Symlink(filepath.FromSlash(target), filepath.FromSlash(name))
}

package sysfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/topoctl/topoctl/internal/hosttree"
)

// Files that stay open say what they say now, as many as may stay open; all else is as the
// tree has it.
func TestOpenFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, "sys", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	huge := strings.Repeat("x", 3*os.Getpagesize())
	file("a", "1\n")
	file("b", "2\n")
	file("c", "3\n")
	file("empty", "")
	file("huge", huge)
	tree, err := hosttree.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	var left atomic.Int64
	left.Store(2)
	h := newOpenFiles(tree, &left)
	check := func(name, want string) {
		t.Helper()
		if got, err := h.ReadFile("sys/" + name); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes %.20q, %v; want %.20q", name, len(got), got, err, want)
		}
	}
	for _, text := range []string{"1\n", "22\n", "3\n"} {
		file("a", text)
		check("a", text)
		check("b", "2\n")
		check("c", "3\n") // never held: two are
		if len(h.open) != 2 || left.Load() != 0 {
			t.Errorf("%d files are open, %d more may be", len(h.open), left.Load())
		}
	}
	h.close()
	if len(h.open) != 0 || left.Load() != 2 {
		t.Errorf("after close %d files are open, %d more may be", len(h.open), left.Load())
	}
	check("empty", "")
	check("huge", huge)
	if _, err := h.ReadFile("sys/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := h.ReadFile("sys"); err == nil {
		t.Error("a directory was read")
	}
	if len(h.open) != 0 || left.Load() != 2 {
		t.Errorf("what is unusual stays open: %d files, %d more may be", len(h.open), left.Load())
	}
	if n := openFilesLimit(); n < 1 || n > maxOpenFiles {
		t.Errorf("may hold %d", n)
	}
}

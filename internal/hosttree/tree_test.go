package hosttree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// must stops a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// smallHost is a tree with each kind of link: relative, absolute, chained,
// dangling, looping, and leaving the tree.
func smallHost(t testing.TB) *Mem {
	t.Helper()
	m := NewMem()
	const dev = "sys/devices/pci0000:00/0000:00:01.0"
	must(t, m.AddFile(dev+"/vendor", []byte("0x15b3\n")))
	must(t, m.AddFile(dev+"/net/eth0/mtu", []byte("1500\n")))
	must(t, m.AddDir(dev+"/power"))
	must(t, m.AddSymlink("sys/bus/pci/devices/0000:00:01.0", "../../../devices/pci0000:00/0000:00:01.0"))
	must(t, m.AddSymlink("sys/class/net/eth0", "../../devices/pci0000:00/0000:00:01.0/net/eth0"))
	must(t, m.AddSymlink(dev+"/net/eth0/device", "../../../0000:00:01.0"))
	must(t, m.AddSymlink("sys/absolute", "/sys/bus/pci/devices/0000:00:01.0/"))
	must(t, m.AddSymlink("sys/dangling", "../nowhere"))
	must(t, m.AddSymlink("sys/loop", "loop2"))
	must(t, m.AddSymlink("sys/loop2", "loop"))
	must(t, m.AddSymlink("sys/outside", "../../etc/passwd"))
	must(t, m.AddSymlink("sys/outside-absolute", "/../etc/passwd"))
	must(t, m.AddFile("etc/passwd", []byte("inside\n")))
	return m
}

// onDisk writes the tree with its links as they are, good or bad.
func onDisk(t testing.TB, m *Mem) string {
	t.Helper()
	dir := t.TempDir()
	writeTree(t, m, dir)
	return dir
}

func writeTree(t testing.TB, m *Mem, dir string) {
	t.Helper()
	must(t, fs.WalkDir(m, ".", func(name string, d fs.DirEntry, err error) error {
		must(t, err)
		file := filepath.Join(dir, name)
		switch d.Type() {
		case fs.ModeDir:
			return os.MkdirAll(file, 0o755)
		case fs.ModeSymlink:
			target, err := m.ReadLink(name)
			must(t, err)
			return os.Symlink(target, file)
		}
		data, err := m.ReadFile(name)
		must(t, err)
		return os.WriteFile(file, data, 0o644)
	}))
}

// eachTree runs a test on every kind of tree that can hold smallHost.
func eachTree(t *testing.T, test func(*testing.T, Tree)) {
	m := smallHost(t)
	dir := onDisk(t, m)
	t.Run("mem", func(t *testing.T) { test(t, m) })
	t.Run("recorder", func(t *testing.T) { test(t, NewRecorder(m)) })
	t.Run("dir", func(t *testing.T) {
		d, err := OpenDir(dir)
		must(t, err)
		defer d.Close()
		test(t, d)
	})
	t.Run("dir without openat2", func(t *testing.T) {
		in, err := newRootBackend(dir)
		must(t, err)
		d := &Dir{path: dir, in: in}
		defer d.Close()
		test(t, d)
	})
	t.Run("unknown tree", func(t *testing.T) { test(t, struct{ Tree }{m}) })
}

func TestReadThroughLinks(t *testing.T) {
	eachTree(t, func(t *testing.T, tree Tree) {
		for _, c := range []struct {
			name, want string
			err        error
		}{
			{name: "sys/bus/pci/devices/0000:00:01.0/vendor", want: "0x15b3\n"},
			{name: "sys/class/net/eth0/mtu", want: "1500\n"},
			{name: "sys/class/net/eth0/device/vendor", want: "0x15b3\n"},
			{name: "sys/absolute/vendor", want: "0x15b3\n"},
			{name: "sys/absolute/net/eth0/device/net/eth0/mtu", want: "1500\n"},
			{name: "sys/class/net/eth1/mtu", err: fs.ErrNotExist},
			{name: "sys/dangling", err: fs.ErrNotExist},
			{name: "sys/dangling/x", err: fs.ErrNotExist},
			{name: "sys/loop", err: ErrLoop},
			{name: "sys/loop/x", err: ErrLoop},
			{name: "sys/outside", err: ErrEscapes},
			{name: "sys/outside-absolute", err: ErrEscapes},
			{name: "sys", err: syscall.EISDIR},
			{name: "etc/passwd/x", err: syscall.ENOTDIR},
			{name: "../etc/passwd", err: fs.ErrInvalid},
			{name: "/etc/passwd", err: fs.ErrInvalid},
			{name: "sys//x", err: fs.ErrInvalid},
		} {
			got, err := tree.ReadFile(c.name)
			if !errors.Is(err, c.err) || string(got) != c.want {
				t.Errorf("ReadFile(%s) = %q, %v; want %q, %v", c.name, got, err, c.want, c.err)
			}
			var pe *fs.PathError
			if err != nil && (!errors.As(err, &pe) || pe.Path != c.name) {
				t.Errorf("ReadFile(%s): error %v does not name the file", c.name, err)
			}
		}
	})
}

func TestRealPath(t *testing.T) {
	eachTree(t, func(t *testing.T, tree Tree) {
		for range 2 { // the second time from what the first has learnt
			for _, c := range []struct {
				name, want string
				err        error
			}{
				{name: ".", want: "."},
				{name: "sys/bus/pci/devices/0000:00:01.0", want: "sys/devices/pci0000:00/0000:00:01.0"},
				{name: "sys/class/net/eth0/device", want: "sys/devices/pci0000:00/0000:00:01.0"},
				{name: "sys/absolute/vendor", want: "sys/devices/pci0000:00/0000:00:01.0/vendor"},
				{name: "sys/class/net/eth0/nope", err: fs.ErrNotExist},
				{name: "sys/dangling", err: fs.ErrNotExist},
				{name: "sys/loop", err: ErrLoop},
				{name: "sys/outside", err: ErrEscapes},
				{name: "..", err: fs.ErrInvalid},
			} {
				got, err := RealPath(tree, c.name)
				if got != c.want || !errors.Is(err, c.err) {
					t.Errorf("RealPath(%s) = %q, %v; want %q, %v", c.name, got, err, c.want, c.err)
				}
			}
		}
	})
}

func TestListAndDescribe(t *testing.T) {
	eachTree(t, func(t *testing.T, tree Tree) {
		entries, err := tree.ReadDir("sys/class/net/eth0/device")
		must(t, err)
		var got []string
		for _, e := range entries {
			info, err := e.Info()
			must(t, err)
			got = append(got, fmt.Sprintf("%s %v %v", e.Name(), e.Type(), info.IsDir()))
		}
		want := []string{"net d--------- true", "power d--------- true", "vendor ---------- false"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		link, err := tree.Lstat("sys/class/net/eth0")
		must(t, err)
		if link.Mode().Type() != fs.ModeSymlink || link.Name() != "eth0" {
			t.Errorf("Lstat: %v", fs.FormatFileInfo(link))
		}
		dir, err := fs.Stat(tree, "sys/class/net/eth0")
		must(t, err)
		if !dir.IsDir() {
			t.Errorf("Stat: %v", fs.FormatFileInfo(dir))
		}
		target, err := tree.ReadLink("sys/bus/pci/devices/0000:00:01.0")
		if err != nil || target != "../../../devices/pci0000:00/0000:00:01.0" {
			t.Errorf("ReadLink = %q, %v", target, err)
		}
		if _, err := tree.ReadLink("sys/absolute/vendor"); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("ReadLink of a file: %v", err)
		}
		if _, err := tree.ReadDir("etc/passwd"); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("ReadDir of a file: %v", err)
		}
		if _, err := tree.ReadDir("sys/dangling"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("ReadDir of nothing: %v", err)
		}
	})
}

// TestFS asks the standard library whether each tree is a good fs.FS. It has
// no bad links: the test opens everything.
func TestFS(t *testing.T) {
	m := smallHost(t)
	good := NewMem()
	must(t, fs.WalkDir(m, "sys/devices", func(name string, d fs.DirEntry, err error) error {
		if d.Type() == 0 {
			data, _ := m.ReadFile(name)
			return good.AddFile(name, data)
		}
		return err
	}))
	must(t, good.AddSymlink("sys/class/net/eth0", "../../devices/pci0000:00/0000:00:01.0/net/eth0"))
	dir := filepath.Join(t.TempDir(), "host")
	must(t, os.CopyFS(dir, good))
	d, err := OpenDir(dir)
	must(t, err)
	defer d.Close()
	for _, tree := range []Tree{good, d, NewRecorder(d)} {
		if err := fstest.TestFS(tree, "sys/devices/pci0000:00/0000:00:01.0/net/eth0/mtu"); err != nil {
			t.Errorf("%T: %v", tree, err)
		}
	}
}

func TestMemRefuses(t *testing.T) {
	m := smallHost(t)
	for name, err := range map[string]error{
		"name that leaves":     m.AddFile("../x", nil),
		"absolute name":        m.AddFile("/x", nil),
		"zero byte":            m.AddFile("a\x00b", nil),
		"empty name":           m.AddDir(""),
		"name too long":        m.AddDir(strings.Repeat("x/", maxName) + "y"),
		"file twice":           m.AddFile("etc/passwd", nil),
		"file on a directory":  m.AddFile("sys", nil),
		"directory on a file":  m.AddDir("etc/passwd"),
		"link on a file":       m.AddSymlink("etc/passwd", "x"),
		"file below a file":    m.AddFile("etc/passwd/x", nil),
		"file below a link":    m.AddFile("sys/absolute/x", nil),
		"root as a file":       m.AddFile(".", nil),
		"empty target":         m.AddSymlink("l", ""),
		"zero byte in target":  m.AddSymlink("l", "a\x00"),
		"file that is too big": m.AddFile("big", make([]byte, MaxFileSize+1)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := m.AddDir("sys/devices"); err != nil {
		t.Errorf("a directory again: %v", err)
	}
}

func TestUnreadable(t *testing.T) {
	m := NewMem()
	must(t, m.AddUnreadable("sys/speed", syscall.EINVAL))
	must(t, m.AddUnreadable("sys/config", fs.ErrPermission))
	must(t, m.AddUnreadable("sys/unread", ErrNotCaptured))
	must(t, m.AddUnreadableDir("sys/secret", fs.ErrPermission))
	must(t, m.AddFile("sys/secret/known", nil))
	for name, want := range map[string]error{
		"sys/speed": syscall.EINVAL, "sys/config": fs.ErrPermission, "sys/unread": fs.ErrNotExist,
	} {
		if _, err := m.ReadFile(name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if _, err := m.Lstat(name); err != nil {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	if _, err := m.ReadDir("sys/secret"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("listing: %v", err)
	}
	if _, err := m.ReadFile("sys/secret/known"); err != nil {
		t.Error(err)
	}
}

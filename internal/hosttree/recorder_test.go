package hosttree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecorder(t *testing.T) {
	m := smallHost(t)
	must(t, m.AddFile("sys/never", []byte("not asked for\n")))
	must(t, m.AddFile("sys/devices/pci0000:00/0000:00:01.0/serial", []byte("secret\n")))
	must(t, m.AddUnreadable("sys/config", fs.ErrPermission))
	must(t, m.AddUnreadableDir("sys/closed", fs.ErrPermission))
	rec := NewRecorder(m)
	ask := func(tree Tree) {
		for _, name := range []string{"sys/absolute/vendor", "sys/config", "sys/nothing/at/all", "sys"} {
			_, _ = tree.ReadFile(name) // sys is a directory: that says nothing about it
		}
		for _, name := range []string{"sys/class/net/eth0/device", "sys/closed", "sys"} {
			_, _ = tree.ReadDir(name)
		}
		_, _ = tree.ReadLink("sys/bus/pci/devices/0000:00:01.0")
		_, _ = tree.Lstat("etc/passwd")
	}
	ask(rec)
	const dev = "sys/devices/pci0000:00/0000:00:01.0"
	want := map[string]string{
		"etc": "directory", "sys": "directory", "sys/bus": "directory", "sys/class": "directory", "sys/devices": "directory",
		"sys/bus/pci": "directory", "sys/bus/pci/devices": "directory", "sys/class/net": "directory",
		"sys/devices/pci0000:00": "directory", dev: "directory", dev + "/net": "directory",
		dev + "/net/eth0": "directory", dev + "/power": "directory", "sys/closed": "directory",
		"sys/closed/":                      "permission denied",
		"sys/config":                       `"" permission denied`,
		"sys/never":                        `"" not captured`,
		"etc/passwd":                       `"" not captured`,
		dev + "/serial":                    `"" not captured`,
		dev + "/vendor":                    `"0x15b3\n" <nil>`,
		dev + "/net/eth0/device":           `-> "../../../0000:00:01.0" <nil>`,
		"sys/class/net/eth0":               `-> "../../devices/pci0000:00/0000:00:01.0/net/eth0" <nil>`,
		"sys/bus/pci/devices/0000:00:01.0": `-> "../../../devices/pci0000:00/0000:00:01.0" <nil>`,
		"sys/absolute":                     `-> "/sys/bus/pci/devices/0000:00:01.0/" <nil>`,
		"sys/dangling":                     `-> "../nowhere" <nil>`,
		"sys/loop":                         `-> "loop2" <nil>`,
		"sys/loop2":                        `-> "loop" <nil>`,
		"sys/outside":                      `-> "../../etc/passwd" <nil>`,
		"sys/outside-absolute":             `-> "/../etc/passwd" <nil>`,
	}
	if diff := cmp.Diff(want, dump(t, rec.Recorded())); diff != "" {
		t.Error(diff)
	}
	// A recording of the replay is the same recording.
	again := NewRecorder(rec.Recorded())
	ask(again)
	if diff := cmp.Diff(want, dump(t, again.Recorded())); diff != "" {
		t.Error(diff)
	}
}

// flaky gives other answers the second time.
type flaky struct {
	*Mem
	err error
}

func (f *flaky) ReadFile(name string) ([]byte, error) {
	if f.err != nil {
		return nil, pathError("read", name, f.err)
	}
	return f.Mem.ReadFile(name)
}

func TestRecorderKeepsContent(t *testing.T) {
	m := NewMem()
	must(t, m.AddFile("sys/speed", []byte("100\n")))
	f := &flaky{Mem: m, err: syscall.EINVAL}
	rec := NewRecorder(f)
	_, _ = rec.ReadFile("sys/speed")
	if _, err := rec.Recorded().ReadFile("sys/speed"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a failure is not recorded: %v", err)
	}
	f.err = nil
	data, err := rec.ReadFile("sys/speed")
	must(t, err)
	f.err = fs.ErrNotExist // the device went away
	_, _ = rec.ReadFile("sys/speed")
	copy(data, "XXX") // the reader may change what it got
	if got, err := rec.Recorded().ReadFile("sys/speed"); err != nil || string(got) != "100\n" {
		t.Errorf("content is lost: %q, %v", got, err)
	}
}

func TestRecorderConcurrent(t *testing.T) {
	m := smallHost(t)
	rec := NewRecorder(m)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				_ = answer(rec, "sys/absolute/vendor")
				_ = answer(rec, "sys/class/net/eth0/device")
				rec.Recorded()
			}
		})
	}
	wg.Wait()
	if got, want := answer(rec.Recorded(), "sys/absolute/vendor"), answer(m, "sys/absolute/vendor"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestExtract(t *testing.T) {
	m := smallHost(t)
	dir := filepath.Join(t.TempDir(), "new", "dir")
	if err := Extract(m, dir); !errors.Is(err, ErrEscapes) {
		t.Errorf("a link that leaves the tree: %v", err)
	}

	good := NewMem()
	must(t, good.AddFile("sys/a/vendor", []byte("0x1\n")))
	must(t, good.AddSymlink("sys/b/c/link", "/sys/a"))
	must(t, good.AddUnreadable("sys/a/config", fs.ErrPermission))
	must(t, good.AddUnreadableDir("sys/closed", fs.ErrPermission))
	must(t, good.AddFile("sys/closed/inside", []byte("x")))
	dir = t.TempDir()
	must(t, Extract(good, dir))
	for name, want := range map[string]string{"sys/b/c/link/vendor": "0x1\n", "sys/closed/inside": "x"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if info, err := os.Lstat(filepath.Join(dir, "sys/a/config")); err != nil || info.Mode().Perm() != 0 || info.Size() != 0 {
		t.Errorf("unreadable file: %v, %v", info, err)
	}
	if err := Extract(good, dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("extracted over what was there: %v", err)
	}
}

// TestExtractStaysInside extracts into a directory where someone has left a
// link to another place.
func TestExtractStaysInside(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	must(t, os.Symlink(outside, filepath.Join(dir, "sys")))
	m := NewMem()
	must(t, m.AddFile("sys/file", []byte("x")))
	if err := Extract(m, dir); err == nil {
		t.Error("no error")
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Errorf("written outside: %v", entries)
	}
}

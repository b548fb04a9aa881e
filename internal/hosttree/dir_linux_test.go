package hosttree

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/testkit/longtest"
)

// capturesDir holds archives of real machines' sysfs, where the reader has them.
const capturesDir = "../../../shared/data/captures/sysfs"

// eachBackend runs a test on a directory with openat2 and without.
func eachBackend(t *testing.T, dir string, test func(*testing.T, *Dir)) {
	for name, newIn := range map[string]func(string) (backend, error){"openat2": newBackend, "os.Root": newRootBackend} {
		t.Run(name, func(t *testing.T) {
			in, err := newIn(dir)
			must(t, err)
			d := &Dir{path: dir, in: in}
			defer d.Close()
			test(t, d)
		})
	}
}

func TestDirSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "sys"), 0o755))
	must(t, syscall.Mkfifo(filepath.Join(dir, "sys/fifo"), 0o644))
	must(t, os.Symlink("fifo", filepath.Join(dir, "sys/to-fifo")))
	must(t, os.WriteFile(filepath.Join(dir, "sys/full"), bytes.Repeat([]byte("x"), MaxFileSize), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "sys/big"), bytes.Repeat([]byte("x"), MaxFileSize+1), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "sys/empty"), nil, 0o644))
	eachBackend(t, dir, func(t *testing.T, d *Dir) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for name, want := range map[string]error{
				"sys/fifo": ErrNotRegular, "sys/to-fifo": ErrNotRegular, "sys/big": ErrTooLarge,
				"sys/full": nil, "sys/empty": nil,
			} {
				if _, err := d.ReadFile(name); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
			}
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("reading waits for another process")
		}
	})
}

// TestDirSizes reads files around the sizes at which the way of reading changes.
// A FIFO that another process writes to is not waited for either.
func TestDirBusyFIFO(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "sys"), 0o755))
	name := filepath.Join(dir, "sys/fifo")
	must(t, syscall.Mkfifo(name, 0o644))
	writer, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	defer writer.Close()
	eachBackend(t, dir, func(t *testing.T, d *Dir) {
		if data, err := d.ReadFile("sys/fifo"); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%q, %v", data, err)
		}
	})
}

// Links are read in the directory that the name means now, and never outside.
func TestDirLinksOfSeveral(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	link := func(target string, elems ...string) {
		t.Helper()
		name := filepath.Join(append([]string{dir}, elems...)...)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.Symlink(target, name))
	}
	link("1", "sys/a/x")
	link("2", "sys/a/y")
	link("3", "sys/b/x")
	link("a", "sys/to-a")
	link("/sys/b", "sys/to-b")
	link(outside, "sys/out")
	must(t, os.Symlink("secret", filepath.Join(outside, "x")))
	eachBackend(t, dir, func(t *testing.T, d *Dir) {
		for range 2 {
			for _, want := range [][2]string{
				{"sys/a/x", "1"}, {"sys/b/x", "3"}, {"sys/a/y", "2"}, {"sys/a/z", ""}, {"sys/a/x", "1"}, {"sys/to-a", "a"},
				{"sys/to-a/y", "2"}, {"sys/to-b/x", "3"}, {"sys/out/x", ""}, {"sys/a", ""}, {"sys/none/x", ""},
			} {
				if got, err := d.ReadLink(want[0]); got != want[1] || (err == nil) != (want[1] != "") {
					t.Errorf("%s leads to %q, %v; want %q", want[0], got, err, want[1])
				}
			}
		}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				name := []string{"sys/a/x", "sys/b/x"}[i%2]
				for range 50 {
					if got, err := d.ReadLink(name); got != []string{"1", "3"}[i%2] {
						t.Errorf("%s leads to %q, %v", name, got, err)
					}
				}
			})
		}
		all.Wait()
	})
}

func TestDirSizes(t *testing.T) {
	dir := longtest.TempDir(t)
	must(t, os.Mkdir(filepath.Join(dir, "sys"), 0o755))
	eachBackend(t, dir, func(t *testing.T, d *Dir) {
		for _, size := range []int{1, 4095, 4096, 4097, 8191, 8192, 8193, 32768, 32769, 1 << 20} {
			want := bytes.Repeat([]byte("0123456"), size/7+1)[:size]
			must(t, os.WriteFile(filepath.Join(dir, "sys/f"), want, 0o644))
			if got, err := d.ReadFile("sys/f"); err != nil || !bytes.Equal(got, want) {
				t.Errorf("size %d: %d bytes, %v", size, len(got), err)
			}
		}
	})
}

// TestDirManyEntries lists more than one getdents buffer holds.
func TestDirManyEntries(t *testing.T) {
	dir := longtest.TempDir(t)
	const n = 300
	for i := range n {
		must(t, os.MkdirAll(filepath.Join(dir, "sys", strings.Repeat("d", 1+i%150)+string(rune('a'+i/150))), 0o755))
	}
	want, err := os.ReadDir(filepath.Join(dir, "sys"))
	must(t, err)
	eachBackend(t, dir, func(t *testing.T, d *Dir) {
		got, err := d.ReadDir("sys")
		if err != nil || len(got) != n {
			t.Fatalf("%d entries, %v", len(got), err)
		}
		for i := range got {
			if got[i].Name() != want[i].Name() || !got[i].IsDir() {
				t.Fatalf("entry %d is %v, want %v", i, got[i], want[i])
			}
		}
	})
}

func TestOpenDirRefuses(t *testing.T) {
	dir := longtest.TempDir(t)
	mk := func(name string) string {
		full := filepath.Join(dir, name)
		must(t, os.MkdirAll(full, 0o755))
		return full
	}
	mk("tarball/machine-1/sys")
	mk("two/a/sys")
	mk("two/b/proc")
	mk("root/sys/class")
	mk("root/sys/devices")
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o644))
	for path, want := range map[string]string{
		mk("empty"):     "no sys directory below it; pass the directory that contains sys/",
		mk("tarball"):   "pass the directory that contains sys/, perhaps " + filepath.Join(dir, "tarball", "machine-1"),
		mk("two"):       "pass the directory that contains sys/",
		mk("root/sys"):  "this looks like the sys directory itself; pass the one above, " + filepath.Join(dir, "root"),
		file:            "not a directory",
		dir + "/absent": "no such file or directory",
	} {
		d, err := OpenDir(path)
		if err == nil {
			d.Close()
			t.Errorf("%s: no error", path)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Count(err.Error(), path) != 1 && !strings.Contains(want, path) {
			t.Errorf("%s: %v; want %q", path, err, want)
		}
		if typed := errors.Is(err, ErrNotHostTree); typed == errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: ErrNotHostTree is %v of %v", path, typed, err)
		}
	}
}

func TestDirClosed(t *testing.T) {
	d, err := OpenDir("/")
	must(t, err)
	must(t, d.Close())
	if _, err := d.ReadFile("proc/version"); err == nil {
		t.Error("a closed tree reads")
	}
	if err := d.Close(); err == nil {
		t.Error("closed twice without an error")
	}
}

// TestLiveMachine reads this machine's sysfs and compares with the os package.
func TestLiveMachine(t *testing.T) {
	eachBackend(t, "/", func(t *testing.T, d *Dir) {
		for _, dir := range []string{"sys/class/net", "sys/bus/pci/devices", "sys/devices/system/cpu"} {
			want, err := os.ReadDir("/" + dir)
			if err != nil {
				t.Logf("%v", err)
				continue
			}
			got, err := d.ReadDir(dir)
			if err != nil || len(got) != len(want) {
				t.Errorf("%s: %d entries, %v; want %d", dir, len(got), err, len(want))
				continue
			}
			for i, e := range got {
				if e.Name() != want[i].Name() || e.Type() != want[i].Type() {
					t.Errorf("%s: %v, want %v", dir, e, want[i])
				}
				full, err := filepath.EvalSymlinks("/" + dir + "/" + e.Name())
				must(t, err)
				if real, err := RealPath(d, dir+"/"+e.Name()); err != nil || "/"+real != full {
					t.Errorf("RealPath(%s): %q, %v; want %q", e.Name(), real, err, full)
				}
			}
		}
		for _, name := range []string{"proc/cpuinfo", "proc/version", "sys/class/net/lo/mtu", "sys/devices/system/cpu/online"} {
			want, err := os.ReadFile("/" + name)
			if err != nil {
				t.Logf("%v", err)
				continue
			}
			if got, err := d.ReadFile(name); err != nil || name != "proc/cpuinfo" && !bytes.Equal(got, want) {
				t.Errorf("%s: %q, %v; want %q", name, got, err, want)
			}
		}
	})
}

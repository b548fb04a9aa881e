package hosttree

import (
	"archive/tar"
	"cmp"
	"compress/bzip2"
	"compress/gzip"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/testkit/longtest"
)

// untar reads a tar of a machine's sysfs, without the one directory that
// everything may lie in.
func untar(t testing.TB, file string) *Mem {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	in := bzip2.NewReader(f)
	if strings.HasSuffix(file, ".gz") {
		in, err = gzip.NewReader(f)
		must(t, err)
	}
	m := NewMem()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if err == io.EOF {
			return m
		}
		must(t, err)
		name := path.Clean(h.Name)
		if top, below, _ := strings.Cut(name, "/"); top != "sys" && top != "proc" {
			name = cmp.Or(below, ".")
		}
		switch h.Typeflag {
		case tar.TypeDir:
			must(t, m.AddDir(name))
		case tar.TypeSymlink:
			must(t, m.AddSymlink(name, h.Linkname))
		case tar.TypeReg:
			data, err := io.ReadAll(r)
			must(t, err)
			must(t, m.AddFile(name, data))
		}
	}
}

// TestCaptures holds every captured machine in memory, writes and reads it as
// an archive, and some of them on disk: nothing is lost.
func TestCaptures(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: slow, and one goroutine")
	}
	files, _ := filepath.Glob(filepath.Join(capturesDir, "*.tar.*"))
	if len(files) == 0 {
		t.Skipf("no captures of real machines: %s is not there", capturesDir)
	}
	// Making thousands of files takes seconds on some machines.
	onDisk := []string{"hwloc-2pa-pcidomain32bits.tar.bz2", "sysfs-qemu-2numa.tar.gz"}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			m := untar(t, file)
			want := dump(t, m)
			back, err := ParseArchive(archive(t, m, ""))
			must(t, err)
			if diff := gocmp.Diff(want, dump(t, back)); diff != "" {
				t.Error(diff)
			}
			t.Logf("%d files, directories and links", len(want))
			if !slices.Contains(onDisk, filepath.Base(file)) {
				return
			}
			dir := longtest.TempDir(t)
			must(t, os.CopyFS(dir, m))
			d, err := OpenDir(dir)
			must(t, err)
			defer d.Close()
			if diff := gocmp.Diff(want, dump(t, d)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// BenchmarkDir reads the attributes of this machine's first PCI device.
func BenchmarkDir(b *testing.B) {
	d, err := OpenDir("/")
	must(b, err)
	defer d.Close()
	devices, err := d.ReadDir("sys/bus/pci/devices")
	if err != nil || len(devices) == 0 {
		b.Skip("no PCI device on this machine")
	}
	link := "sys/bus/pci/devices/" + devices[len(devices)-1].Name()
	dev, err := RealPath(d, link)
	must(b, err)
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"ReadFile", func() error { _, err := d.ReadFile(dev + "/vendor"); return err }},
		{"ReadFile/os", func() error { _, err := os.ReadFile("/" + dev + "/vendor"); return err }},
		{"ReadDir", func() error { _, err := d.ReadDir(dev); return err }},
		{"ReadDir/os", func() error { _, err := os.ReadDir("/" + dev); return err }},
		{"ReadLink", func() error { _, err := d.ReadLink(link); return err }},
		{"RealPath", func() error { _, err := RealPath(d, link); return err }},
		{"RealPath/filepath", func() error { _, err := filepath.EvalSymlinks("/" + link); return err }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(b, c.do())
			}
		})
	}
}

// BenchmarkMem reads a file ten directories deep through a link.
func BenchmarkMem(b *testing.B) {
	m := smallHost(b)
	b.Run("ReadFile", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := m.ReadFile("sys/class/net/eth0/device/vendor")
			must(b, err)
		}
	})
	b.Run("ReadDir", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := m.ReadDir("sys/class/net/eth0/device")
			must(b, err)
		}
	})
}

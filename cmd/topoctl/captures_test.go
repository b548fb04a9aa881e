package main_test

import (
	"archive/tar"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/cmd/topoctl/internal/cli"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/longtest"
)

const sharedCaptures = "../../../shared/data/captures/sysfs"

// Published sysfs captures (longtest.Sample), expanded into a directory and read with
// --root: nothing is lost against the directory listing, and NUMA nodes and
// classes are what the files say.
func TestPublishedCaptures(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: expands thousands of files")
	}
	archives, err := filepath.Glob(filepath.Join(sharedCaptures, "*.tar.*"))
	if err != nil || len(archives) == 0 {
		t.Skipf("%s is not here: the published sysfs captures cannot be read", sharedCaptures)
	}
	for _, archive := range longtest.Sample(archives, 8) {
		t.Run(filepath.Base(archive), func(t *testing.T) {
			root := hostRoot(t, expand(t, archive))
			var out, errs bytes.Buffer
			code := cli.Main(t.Context(), []string{"discover", "--root", root}, cli.Streams{Out: &out, Err: &errs, Getenv: func(string) string { return "" }}, nil, nil)
			if code != 0 && code != 3 {
				t.Fatalf("exit %d: %s", code, errs.String())
			}
			host, err := topo.Decode(out.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]*topo.PCIDevice{}
			for i := range host.PCIDevices {
				found[host.PCIDevices[i].BDF.String()] = &host.PCIDevices[i]
			}
			listed, err := os.ReadDir(filepath.Join(root, "sys/bus/pci/devices"))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			for _, e := range listed {
				d, ok := found[e.Name()]
				if !ok {
					t.Errorf("%s is lost", e.Name())
					continue
				}
				checkNUMA(t, root, d)
			}
			if len(found) != len(listed) {
				t.Errorf("%d functions, the directory lists %d", len(found), len(listed))
			}
			checkClasses(t, root, host)
		})
	}
}

// expand unpacks an archive into a directory. Links are made last, and only
// relative ones, so that no file is written through a link.
func expand(t *testing.T, archive string) string {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var in io.Reader
	if strings.HasSuffix(archive, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			t.Fatal(err)
		}
	} else {
		in = bzip2.NewReader(file)
	}
	dir := longtest.TempDir(t)
	links := map[string]string{}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !filepath.IsLocal(h.Name) {
			t.Fatalf("%s leaves the directory", h.Name)
		}
		name := filepath.Join(dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(name, 0o755)
		case tar.TypeReg:
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				if err = os.MkdirAll(filepath.Dir(name), 0o755); err == nil {
					err = os.WriteFile(name, data, 0o644)
				}
			}
		case tar.TypeSymlink:
			links[name] = h.Linkname
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range links {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// hostRoot is the directory that holds sys: hwloc's archives have a folder on top.
func hostRoot(t *testing.T, dir string) string {
	t.Helper()
	for _, pattern := range []string{"sys", "*/sys"} {
		if found, err := filepath.Glob(filepath.Join(dir, pattern)); err == nil && len(found) == 1 {
			return filepath.Dir(found[0])
		}
	}
	t.Fatalf("no sys below %s", dir)
	return ""
}

// attribute reads a file of a PCI function, "" without one.
func attribute(root, bdf, name string) string {
	data, err := os.ReadFile(filepath.Join(root, "sys/bus/pci/devices", bdf, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// checkNUMA: a node that the kernel states is the one we state; -1 is never
// passed on.
func checkNUMA(t *testing.T, root string, d *topo.PCIDevice) {
	t.Helper()
	bdf := d.BDF.String()
	stated, err := strconv.Atoi(attribute(root, bdf, "numa_node"))
	switch {
	case d.NUMA != nil && *d.NUMA < 0:
		t.Errorf("%s: NUMA node %d", bdf, *d.NUMA)
	case err == nil && stated >= 0 && (d.NUMA == nil || *d.NUMA != stated):
		t.Errorf("%s: NUMA node %v, the file says %d", bdf, d.NUMA, stated)
	}
}

// checkClasses compares the class of each pair of devices on PCI with what the
// real paths of their directories say: bridges below the last common one.
func checkClasses(t *testing.T, root string, host *topo.Topology) {
	t.Helper()
	paths := map[topo.ID][]string{}
	numa := map[topo.ID]*int{}
	for _, kind := range []topo.Kind{topo.KindGPU, topo.KindNIC} {
		for _, e := range host.Matrix([]topo.Kind{kind}, nil).Rows {
			if e.BDF == nil {
				continue
			}
			real, err := filepath.EvalSymlinks(filepath.Join(root, "sys/bus/pci/devices", e.BDF.String()))
			if err != nil {
				t.Fatal(err)
			}
			_, below, _ := strings.Cut(real, "/sys/devices/")
			paths[e.ID], numa[e.ID] = strings.Split(below, "/"), e.NUMA
		}
	}
	for a, x := range paths {
		for b, y := range paths {
			if want := classOfPaths(x, y, numa[a], numa[b]); a != b && want != "" {
				if got := host.Relate(a, b).Class; got.String() != want {
					t.Errorf("%s to %s: class %q, the paths say %s", a, b, got, want)
				}
			}
		}
	}
}

func classOfPaths(x, y []string, nx, ny *int) string {
	common := 0
	for common < len(x)-1 && common < len(y)-1 && x[common] == y[common] {
		common++
	}
	bridges := max(len(x), len(y)) - common - 1 // of the longer side, below the common one
	switch {
	case common >= 2 && bridges <= 1:
		return "PIX"
	case common >= 2:
		return "PXB"
	case common == 1:
		return "PHB"
	case nx == nil || ny == nil:
		return ""
	case *nx == *ny:
		return "NODE"
	}
	return "SYS"
}

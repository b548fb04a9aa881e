package sysfs

import (
	"archive/tar"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/testkit/golden"
)

const captureDir = "../../../../shared/data/captures/sysfs"

// openCapture expands a capture in memory. The tree begins at the directory
// that holds sys.
func openCapture(t testing.TB, name string) *hosttree.Mem {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(captureDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("shared data is not here: no %s", filepath.Join(captureDir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
	mem := hosttree.NewMem()
	if strings.HasSuffix(name, ".ttar") {
		readTTAR(t, mem, string(data))
		return mem
	}
	in := bzip2.NewReader(bytes.NewReader(data))
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return mem
		}
		if err != nil {
			t.Fatal(err)
		}
		entry := hostName(h.Name)
		switch {
		case entry == "":
		case h.Typeflag == tar.TypeSymlink:
			err = mem.AddSymlink(entry, h.Linkname)
		case h.Typeflag == tar.TypeDir:
			err = mem.AddDir(entry)
		case h.Typeflag == tar.TypeReg:
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = mem.AddFile(entry, content)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// hostName takes what stands before sys, proc or run off a name.
func hostName(name string) string {
	parts := strings.Split(path.Clean(name), "/")
	for len(parts) > 0 && !slices.Contains([]string{"sys", "proc", "run", "dev", "etc"}, parts[0]) {
		parts = parts[1:]
	}
	return strings.Join(parts, "/")
}

// readTTAR reads the text form of prometheus/procfs: "Path:", then "Lines: N"
// and the lines, or "SymlinkTo:".
func readTTAR(t testing.TB, mem *hosttree.Mem, text string) {
	lines := strings.Split(text, "\n")
	name := ""
	for i := 0; i < len(lines); i++ {
		key, v, _ := strings.Cut(lines[i], ": ")
		var err error
		switch key {
		case "Path":
			name = hostName(v)
		case "Directory":
			err = mem.AddDir(hostName(v))
		case "SymlinkTo":
			err = mem.AddSymlink(name, v)
		case "Lines":
			n, convErr := parseUint(v, len(lines))
			if convErr != nil {
				t.Fatal(convErr)
			}
			content := strings.ReplaceAll(strings.Join(lines[i+1:i+1+n], "\n")+"\n", "EOF\n", "")
			err = mem.AddFile(name, []byte(content))
			i += n
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// What is read of real machines. Of the links in these captures some lead nowhere, and firmware is silent
// here and there.
func TestCaptures(t *testing.T) {
	for _, name := range []string{
		"hwloc-32intel64-2p8co2t+8ve.tar.bz2", "hwloc-32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2", "hwloc-40intel64-2g2n4c+pcilocality.tar.bz2",
		"hwloc-fakepcilocalities.tar.bz2", "hwloc-2pa-pcidomain32bits.tar.bz2", "hwloc-nvidia-dgx-gb10.tar.bz2", "ghw-kvm-tesla-p100.tar.gz",
		"sysfs-qemu-2numa.tar.gz", "sysfs-qemu-2numa-iommu.tar.gz", "sysfs-qemu-4numa.tar.gz", "procfs-infiniband-trimmed.ttar",
	} {
		t.Run(name, func(t *testing.T) {
			document, err := Read(openCapture(t, name), false).Encode()
			if err != nil {
				t.Fatal(err)
			}
			short, _, _ := strings.Cut(name, ".")
			golden.CheckPacked(t, "testdata/captures/"+short+".json.gz", document)
		})
	}
}

// TestThisMachine reads the machine that the test runs on: no function of its
// listing may be lost, and its CPUs and memory must be known.
func TestThisMachine(t *testing.T) {
	if _, err := os.Stat("/proc/meminfo"); err != nil {
		t.Skip("not Linux: no /proc/meminfo")
	}
	tree, err := hosttree.OpenDir("/")
	if err != nil {
		t.Skipf("no live tree here: %v", err)
	}
	defer tree.Close()
	top := Read(tree, true)
	listed, _ := os.ReadDir("/" + pciDevices)
	for _, e := range listed {
		pciOf(t, top, e.Name())
	}
	if h := top.Host; len(top.NUMANodes) == 0 || h.CPUs == "" || h.MemoryBytes == nil || h.Kernel == "" || h.Container == nil {
		t.Errorf("%d nodes, %+v", len(top.NUMANodes), h)
	}
}

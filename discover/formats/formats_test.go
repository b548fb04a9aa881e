package formats_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/formats"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// read gives the document of the host in a file.
func read(t *testing.T, data []byte, o formats.Options) []byte {
	t.Helper()
	top, err := formats.Read(t.Context(), data, o)
	if err != nil {
		t.Fatal(err)
	}
	return encode(t, top)
}

func encode(t *testing.T, top *topo.Topology) []byte {
	t.Helper()
	document, err := top.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func file(tb testing.TB, path string) []byte {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func glob(tb testing.TB, pattern string) []string {
	tb.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		tb.Fatal(paths, err)
	}
	return paths
}

// What is read of files by hand, in the testdata of each format, and of published files; the document of it is read
// as it is.
func TestDocuments(t *testing.T) {
	for _, format := range []struct{ name, published string }{
		{"ncclxml", "nccl-xml/*.xml"}, {"hwlocxml", "captures/hwloc-xml/*.xml.gz"}, {"texts", "topo-matrices/*.txt"},
	} {
		files := fixturetest.PublishedIfThere(t, format.published)
		delete(files, "azure-ncv4-graph") // channels, no topology
		for _, path := range glob(t, format.name+"/testdata/*.*") {
			files[strings.ReplaceAll(filepath.Base(path), ".", "-")] = file(t, path)
		}
		for name, data := range files {
			t.Run(format.name+" "+name, func(t *testing.T) {
				document := read(t, data, formats.Options{})
				golden.CheckPacked(t, "testdata/"+format.name+"/"+name+".json.gz", document)
				if again := read(t, document, formats.Options{}); !bytes.Equal(again, document) {
					t.Error("the document is read as another one")
				}
			})
		}
	}
}

// Descriptions of machines and captures are discovered.
func TestCaptures(t *testing.T) {
	for _, path := range longtest.Sample(slices.Concat(glob(t, "../../fixtures/captures/*"), glob(t, "../../fixtures/machines/*.yaml")), 8) {
		name, _, _ := strings.Cut(filepath.Base(path), ".")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, err := fixtures.Topology(name)
			if err != nil {
				t.Fatal(err)
			}
			want.Origin, want.Tool.Version = "capture", "7"
			if got := read(t, file(t, path), formats.Options{ToolVersion: "7"}); !bytes.Equal(got, encode(t, want)) {
				t.Errorf("is not what the fixture is")
			}
			got, err := formats.Read(t.Context(), file(t, path), formats.Options{Sources: []string{"sysfs"}})
			if err != nil || !slices.ContainsFunc(got.Sources, func(r topo.SourceReport) bool { return r.Status == topo.StatusSkipped }) {
				t.Errorf("sysfs alone: %v, %v", got, err)
			}
		})
	}
}

// Text is text however it is packed, and in whatever encoding a byte order mark names.
func TestPacked(t *testing.T) {
	plain := file(t, "texts/testdata/amdsmi-tables.txt")
	want := read(t, plain, formats.Options{})
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	wide := []byte("\xff\xfe")
	for _, b := range plain {
		wide = append(wide, b, 0)
	}
	for name, data := range map[string][]byte{"gzip": packed.Bytes(), "UTF-16": wide, "byte order mark": append([]byte("\ufeff"), plain...)} {
		if got := read(t, data, formats.Options{}); !bytes.Equal(got, want) {
			t.Errorf("%s: another host", name)
		}
		if f, err := formats.Detect(data); f.Name != "amd-smi topology" || f.Decode == nil || err != nil {
			t.Errorf("%s: detected %q, %v", name, f.Name, err)
		}
	}
}

const (
	hwloc = `<topology version="2.0"><object type="Machine" os_index="0" cpuset="0x3" nodeset="0x1" gp_index="1">
<object type="NUMANode" os_index="0" cpuset="0x3" nodeset="0x1" gp_index="2"/>
<object type="Bridge" bridge_type="0-1" bridge_pci="0101:[00-00]" gp_index="3">
<object type="PCIDev" pci_busid="0101:00:00.0" pci_type="0207 [15b3:101c] [15b3:0007] 00" pci_link_speed="0" gp_index="4">
<object type="OSDev" name="mlx5_0" osdev_type="3" gp_index="5"/></object></object></object></topology>`
	ibstat = "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 200\n\t\tLink layer: InfiniBand\n"
)

// Texts of network tools are laid over the host.
func TestWith(t *testing.T) {
	top, err := formats.Read(t.Context(), []byte(hwloc), formats.Options{With: []formats.Text{{Name: "ibstat.txt", Data: []byte(ibstat)}}})
	if err != nil {
		t.Fatal(err)
	}
	if p := top.Ports[0]; p.State != "ACTIVE" || p.LinkLayer != "InfiniBand" || *p.BytesPerSec != 25e9 {
		t.Errorf("%+v", p)
	}
}

// An error says which file, and whether its format is known.
func TestErrors(t *testing.T) {
	with := func(texts ...string) (o formats.Options) {
		o.Name = "host.xml"
		for i, text := range texts {
			o.With = append(o.With, formats.Text{Name: string(rune('a' + i)), Data: []byte(text)})
		}
		return o
	}
	tar := make([]byte, 512)
	copy(tar[257:], "ustar")
	const nobody = "formats: x: unknown format: want one of topoctl JSON, NCCL topology XML, hwloc XML, nvidia-smi topo -m, amd-smi topology, lspci -vv, captures"
	for _, tt := range []struct {
		data         string
		o            formats.Options
		format, want string // format "unknown": the error is ErrUnknown
	}{
		{"root:x:0:0:root:/root:/bin/bash\n", formats.Options{Name: "x"}, "unknown", nobody},
		{"root:x:0:0:root:/root:/bin/bash\n", formats.Options{}, "unknown", strings.Replace(nobody, "x: unknown", "unknown", 1)},
		{`{"schema":"topoctl.topology/v2"}`, formats.Options{Name: "x"}, "topoctl JSON", `formats: x: schema "topoctl.topology/v2" is newer than this program reads ("topoctl.topology/v1"): use a newer topoctl`},
		{`<topology version="2.0"><object`, formats.Options{}, "hwloc XML", "formats: line 1"},
		{"machine: m\nnonsense: 1\n", formats.Options{Name: "x"}, "captures", "formats: x: machine: line 2"},
		{"topoctl-tree/v1\n-- etc/hostname --\nh\n", formats.Options{Name: "x"}, "captures", "formats: x: the tree is not a host's file tree"},
		{" \n", formats.Options{Name: "x"}, "", "formats: x: is empty"},
		{"\xff\xfe", formats.Options{}, "", "formats: is empty"},
		{"\x1f\x8b\x08\x00", formats.Options{Name: "x"}, "", "formats: x: gzip: "},
		{string(tar), formats.Options{Name: "x"}, "", "formats: x: is a tar archive"},
		{hwloc, formats.Options{Name: "x", MaxBytes: 100}, "", "formats: x: larger than 100 B: not a topology"},
		{strings.Repeat(" ", formats.MaxBytes+1), formats.Options{Name: "x", MaxBytes: formats.MaxBytes * 2}, "", "formats: x: larger than 64 MiB: not a topology"},
		{hwloc, with(ibstat, ""), formats.NetworkTexts, "formats: b: is empty"},
		{hwloc, with(hwloc), formats.NetworkTexts, "formats: a: none of the texts that are known: ibstat, ibdev2netdev, rdma link, ip addr"},
		{hwloc, with(ibstat, strings.Replace(ibstat, "Active", "Down", 1)), formats.NetworkTexts, "formats: port:mlx5_0/1: ibstat says state ACTIVE (a line 2) and DOWN (b line 2)"},
	} {
		top, err := formats.Read(t.Context(), []byte(tt.data), tt.o)
		var broken *formats.FileError
		if top != nil || err == nil || !strings.HasPrefix(err.Error(), tt.want) ||
			errors.Is(err, formats.ErrUnknown) != (tt.format == "unknown") || errors.As(err, &broken) == (tt.format == "unknown") {
			t.Errorf("%.40q: %v, want %s", tt.data, err, tt.want)
		} else if broken != nil && broken.Format != tt.format {
			t.Errorf("%.40q: format %q, want %q", tt.data, broken.Format, tt.format)
		}
	}
	if _, err := formats.Detect([]byte("nobody's")); !errors.Is(err, formats.ErrUnknown) {
		t.Errorf("detected: %v", err)
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	var broken *formats.FileError
	if _, err := formats.Read(over, []byte("machine: m\ndescription: x\nbase: cpu-2eth\n"), formats.Options{}); !errors.Is(err, context.Canceled) || errors.As(err, &broken) {
		t.Errorf("with a context that is over: %v", err)
	}
}

// The caller cannot change which formats there are.
func TestFormats(t *testing.T) {
	list := formats.Formats()
	for i, f := range list {
		if f.Name == "" || (f.Decode == nil) == (f.Open == nil) {
			t.Errorf("format %d: %+v", i, f)
		}
		list[i] = formats.Format{}
	}
	if f, err := formats.Detect([]byte(hwloc)); f.Name != "hwloc XML" || err != nil {
		t.Errorf("detected %q, %v", f.Name, err)
	}
}

// Whatever a file holds: a topology that can be written and read again, or one of the errors that are promised.
func FuzzRead(f *testing.F) {
	for _, pattern := range []string{"ncclxml/testdata/small.xml", "hwlocxml/testdata/small.xml", "texts/testdata/*.txt", "../../fixtures/captures/*"} {
		for _, path := range glob(f, pattern) {
			f.Add(file(f, path), []byte(ibstat))
		}
	}
	f.Add([]byte(hwloc), []byte("2: eth0: <UP> mtu 1500 state UP\n"))
	f.Add([]byte("machine: m\ndescription: x\nbase: cpu-2eth\n"), []byte(nil))
	f.Add([]byte("topoctl-tree/v1\n-- sys/class/net/eth0/mtu --\n1500\n"), []byte(nil))
	f.Fuzz(func(t *testing.T, data, with []byte) {
		o := formats.Options{MaxBytes: 1 << 20}
		if len(with) > 0 {
			o.With = []formats.Text{{Name: "with", Data: with}}
		}
		top, err := formats.Read(t.Context(), data, o)
		var broken *formats.FileError
		switch {
		case err == nil:
			fixturetest.ReadBack(t, top)
		case errors.Is(err, formats.ErrUnknown) == errors.As(err, &broken) || top != nil:
			t.Errorf("%v, %v", top, err)
		}
	})
}

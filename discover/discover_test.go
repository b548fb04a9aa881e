package discover

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/testkit/longtest"
)

func TestForeignTree(t *testing.T) {
	noLeaks(t)
	asked := gpuFunc(func(context.Context) (*replies.GPUReport, error) {
		t.Error("another machine's files were looked at, and this machine's GPU library was asked")
		return nil, errors.New("no")
	})
	tp, err := Discover(context.Background(), Options{FS: smallTree(t), GPUs: asked, ToolVersion: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	if tp.Origin != "capture" || tp.CapturedAt != nil || tp.Tool.Version != "1.2.3" || !tp.Complete {
		t.Errorf("origin %q, captured %v, tool %v, complete %v, warnings %v", tp.Origin, tp.CapturedAt, tp.Tool, tp.Complete, tp.Warnings)
	}
	var got []string
	for _, r := range tp.Sources {
		got = append(got, string(r.Source)+" "+string(r.Status))
	}
	want := []string{"sysfs ok", "ghw ok", "rdmamap skipped", "netlink ok", "nvml ok"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sources (-want +got)\n%s", diff)
	}
	if !reportOf(t, tp, topo.SourceNVML).Recorded || !reportOf(t, tp, topo.SourceNetlink).Recorded {
		t.Error("replayed answers are not marked as recorded")
	}
	checkSmall(t, tp)
}

// checkSmall checks what every way of looking at the small machine must find.
func checkSmall(t *testing.T, tp *topo.Topology) {
	t.Helper()
	if len(tp.GPUs) != 2 || tp.GPUs[0].UUID == "" || tp.GPUs[1].NVMLIndex == nil || *tp.GPUs[1].NVMLIndex != 1 || tp.GPUs[0].Model != "NVIDIA A10" {
		t.Errorf("GPUs: %+v", tp.GPUs)
	}
	if f, _ := tp.GPUs[0].Facts.Get("nvml_index"); f.Source != topo.SourceNVML {
		t.Errorf("nvml_index is from %q", f.Source)
	}
	if f, _ := tp.Host.Facts.Get("gpu_driver_version"); tp.Host.GPUDriver != "580.95.05" || f.Source != topo.SourceNVML {
		t.Errorf("GPU driver %q from %q", tp.Host.GPUDriver, f.Source)
	}
	for _, n := range tp.Netdevs {
		if n.Name == "eno1" {
			if diff := cmp.Diff([]topo.Route{{Dst: "10.1.0.0/24"}, {Dst: "default", Gateway: "10.1.0.1"}}, n.Routes); diff != "" {
				t.Errorf("routes of eno1 (-want +got)\n%s", diff)
			}
		}
	}
	checkNames(t, tp)
}

// checkNames checks the names of the small machine's PCI functions.
func checkNames(t *testing.T, tp *topo.Topology) {
	t.Helper()
	names := map[string]string{}
	for _, d := range tp.PCIDevices {
		names[d.BDF.String()] = d.VendorName + " / " + d.DeviceName
	}
	for bdf, want := range map[string]string{
		"0000:19:00.0": "NVIDIA Corporation / GA102GL [A10]",
		"0000:17:00.0": "Broadcom / LSI / PEX880xx PCIe Gen 4 Switch",
		"0000:1b:00.0": "Mellanox Technologies / MT2892 Family [ConnectX-6 Dx]",
		"0000:1c:00.0": "Intel Corporation / I350 Gigabit Network Connection",
	} {
		if names[bdf] != want {
			t.Errorf("%s is %q, want %q", bdf, names[bdf], want)
		}
	}
}

// A captured directory gives what a tree in memory gives: the libraries that
// follow links by themselves stay away from both.
func TestRoot(t *testing.T) {
	noLeaks(t)
	dir := smallDir(t)
	var tp *topo.Topology
	quiet(t, func() {
		var err error
		if tp, err = Discover(context.Background(), Options{Root: dir}); err != nil {
			t.Fatal(err)
		}
	})
	checkSmall(t, tp)
	if len(tp.Warnings) > 0 {
		t.Errorf("warnings %v, want none", tp.Warnings)
	}
	mem, err := Discover(context.Background(), Options{FS: smallTree(t)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(mem, tp); diff != "" {
		t.Errorf("memory and directory differ (-memory +directory)\n%s", diff)
	}
	want := topo.SourceReport{Source: topo.SourceGHW, Status: topo.StatusOK, Detail: "names from the embedded pci.ids"}
	if got := reportOf(t, tp, topo.SourceGHW); got != want {
		t.Errorf("ghw: %+v, want %+v", got, want)
	}
	want = topo.SourceReport{Source: topo.SourceRDMAMap, Status: topo.StatusSkipped, Detail: "asked on this machine only: it follows links by itself"}
	if got := reportOf(t, tp, topo.SourceRDMAMap); got != want {
		t.Errorf("rdmamap: %+v, want %+v", got, want)
	}
}

// hostRoot looks at a directory as this machine's files, with the libraries
// that read files by themselves and without those that ask the running kernel
// or the GPUs. The host has no pci.ids.
func hostRoot(t *testing.T, dir string) *topo.Topology {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("a running machine can be looked at on linux only")
	}
	places := systemIDs
	systemIDs = []string{filepath.Join(dir, "no-such-pci.ids")}
	defer func() { systemIDs = places }()
	var tp *topo.Topology
	quiet(t, func() {
		var err error
		tp, err = Discover(context.Background(), Options{HostRoot: dir, Sources: []string{"ghw", "rdmamap"}})
		if err != nil {
			t.Fatal(err)
		}
	})
	for _, s := range []topo.Source{topo.SourceNetlink, topo.SourceNVML} {
		if r := reportOf(t, tp, s); r.Status != topo.StatusSkipped {
			t.Errorf("%s: %+v; it was not asked for", s, r)
		}
	}
	return tp
}

// On this machine's files ghw and rdmamap look too, and agree with sysfs.
func TestHostRoot(t *testing.T) {
	noLeaks(t)
	installIDs(t)
	tp := hostRoot(t, smallDir(t))
	checkNames(t, tp)
	if w := warningsOf(tp, topo.CodeConflict); len(w) > 0 {
		t.Errorf("sources disagree: %v", w)
	}
	if r := reportOf(t, tp, topo.SourceGHW); r.Status != topo.StatusOK || !strings.HasSuffix(r.Detail, "pci.ids; ghw lists 10 of 10 PCI functions") {
		t.Errorf("ghw: %+v", r)
	}
	if r := reportOf(t, tp, topo.SourceRDMAMap); r.Status != topo.StatusOK || r.Detail != "1 RDMA devices" {
		t.Errorf("rdmamap: %+v", r)
	}
}

// Each kind of RDMA device finds its PCI function: a NIC's function, physical or
// virtual, by the class directory; rxe by the interface that it runs on, of which
// one is a virtio interface. Nothing in the files joins siw to one.
func TestRDMAToPCI(t *testing.T) {
	for name, want := range map[string][]string{
		"cpu-2eth":     nil,
		"lab-softrdma": {"rxe0 pci:0000:23:00.0", "rxe1 pci:0000:24:00.0", "siw0 "},
		"sriov-pf-vf": {
			"mlx5_0 pci:0000:1a:00.0", "mlx5_1 pci:0000:9b:00.0",
			"mlx5_2 pci:0000:1a:00.2", "mlx5_3 pci:0000:1a:00.3", "mlx5_4 pci:0000:1a:00.4", "mlx5_5 pci:0000:1a:00.5",
			"mlx5_6 pci:0000:9b:00.2", "mlx5_7 pci:0000:9b:00.3", "mlx5_8 pci:0000:9b:00.4", "mlx5_9 pci:0000:9b:00.5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree, err := fixtures.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			dir := longtest.TempDir(t)
			if err := os.CopyFS(dir, tree); err != nil {
				t.Fatal(err)
			}
			tp := hostRoot(t, dir)
			var got []string
			for _, r := range tp.RDMADevices {
				got = append(got, r.Name+" "+string(r.PCI))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("RDMA devices (-want +got)\n%s", diff)
			}
			if r := reportOf(t, tp, topo.SourceRDMAMap); r.Status != topo.StatusOK && len(want) > 0 {
				t.Errorf("rdmamap: %+v", r)
			}
			if w := warningsOf(tp, topo.CodeConflict); len(w) > 0 {
				t.Errorf("sources disagree: %v", w)
			}
		})
	}
}

func TestSources(t *testing.T) {
	tp, err := Discover(context.Background(), Options{FS: smallTree(t), Sources: []string{"nvml"}})
	if err != nil {
		t.Fatal(err)
	}
	if r := reportOf(t, tp, topo.SourceNVML); r.Status != topo.StatusOK {
		t.Errorf("nvml: %+v", r)
	}
	for _, s := range []topo.Source{topo.SourceGHW, topo.SourceRDMAMap, topo.SourceNetlink} {
		if r := reportOf(t, tp, s); r.Status != topo.StatusSkipped {
			t.Errorf("%s: %+v, want it skipped", s, r)
		}
	}
	if tp.PCIDevices[0].VendorName != "" || tp.Netdevs[0].Routes != nil {
		t.Error("sources that were not asked for have left something")
	}
}

func TestRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		opts Options
		want string
	}{
		{"two hosts", nil, Options{Root: "/a", HostRoot: "/b"}, "Root and HostRoot exclude each other"},
		{"unknown source", nil, Options{FS: smallTree(t), Sources: []string{"lspci"}}, `source "lspci" is not known: want one of sysfs, ghw, rdmamap, netlink, nvml`},
		{"no links", nil, Options{FS: fs.FS(noLinks{})}, "not a host tree"},
		{"no directory", nil, Options{Root: filepath.Join(file, "nothing")}, "discover: "},
		{"a file", nil, Options{Root: file}, "discover: "},
		{"no host", nil, Options{Root: t.TempDir()}, "sys"},
		{"no host in memory", nil, Options{FS: hosttree.NewMem()}, "the tree is not a host's file tree"},
		{"cancelled", cancelled, Options{FS: smallTree(t)}, "context canceled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := tt.ctx
			if ctx == nil {
				ctx = context.Background()
			}
			tp, err := Discover(ctx, tt.opts)
			if err == nil || !strings.Contains(err.Error(), tt.want) || tp != nil {
				t.Errorf("topology %v, error %v; want an error with %q", tp, err, tt.want)
			}
		})
	}
}

// noLinks is a file system that knows no symbolic links.
type noLinks struct{}

func (noLinks) Open(name string) (fs.File, error) { return fstest.MapFS{}.Open(name) }

// This machine, whatever it is, gives a topology and none of it on stderr.
func TestLive(t *testing.T) {
	noLeaks(t)
	if runtime.GOOS != "linux" {
		_, err := Discover(context.Background(), Options{})
		if err == nil || !strings.Contains(err.Error(), "not supported on "+runtime.GOOS) {
			t.Errorf("error %v", err)
		}
		return
	}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.FixedZone("CET", 3600))
	quiet(t, func() {
		for _, opts := range []Options{{Now: now}, {HostRoot: "/", Now: now}} {
			tp, err := Discover(context.Background(), opts)
			if err != nil {
				t.Fatal(err)
			}
			if tp.Origin != "live" || tp.CapturedAt == nil || tp.CapturedAt.Hour() != 11 {
				t.Errorf("origin %q, captured at %v", tp.Origin, tp.CapturedAt)
			}
			if w := warningsOf(tp, topo.CodeConflict); len(w) > 0 {
				t.Errorf("sources disagree about this machine: %v", w)
			}
			if r := reportOf(t, tp, topo.SourceNetlink); r.Status == topo.StatusOK && r.Recorded {
				t.Errorf("netlink: %+v", r)
			}
		}
	})
}

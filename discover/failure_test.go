package discover

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jaypipes/ghw"

	"github.com/topoctl/topoctl/discover/internal/sysfs"
	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
)

// absentGPUs is what a GPUSource says that has no library.
type absentGPUs struct{}

func (absentGPUs) Error() string { return "libnvidia-ml.so.1 is not installed" }
func (absentGPUs) Absent() bool  { return true }

// waiting is a test whose time passes only while all of its goroutines wait, so that none is given
// up that is at work. It ends when they have.
func waiting(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// Each live source may fail alone: by an error, a panic, or by hanging until
// the time is up. The other's answers and the files stay.
func TestSourceFailsAlone(t *testing.T) {
	type how struct {
		name   string
		detail string
		fail   func(ctx context.Context, release <-chan struct{}) error
	}
	for _, how := range []how{
		{"error", "permission denied", func(context.Context, <-chan struct{}) error { return os.ErrPermission }},
		{"panic", "the library panicked: index out of range", func(context.Context, <-chan struct{}) error { panic("index out of range") }},
		{"hang", "no answer in time", func(_ context.Context, release <-chan struct{}) error { <-release; return nil }},
	} {
		for _, source := range []topo.Source{topo.SourceNVML, topo.SourceNetlink} {
			t.Run(string(source)+" "+how.name, waiting(func(t *testing.T) {
				release := make(chan struct{})
				defer close(release)
				ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
				defer cancel()
				p := live(t, okGPUs(t), okNetlink(t))
				if source == topo.SourceNVML {
					p.opts.GPUs = gpuFunc(func(ctx context.Context) (*replies.GPUReport, error) { return nil, how.fail(ctx, release) })
				} else {
					p.dumpNetlink = func(ctx context.Context) (*replies.NetlinkReport, error) { return nil, how.fail(ctx, release) }
				}
				tp, raw, err := p.run(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if tp.Complete || !hasWarning(tp, topo.CodeSourceFailed, how.detail) || len(warningsOf(tp, topo.CodeSourceFailed)) != 1 {
					t.Errorf("complete %v, warnings %v", tp.Complete, tp.Warnings)
				}
				if r := reportOf(t, tp, source); r.Status != topo.StatusFailed || !strings.Contains(r.Detail, how.detail) {
					t.Errorf("%+v", r)
				}
				other, haveOther := topo.SourceNetlink, raw.netlink != nil && raw.gpus == nil
				if source == topo.SourceNetlink {
					other, haveOther = topo.SourceNVML, raw.gpus != nil && raw.netlink == nil
				}
				if r := reportOf(t, tp, other); r.Status != topo.StatusOK || !haveOther {
					t.Errorf("the other source: %+v, answers %+v", r, raw)
				}
				if len(tp.PCIDevices) != 10 || tp.PCIDevices[0].VendorName == "" || len(tp.RDMADevices) != 1 {
					t.Errorf("%d PCI functions, %d RDMA devices; the files were read before", len(tp.PCIDevices), len(tp.RDMADevices))
				}
			}))
		}
	}
}

// A source that outlasts its own limit is given up without any deadline.
func TestSourceLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		p := live(t, gpuFunc(func(context.Context) (*replies.GPUReport, error) { <-release; return nil, nil }), okNetlink(t))
		tp, _, err := p.run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if !hasWarning(tp, topo.CodeSourceFailed, "nvml: no answer in time") || len(warningsOf(tp, topo.CodeSourceFailed)) != 1 {
			t.Errorf("warnings %v", tp.Warnings)
		}
	})
}

// Cancelling is no deadline: it ends the discovery with an error.
func TestCancelled(t *testing.T) {
	noLeaks(t)
	release := make(chan struct{})
	defer close(release)
	ctx, cancel := context.WithCancel(context.Background())
	p := live(t, gpuFunc(func(context.Context) (*replies.GPUReport, error) { cancel(); <-release; return nil, nil }), okNetlink(t))
	tp, raw, err := p.run(ctx)
	if !errors.Is(err, context.Canceled) || tp != nil || raw != (rawReplies{}) {
		t.Errorf("topology %v, answers %v, error %v", tp, raw, err)
	}
}

// Files that hang cost everything, but not the caller's time.
func TestFilesHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		p := live(t, okGPUs(t), okNetlink(t))
		p.read = func(hosttree.Tree, bool) *topo.Topology { <-release; return &topo.Topology{} }
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if _, _, err := p.run(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "reading the host's files") {
			t.Errorf("error %v", err)
		}
	})
}

// Discoveries wait for each other where rdmamap's variables are concerned, not for ever.
func TestRDMAMapBusy(t *testing.T) {
	rdmaDirsLock <- struct{}{}
	defer func() { <-rdmaDirsLock }()
	p := live(t, nil, okNetlink(t))
	p.dir = smallDir(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := p.rdmamap(ctx, rdmaWanted{}).report; r.Status != topo.StatusFailed || !strings.Contains(r.Detail, "another discovery is running") {
		t.Errorf("rdmamap: %+v", r)
	}
}

// NVML that is not there is no failure, and worth a word only where the
// driver lists GPUs.
func TestNVMLAbsent(t *testing.T) {
	absent := gpuFunc(func(context.Context) (*replies.GPUReport, error) { return nil, absentGPUs{} })
	p := live(t, absent, okNetlink(t))
	tp, _, err := p.run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	r := reportOf(t, tp, topo.SourceNVML)
	if r.Status != topo.StatusAbsent || !tp.Complete {
		t.Errorf("%+v, complete %v, warnings %v", r, tp.Complete, tp.Warnings)
	}
	if len(warningsOf(tp, topo.CodeDriverOnly)) != 1 || !hasWarning(tp, topo.CodeDriverOnly, "libnvidia-ml.so.1 is not installed") {
		t.Errorf("two GPUs and no NVML: warnings %v", tp.Warnings)
	}
	if tp.GPUs[0].UUID == "" || tp.GPUs[0].NVMLIndex != nil {
		t.Errorf("GPU 0: %+v; want what /proc tells and no more", tp.GPUs[0])
	}

	p = live(t, absent, okNetlink(t))
	p.read = func(tree hosttree.Tree, live bool) *topo.Topology {
		tp := sysfsForeign(tree, live)
		tp.GPUs = nil
		return tp
	}
	if tp, _, err = p.run(context.Background()); err != nil || len(tp.Warnings) > 0 {
		t.Errorf("no GPU and no NVML: warnings %v, error %v", tp.Warnings, err)
	}

	tree := hosttree.NewMem()
	if err := copyTree(smallTree(t), tree, ".", "topoctl"); err != nil {
		t.Fatal(err)
	}
	if tp, err = Discover(context.Background(), Options{FS: tree}); err != nil {
		t.Fatal(err)
	}
	if r := reportOf(t, tp, topo.SourceNVML); r.Status != topo.StatusAbsent || len(warningsOf(tp, topo.CodeDriverOnly)) > 0 {
		t.Errorf("a tree without answers: %+v, warnings %v", r, tp.Warnings)
	}
	if !strings.Contains(strings.Join(tp.Host.Lacks, "\n"), "no NVML answers were recorded") {
		t.Errorf("lacks %q", tp.Host.Lacks)
	}
}

// copyTree copies a tree without one directory.
func copyTree(from hosttree.Tree, to *hosttree.Mem, dir, without string) error {
	entries, err := from.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.ToSlash(filepath.Join(dir, e.Name()))
		if name == without {
			continue
		}
		switch {
		case e.IsDir():
			err = errors.Join(to.AddDir(name), copyTree(from, to, name, without))
		case e.Type()&os.ModeSymlink != 0:
			var target string
			if target, err = from.ReadLink(name); err == nil {
				err = to.AddSymlink(name, target)
			}
		default:
			var data []byte
			if data, err = from.ReadFile(name); err == nil {
				err = to.AddFile(name, data)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// installIDs gives ghw a database, without which it lists nothing.
func installIDs(t *testing.T) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pci.ids")
	if err := os.WriteFile(name, sysfs.EmbeddedIDs(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envPCIDB, name)
}

// One device without modalias empties ghw's list, without an error and with a
// line on stderr. Nobody must notice.
func TestOneOddDevice(t *testing.T) {
	installIDs(t)
	dir := smallDir(t)
	if err := os.Remove(filepath.Join(dir, "sys/bus/pci/devices/0000:1c:00.0/modalias")); err != nil {
		t.Fatalf("the small machine has no modalias: %v", err)
	}
	tp := hostRoot(t, dir)
	checkNames(t, tp)
	if r := reportOf(t, tp, topo.SourceGHW); r.Status != topo.StatusPartial || !strings.Contains(r.Detail, "ghw lists 0 of 10") {
		t.Errorf("ghw: %+v", r)
	}
	if len(tp.PCIDevices) != 10 || tp.PCIDevices[9].Driver == "" {
		t.Errorf("%d PCI functions: %+v", len(tp.PCIDevices), tp.PCIDevices[9])
	}
}

// ghw that fails or panics costs what only it knows; the names stay.
func TestGHWFails(t *testing.T) {
	for _, tt := range []struct {
		what, want string
		list       func(string) (*ghw.PCIInfo, error)
	}{
		{"error", "its own look at the devices failed: permission denied", func(string) (*ghw.PCIInfo, error) { return nil, fs.ErrPermission }},
		{"panic", "failed: the library panicked: index out of range", func(string) (*ghw.PCIInfo, error) { panic("index out of range") }},
	} {
		t.Run(tt.what, func(t *testing.T) {
			p := live(t, okGPUs(t), okNetlink(t))
			p.dir, p.listPCI = smallDir(t), tt.list
			p.opts.Sources = []string{"ghw", "netlink", "nvml"}
			tp, _, err := p.run(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if r := reportOf(t, tp, topo.SourceGHW); r.Status != topo.StatusPartial || !strings.Contains(r.Detail, tt.want) {
				t.Errorf("ghw: %+v, want %q", r, tt.want)
			}
			checkSmall(t, tp)
		})
	}
}

// A captured directory whose links lead out of it, or that has a FIFO where a
// file should be, is not followed there and not waited for.
func TestHostileDirectory(t *testing.T) {
	installIDs(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "vendor"), []byte("0xbad1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := smallDir(t)
	for _, link := range []string{"sys/bus/pci/devices/0000:ff:00.0", "sys/class/infiniband_verbs/uverbs9"} {
		if err := os.Symlink(outside, filepath.Join(dir, link)); err != nil {
			t.Skipf("symbolic links cannot be made in the temporary folder: %v", err)
		}
	}
	fifo(t, filepath.Join(dir, "sys/bus/pci/devices/0000:1c:00.0/modalias"))
	fifo(t, filepath.Join(dir, "sys/bus/pci/devices/0000:1c:00.0/revision"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tp, err := Discover(ctx, Options{Root: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range tp.PCIDevices {
		if d.Vendor == "0xbad1" {
			t.Errorf("%s was read outside", d.ID)
		}
	}
	if len(tp.RDMADevices) != 1 || tp.Complete {
		t.Errorf("%d RDMA devices, complete %v", len(tp.RDMADevices), tp.Complete)
	}
	checkSmall(t, tp)
}

// The database that a user names is used and the variable is left as it was;
// one that is broken costs nothing but its own names.
func TestPCIDBPath(t *testing.T) {
	dir := smallDir(t)
	file := filepath.Join(t.TempDir(), "pci.ids")
	text := "# mine\n10de  Green GPUs\n\t2236  my card\n\n8086\n\t\tx\nC 03\nnonsense\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path, vendor, device, status string
	}{
		{file, "Green GPUs", "my card", "ok"},
		{filepath.Join(dir, "missing.ids"), "NVIDIA Corporation", "GA102GL [A10]", "partial"},
		{dir, "NVIDIA Corporation", "GA102GL [A10]", "partial"},
	} {
		t.Setenv(envPCIDB, tt.path)
		tp, err := Discover(context.Background(), Options{Root: dir})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range tp.PCIDevices {
			if d.BDF.String() == "0000:19:00.0" {
				got = append(got, d.VendorName, d.DeviceName, string(reportOf(t, tp, topo.SourceGHW).Status))
			}
		}
		if diff := cmp.Diff([]string{tt.vendor, tt.device, tt.status}, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.path, diff)
		}
		if os.Getenv(envPCIDB) != tt.path {
			t.Errorf("%s is now %q, was %q", envPCIDB, os.Getenv(envPCIDB), tt.path)
		}
	}
}

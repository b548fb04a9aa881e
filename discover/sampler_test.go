package discover

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// sampler opens a sampler and the topology of the same host. A machine that is busy with
// other tests is no driver that hangs: there is a lot of time.
func sampler(t testing.TB, opts Options) (*Sampler, *topo.Topology) {
	t.Helper()
	tp, err := Discover(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSampler(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.patience, s.limit = time.Minute, time.Minute
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, tp
}

// take is a sample that must succeed.
func take(t testing.TB, s *Sampler, tp *topo.Topology, at time.Duration) *counters.Sample {
	t.Helper()
	out, err := s.Sample(context.Background(), tp, at)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func portOf(t testing.TB, s *counters.Sample, id topo.ID) counters.Port {
	t.Helper()
	for _, p := range s.Ports {
		if p.ID == id {
			return p
		}
	}
	t.Fatalf("no port %s in %+v", id, s.Ports)
	return counters.Port{}
}

// put writes a file of a host on disk.
func put(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Every fixture can be sampled: all its ports and interfaces are there, in order, with what
// the topology says of them, and nothing that is there is noted as missing.
func TestSampleFixtures(t *testing.T) {
	for _, name := range longtest.Sample(append(fixtures.Names(), fixtures.Captures()...), 12) {
		t.Run(name, func(t *testing.T) {
			tree, err := fixtures.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			s, tp := sampler(t, Options{FS: tree, Sources: []string{"sysfs"}})
			out := take(t, s, tp, time.Second)
			if out.AtNS != int64(time.Second) || len(out.Ports) != len(tp.Ports)+len(tp.Netdevs) || out.GPUs == nil {
				t.Fatalf("at %d: %d ports of %d and %d interfaces", out.AtNS, len(out.Ports), len(tp.Ports), len(tp.Netdevs))
			}
			is := map[topo.ID]counters.Port{}
			for i, p := range out.Ports {
				is[p.ID] = p
				if i > 0 && topo.NaturalCompare(string(out.Ports[i-1].ID), string(p.ID)) >= 0 {
					t.Errorf("%s after %s", p.ID, out.Ports[i-1].ID)
				}
			}
			for _, p := range tp.Ports {
				if diff := cmp.Diff([]any{p.State, p.BytesPerSec}, []any{is[p.ID].State, is[p.ID].BytesPerSec}); diff != "" {
					t.Errorf("%s (-topology +sample)\n%s", p.ID, diff)
				}
			}
			for _, n := range tp.Netdevs {
				if diff := cmp.Diff([]any{n.State, n.BytesPerSec}, []any{is[n.ID].State, is[n.ID].BytesPerSec}); diff != "" {
					t.Errorf("%s (-topology +sample)\n%s", n.ID, diff)
				}
			}
			links := map[topo.ID]counters.Link{}
			for _, l := range out.Links {
				links[l.ID] = l
			}
			for _, d := range tp.PCIDevices {
				l, sampled := links[d.ID]
				from, _ := d.Facts.Get("link")
				if sampled && tp.Complete && from.Source == topo.SourceSysfs && cmp.Diff([]any{d.Link.SpeedMTs, d.Link.Width}, []any{l.SpeedMTs, l.Width}) != "" {
					t.Errorf("%s: topology %+v, sample %+v", d.ID, d.Link, l)
				}
			}
			if tp.Complete && len(out.Notes) > 0 {
				t.Errorf("notes %q", out.Notes)
			}
		})
	}
}

// Bytes are those of the files, words times four; a second sample shows what moved.
func TestSampleMoves(t *testing.T) {
	dir := smallDir(t)
	s, tp := sampler(t, Options{Root: dir})
	before := take(t, s, tp, 0)
	at := filepath.Join(dir, "sys/class/infiniband/mlx5_0/ports/1")
	put(t, at+"/counters/port_xmit_data", "250000000\n")
	put(t, at+"/counters/symbol_error", "3\n")
	put(t, at+"/state", "1: DOWN\n")
	put(t, filepath.Join(dir, "sys/class/net/eno1/statistics/rx_bytes"), "125000000\n")
	put(t, filepath.Join(dir, "sys/bus/pci/devices/0000:1b:00.0/current_link_width"), "8\n")
	after := take(t, s, tp, time.Second)
	if p := portOf(t, after, "port:mlx5_0/1"); p.State != "DOWN" || p.SentBytes == nil || *p.SentBytes != 1e9 {
		t.Errorf("%+v", p)
	}
	rates := counters.Between(before, after).Ports
	mlx, eno := rates["port:mlx5_0/1"], rates["net:eno1"]
	if mlx.SentBytesPerSec == nil || *mlx.SentBytesPerSec != topo.GBPerSec || *mlx.ReceivedBytesPerSec != 0 || mlx.Errors["symbol_error"] != 3 {
		t.Errorf("%+v", mlx)
	}
	if eno.ReceivedBytesPerSec == nil || *eno.ReceivedBytesPerSec != 125_000_000 || len(eno.Errors) > 0 {
		t.Errorf("%+v", eno)
	}
	for _, l := range after.Links {
		if l.ID == "pci:0000:1b:00.0" && *l.Width != 8 {
			t.Errorf("%+v", l)
		}
	}
	if len(after.Notes) > 0 {
		t.Errorf("notes %q", after.Notes)
	}
}

// Files that are none cost their values only.
func TestSampleBrokenFiles(t *testing.T) {
	dir := smallDir(t)
	at := filepath.Join(dir, "sys/class/infiniband/mlx5_0/ports/1/counters")
	put(t, at+"/port_rcv_data", "lots\n")
	put(t, at+"/link_downed", strings.Repeat("9", 8<<20))
	put(t, at+"/port_xmit_packets", "5\n")
	fifo(t, at+"/port_xmit_data")
	s, tp := sampler(t, Options{Root: dir})
	out := take(t, s, tp, 0)
	p := portOf(t, out, "port:mlx5_0/1")
	_, downed := p.Errors["link_downed"]
	if p.SentBytes != nil || p.ReceivedBytes != nil || downed || p.SentPackets == nil || *p.SentPackets != 5 || p.Errors["symbol_error"] != 0 {
		t.Errorf("%+v", p)
	}
	if len(out.Notes) != 1 || !strings.Contains(out.Notes[0], "port:mlx5_0/1: ") || !strings.HasSuffix(out.Notes[0], "(and 2 more)") {
		t.Errorf("notes %q", out.Notes)
	}
	if n := portOf(t, out, "net:eno1"); n.SentBytes == nil || len(out.Links) == 0 {
		t.Errorf("the rest: %+v, %d links", n, len(out.Links))
	}
	put(t, filepath.Join(dir, "nothing"), "")
	if err := os.RemoveAll(filepath.Join(dir, "sys/class/net/eno1/statistics")); err != nil {
		t.Fatal(err)
	}
	if n := portOf(t, take(t, s, tp, 1), "net:eno1"); n.SentBytes != nil || n.State == "" {
		t.Errorf("statistics gone: %+v", n)
	}
}

// stuckTree hangs in one file until it is let go.
type stuckTree struct {
	hosttree.Tree
	stuck   atomic.Pointer[string] // a part of the file's name
	release chan struct{}
	waiting atomic.Int32
}

func (s *stuckTree) ReadFile(name string) ([]byte, error) {
	if part := s.stuck.Load(); part != nil && strings.Contains(name, *part) {
		s.waiting.Add(1)
		defer s.waiting.Add(-1)
		<-s.release
	}
	return s.Tree.ReadFile(name)
}

// A driver that hangs costs its device and half a second once: it is left where it hangs,
// asked no more while it does, and is back when it answers.
func TestSampleDeviceHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := &stuckTree{Tree: smallTree(t), release: make(chan struct{})}
		s, tp := sampler(t, Options{FS: tree})
		full := take(t, s, tp, 0)
		s.patience = devicePatience
		tree.stuck.Store(new("infiniband/mlx5_0/ports/1/counters/symbol_error"))
		for i, want := range []string{"port:mlx5_0/1: its driver does not answer", "port:mlx5_0/1: still no answer from its driver", "port:mlx5_0/1: still no answer from its driver"} {
			out := take(t, s, tp, time.Duration(i))
			if diff := cmp.Diff([]string{want}, out.Notes); diff != "" {
				t.Errorf("sample %d (-want +got)\n%s", i, diff)
			}
			if len(out.Ports) != len(full.Ports)-1 || len(out.Links) != len(full.Links) {
				t.Errorf("sample %d: %d ports of %d, %d links of %d", i, len(out.Ports), len(full.Ports), len(out.Links), len(full.Links))
			}
			if n := tree.waiting.Load(); n != 1 {
				t.Errorf("sample %d: %d goroutines hang", i, n)
			}
		}
		// A new topology makes new meters; the device is still not asked.
		again := *tp
		if out := take(t, s, &again, 4); len(out.Notes) != 1 || tree.waiting.Load() != 1 {
			t.Errorf("notes %q, %d goroutines hang", out.Notes, tree.waiting.Load())
		}
		tree.stuck.Store(nil)
		close(tree.release)
		for len(take(t, s, tp, 5).Notes) > 0 {
			time.Sleep(time.Millisecond)
		}
		if diff := cmp.Diff(full.Ports, take(t, s, tp, 6).Ports); diff != "" {
			t.Errorf("after it came back (-want +got)\n%s", diff)
		}
	})
}

// Where everything hangs, a sample still ends.
func TestSampleEverythingHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := &stuckTree{Tree: smallTree(t), release: make(chan struct{})}
		s, tp := sampler(t, Options{FS: tree})
		defer close(tree.release)
		tree.stuck.Store(new("sys/"))
		s.patience, s.limit = time.Minute, 30*time.Millisecond
		out := take(t, s, tp, 0)
		if len(out.Ports)+len(out.Links) != 0 || len(out.Notes) != 2 || !strings.Contains(out.Notes[0], "no answer before the time was up") || !strings.Contains(out.Notes[1], "devices were not read") {
			t.Errorf("%+v", out)
		}
		s.patience, s.limit = time.Millisecond, time.Minute
		for range 2 {
			if out = take(t, s, tp, 0); len(out.Ports)+len(out.Links) != 0 || len(out.Notes) == 0 || len(out.Notes) > maxNotes+1 {
				t.Errorf("%+v", out)
			}
		}
	})
}

func TestSampleCancelled(t *testing.T) {
	s, tp := sampler(t, Options{FS: smallTree(t)})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if out, err := s.Sample(ctx, tp, 0); !errors.Is(err, context.Canceled) || out != nil {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := NewSampler(Options{Root: t.TempDir()}); err == nil {
		t.Error("a directory that is no host's")
	}
}

// Samples and Close may meet.
func TestSampleConcurrently(t *testing.T) {
	noLeaks(t)
	s, tp := sampler(t, Options{FS: smallTree(t)})
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for {
				out, err := s.Sample(context.Background(), tp, 0)
				if err != nil {
					if !strings.Contains(err.Error(), "closed") {
						t.Error(err)
					}
					return
				}
				if len(out.Ports) != len(tp.Ports)+len(tp.Netdevs) || len(out.Notes) > 0 {
					t.Errorf("%d ports, notes %q", len(out.Ports), out.Notes)
				}
			}
		})
	}
	take(t, s, tp, 0)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
}

// loadFunc is a GPUSource that knows load.
type loadFunc struct {
	gpuFunc
	load   func(context.Context) ([]counters.GPULoad, []string, error)
	closed *int
}

func (f loadFunc) Load(ctx context.Context) ([]counters.GPULoad, []string, error) { return f.load(ctx) }
func (f loadFunc) Close() error                                                   { *f.closed++; return nil }

// gpuSampler samples the small machine with a GPU library.
func gpuSampler(t *testing.T, load func(context.Context) ([]counters.GPULoad, []string, error)) (s *Sampler, tp *topo.Topology, closed *int) {
	t.Helper()
	s, tp = sampler(t, Options{FS: smallTree(t)})
	closed = new(int)
	s.gpus.source = loadFunc{load: load, closed: closed}
	return s, tp, closed
}

func TestSampleGPUs(t *testing.T) {
	busy := func(bdf *topo.BDF, uuid string, percent int) counters.GPULoad {
		return counters.GPULoad{BDF: bdf, UUID: uuid, GPU: counters.GPU{UtilizationPercent: &percent}}
	}
	s, tp, closed := gpuSampler(t, func(context.Context) ([]counters.GPULoad, []string, error) {
		return []counters.GPULoad{
			busy(&topo.BDF{Bus: 0x99}, "", 1), busy(nil, "GPU-of-1", 20), busy(&topo.BDF{Bus: 0x19}, "GPU-of-1", 10), busy(nil, "", 3),
		}, []string{"NVML GPU 4: it is lost"}, nil
	})
	tp.GPUs[1].UUID = "GPU-of-1"
	out := take(t, s, tp, 0)
	want := []counters.GPU{{ID: "gpu:0", UtilizationPercent: new(10)}, {ID: "gpu:1", UtilizationPercent: new(20)}}
	if diff := cmp.Diff(want, out.GPUs); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"NVML GPU 4: it is lost"}, out.Notes); diff != "" {
		t.Errorf("notes (-want +got)\n%s", diff)
	}
	if err := s.gpus.close(time.Second); err != nil || *closed != 1 {
		t.Errorf("closed %d times, %v", *closed, err)
	}
}

func TestSampleGPUsFail(t *testing.T) {
	asked := 0
	var fail error
	s, tp, _ := gpuSampler(t, func(context.Context) ([]counters.GPULoad, []string, error) { asked++; return nil, nil, fail })
	fail = errors.New("driver and library differ")
	if out := take(t, s, tp, 0); len(out.Notes) != 1 || out.Notes[0] != "GPU load: driver and library differ" || len(out.Ports) == 0 {
		t.Errorf("%+v", out)
	}
	// No library is no failure, and nobody looks for it each second.
	fail = absentGPUs{}
	for range 3 {
		if out := take(t, s, tp, 0); len(out.Notes) != 0 {
			t.Errorf("notes %q", out.Notes)
		}
	}
	again := *tp
	take(t, s, &again, 0)
	if asked != 3 {
		t.Errorf("asked %d times, want once for the failure, once for the absence, once for the new topology", asked)
	}
	s.gpus.source = loadFunc{load: func(context.Context) ([]counters.GPULoad, []string, error) { panic("boom") }, closed: new(int)}
	s.gpus.absent = false
	if out := take(t, s, &again, 0); len(out.Notes) != 1 || !strings.Contains(out.Notes[0], "the library panicked: boom") {
		t.Errorf("notes %q", out.Notes)
	}
}

// A GPU library that hangs is given up for its sample, and asked by one goroutine only.
func TestSampleGPULibraryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside atomic.Int32
		release := make(chan struct{})
		s, tp, closed := gpuSampler(t, func(context.Context) ([]counters.GPULoad, []string, error) {
			inside.Add(1)
			<-release
			return []counters.GPULoad{{BDF: &topo.BDF{Bus: 0x19}}}, nil, nil
		})
		s.limit = time.Second
		for i, want := range []string{"the GPU library does not answer", "the GPU library still does not answer", "the GPU library still does not answer"} {
			out := take(t, s, tp, 0)
			if len(out.Notes) != 1 || out.Notes[0] != want || len(out.Ports) == 0 || len(out.GPUs) != 0 {
				t.Errorf("sample %d: %+v", i, out)
			}
			s.limit = time.Minute // what still hangs is not waited for
		}
		if n := inside.Load(); n != 1 {
			t.Errorf("%d goroutines asked", n)
		}
		if err := s.gpus.close(time.Millisecond); err == nil || *closed != 0 {
			t.Errorf("closed %d times, error %v", *closed, err)
		}
		close(release)
		for len(take(t, s, tp, 0).GPUs) == 0 {
			time.Sleep(time.Millisecond)
		}
	})
}

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// fakeHost is a host as a test wants it. Memory is real, and little.
type fakeHost struct {
	mu      sync.Mutex
	pins    []int
	pinned  int // now
	options []memory.Options
	sizes   []int64
	fail    map[int]error // of pin, by call
	looks   int
	busy    time.Duration // of an hour between two looks, one minute of it by this process; 0 not known
}

func (f *fakeHost) host() system {
	return system{
		allowed:   func() (cpuset.Set, error) { return cpuset.Of(0, 1, 4, 5), nil },
		available: func() (int64, bool) { return 128 << 20, true },
		pin: func(cpu int) (func(), error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if err := f.fail[len(f.pins)]; err != nil {
				return nil, err
			}
			f.pins = append(f.pins, cpu)
			f.pinned++
			return func() { f.mu.Lock(); f.pinned--; f.mu.Unlock() }, nil
		},
		alloc: func(n int64, o memory.Options) (*memory.Block, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.options, f.sizes = append(f.options, o), append(f.sizes, n)
			if len(o.Nodes) > 0 {
				o.Nodes = []int{0} // the nodes of the test are not this host's
			}
			return memory.Alloc(n, o)
		},
		load: func() *lane.Load {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.busy == 0 {
				return nil
			}
			f.looks++
			n := time.Duration(f.looks)
			return &lane.Load{All: n * time.Hour, Busy: n * f.busy, Own: n * time.Minute}
		},
		smaps: func() string { return "" },
	}
}

// numaHost is a host of one or two NUMA nodes with a cache of 4 MiB each.
func numaHost(t *testing.T, nodes int) (*topo.Topology, string) {
	t.Helper()
	dir := t.TempDir()
	top := &topo.Topology{Origin: "live"}
	for i := range nodes {
		cpus := fmt.Sprintf("%d-%d", 4*i, 4*i+3)
		top.NUMANodes = append(top.NUMANodes, topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(i)}, Index: i, CPUs: cpus})
		for cpu := 4 * i; cpu < 4*i+4; cpu++ {
			cache := filepath.Join(dir, fmt.Sprintf("devices/system/cpu/cpu%d/cache/index3", cpu))
			if err := os.MkdirAll(cache, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"level": "3", "size": "4096K", "type": "Unified", "shared_cpu_list": cpus} {
				if err := os.WriteFile(filepath.Join(cache, name), []byte(text+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return top, dir
}

func memoryProber(t *testing.T, nodes int, h system) *Prober {
	t.Helper()
	top, dir := numaHost(t, nodes)
	p := newProber(Options{Topology: top, Sysfs: dir}, h)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func memoryPair(from, to int, variant string) probe.Pair {
	p := probe.Pair{Kind: probe.Memory, Transport: probe.CPU, Variant: variant, From: probe.End{Host: "h", Node: topo.NUMAID(from), Name: "cpu:" + fmt.Sprint(from)}, To: probe.End{Host: "h", Node: topo.NUMAID(to), Name: "cpu:" + fmt.Sprint(to)}}
	p.ID = probe.PairID(p.Kind, p.From, p.To, p.Transport, variant)
	return p
}

func memorySpec() probe.Spec {
	return probe.Spec{Warmup: 5 * time.Millisecond, SampleTime: 5 * time.Millisecond, MinSamples: 3, MaxSamples: 6, CI: 0.025, SizesBytes: []int64{4096, 1 << 20}, LatencySamples: 30, PairTime: 20 * time.Second}
}

func one(t *testing.T, p *Prober, pair probe.Pair, spec probe.Spec) probe.Measurement {
	t.Helper()
	return p.Round(t.Context(), []probe.Pair{pair}, spec, nil)[0]
}

func TestMemory(t *testing.T) {
	for _, variant := range []string{probe.VariantRead, probe.VariantCopy} {
		f := &fakeHost{}
		p := memoryProber(t, 1, f.host())
		m := one(t, p, memoryPair(0, 0, variant), memorySpec())
		if m.Err != nil || m.Waived != "" || len(m.Bandwidth) != 1 {
			t.Fatalf("%s: %+v", variant, m)
		}
		b := m.Bandwidth[0]
		if b.SizeBytes != 1<<20 || len(b.SamplesBytesPerSec) < 3 || b.MeanBytesPerSec <= 0 || m.CPUSecondsPerGB == nil {
			t.Errorf("%s: %+v", variant, b)
		}
		threads := min(2, runtime.GOMAXPROCS(0)) // of node 0 the process may use CPUs 0 and 1
		if f.pinned != 0 || len(f.pins) < threads+1 || m.Binding.Threads != threads || m.Binding.CPUs != map[int]string{1: "0", 2: "0-1"}[threads] {
			t.Errorf("%s: pins %v, %d left, %+v", variant, f.pins, f.pinned, m.Binding)
		}
		if m.Binding.FromMemory != nil || !strings.Contains(strings.Join(m.Notes, "\n"), "memory is not bound: the host has one NUMA node") || len(f.options[0].Nodes) != 0 {
			t.Errorf("%s: %+v %q", variant, m.Binding, m.Notes)
		}
		// A quarter of what is available.
		if f.sizes[0] != 32<<20 {
			t.Errorf("%s: %d bytes", variant, f.sizes[0])
		}
		if read := variant == probe.VariantRead; read != (m.Latency != nil) {
			t.Errorf("%s: %+v", variant, m.Latency)
		}
		if l := m.Latency; l != nil && (l.Load == nil || l.Load.N != 30 || l.Load.P50 <= 0 || l.RTT != nil || l.OneWay != nil || l.SizeBytes != 64 || !strings.Contains(strings.Join(m.Notes, "\n"), "the mean of 256 dependent loads, over 33554432 bytes")) {
			t.Errorf("%s: %+v, %q", variant, l, m.Notes)
		}
	}
}

// A measurement says how busy the host was meanwhile, where the system tells it.
func TestLoad(t *testing.T) {
	f := &fakeHost{busy: 45 * time.Minute}
	spec := memorySpec()
	spec.LatencySamples = 0
	pair := memoryPair(0, 0, probe.VariantRead)
	m := one(t, memoryProber(t, 1, f.host()), pair, spec)
	if want := (probe.ProcessorLoad{Host: pair.From.Host, Busy: 0.75, Own: 0.017}); len(m.Processors) != 1 || m.Processors[0] != want {
		t.Errorf("%+v, want %+v", m.Processors, want)
	}
	f.busy = 0
	if m = one(t, memoryProber(t, 1, f.host()), pair, spec); m.Processors != nil {
		t.Errorf("%+v", m.Processors)
	}
}

// What the host refuses: one node goes on and says so, several cannot tell what they
// would measure.
func TestMemoryRefused(t *testing.T) {
	eperm := fmt.Errorf("bind to NUMA nodes [0]: mbind: %w", syscall.EPERM)
	for _, c := range []struct {
		name    string
		nodes   int
		change  func(f *fakeHost, h *system)
		waived  string
		err     string
		note    string
		threads int
	}{
		{name: "affinity, one node", nodes: 1, change: func(f *fakeHost, _ *system) { f.fail = map[int]error{0: syscall.EPERM} }, note: "threads are not tied to CPUs: operation not permitted"},
		{name: "affinity, two nodes", nodes: 2, change: func(f *fakeHost, _ *system) { f.fail = map[int]error{0: syscall.EPERM} }, waived: "threads cannot be tied to the CPUs of NUMA node 0: operation not permitted"},
		{name: "affinity of a later thread", nodes: 1, change: func(f *fakeHost, _ *system) { f.fail = map[int]error{1: syscall.EINVAL} }, err: "invalid argument"},
		{name: "no affinity is known", nodes: 2, change: func(_ *fakeHost, h *system) {
			h.allowed = func() (cpuset.Set, error) { return cpuset.Set{}, syscall.ENOSYS }
		}, waived: "are not known: function not implemented"},
		{name: "cpuset", nodes: 2, change: func(_ *fakeHost, h *system) { h.allowed = func() (cpuset.Set, error) { return cpuset.Of(4), nil } }, waived: "this process may use none of them"},
		{name: "binding", nodes: 2, change: func(_ *fakeHost, h *system) {
			h.alloc = func(int64, memory.Options) (*memory.Block, error) { return nil, eperm }
		}, waived: "mbind: operation not permitted"},
		{name: "no memory", nodes: 2, change: func(_ *fakeHost, h *system) {
			h.alloc = func(int64, memory.Options) (*memory.Block, error) { return nil, syscall.ENOMEM }
		}, err: "cannot allocate memory"},
		{name: "next to no memory", nodes: 1, change: func(_ *fakeHost, h *system) { h.available = func() (int64, bool) { return 10 << 20, true } }, err: "too little to measure"},
		{name: "little memory", nodes: 1, change: func(_ *fakeHost, h *system) { h.available = func() (int64, bool) { return 64 << 20, true } }, note: ""},
		{name: "little CPU time", nodes: 1, change: func(*fakeHost, *system) {
			before := runtime.GOMAXPROCS(1)
			t.Cleanup(func() { runtime.GOMAXPROCS(before) })
		}, note: "1 threads for 2 CPUs: the CPU time of the cgroup, or GOMAXPROCS, allows no more", threads: 1},
	} {
		f := &fakeHost{}
		h := f.host()
		c.change(f, &h)
		p := memoryProber(t, c.nodes, h)
		spec := memorySpec()
		spec.LatencySamples = 0
		m := one(t, p, memoryPair(0, 0, probe.VariantRead), spec)
		text := fmt.Sprint(m.Err)
		if c.waived == "" != (m.Waived == "") || !strings.Contains(m.Waived, c.waived) || c.err == "" != (m.Err == nil) || !strings.Contains(text, c.err) || !strings.Contains(strings.Join(m.Notes, "\n"), c.note) {
			t.Errorf("%s: waived %q, %v, notes %q", c.name, m.Waived, m.Err, m.Notes)
		}
		if m.Err == nil && m.Waived == "" && (len(m.Bandwidth) != 1 || len(m.Bandwidth[0].SamplesBytesPerSec) == 0) {
			t.Errorf("%s: %+v", c.name, m)
		}
		if c.threads > 0 && m.Binding.Threads != c.threads {
			t.Errorf("%s: %+v", c.name, m.Binding)
		}
		if f.pinned != 0 {
			t.Errorf("%s: %d threads are still tied", c.name, f.pinned)
		}
	}
}

// Of several nodes memory is bound to one and threads to another.
func TestMemoryNodes(t *testing.T) {
	if _, err := os.Stat("/sys/devices/system/node/node0"); err != nil {
		t.Skip("no /sys/devices/system/node: a kernel without NUMA binds no memory")
	}
	f := &fakeHost{}
	h := f.host()
	p := memoryProber(t, 2, h)
	spec := memorySpec()
	spec.SizesBytes, spec.LatencySamples = []int64{1 << 20}, 0
	// The block is bound to this host's node 0, and node 1 was asked for: that is noticed.
	m := one(t, p, memoryPair(1, 0, probe.VariantRead), spec)
	if !strings.Contains(m.Waived, "memory was not bound to NUMA node 1") || !slices.Equal(f.options[0].Nodes, []int{1}) {
		t.Errorf("%+v, options %+v", m, f.options)
	}
	m = one(t, p, memoryPair(0, 1, probe.VariantCopy), spec)
	if m.Err != nil || m.Waived != "" || m.Binding.FromMemory == nil || *m.Binding.FromMemory != 0 || !strings.HasPrefix(m.Binding.CPUs, "4") || slices.Contains(f.pins[1:], 0) {
		t.Errorf("%+v, pins %v", m, f.pins)
	}
}

// Stopped in the middle of a sample or of a chase, what was measured is kept.
func TestMemoryStopped(t *testing.T) {
	f := &fakeHost{}
	p := memoryProber(t, 1, f.host())
	spec := memorySpec()
	spec.MinSamples, spec.MaxSamples, spec.CI = 60000, 60000, 0
	stopped := func(ctx context.Context, cancel func(), spec probe.Spec, tell func(int, probe.Sample)) probe.Measurement {
		t.Helper()
		m := p.Round(ctx, []probe.Pair{memoryPair(0, 0, probe.VariantRead)}, spec, tell)[0]
		cancel()
		if !errors.Is(m.Err, context.Canceled) || f.pinned != 0 {
			t.Fatalf("%+v", m)
		}
		return m
	}
	ctx, cancel := context.WithCancel(t.Context())
	samples := 0
	m := stopped(ctx, cancel, spec, func(int, probe.Sample) {
		if samples++; samples == 2 {
			cancel()
		}
	})
	if l := m.Latency; l == nil || l.Load.N != spec.LatencySamples {
		t.Errorf("not all loads: %+v", m)
	}
	if len(m.Bandwidth) != 1 || len(m.Bandwidth[0].SamplesBytesPerSec) < 2 || m.Bandwidth[0].Stopped != probe.StoppedInterrupted {
		t.Errorf("%+v", m)
	}
	// Amid the loads: nobody is told of them, so the time for some is found.
	spec.LatencySamples = 1 << 20
	for wait := 100 * time.Millisecond; ; wait *= 3 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(wait, cancel)
		m := stopped(ctx, cancel, spec, nil)
		n := 0
		if m.Latency != nil { // else it was stopped before the first of them
			n = m.Latency.Load.N
		}
		if n > 0 && n < spec.LatencySamples && len(m.Bandwidth) == 0 {
			return
		}
		if n >= spec.LatencySamples || len(m.Bandwidth) > 0 || wait > 10*time.Second {
			t.Fatalf("stopped after %v: %d loads, %+v", wait, n, m)
		}
	}
}

// Pairs of a round begin when all are ready, one that fails keeps nobody, and each is told
// under its own number.
func TestRound(t *testing.T) {
	f := &fakeHost{}
	p := memoryProber(t, 1, f.host())
	pairs := []probe.Pair{memoryPair(0, 0, probe.VariantRead), memoryPair(0, 7, probe.VariantRead), {ID: "x", Kind: "disk"}, {ID: "y", Waived: "not wanted"}, memoryPair(0, 0, probe.VariantCopy), memoryPair(0, 0, "squint")}
	told := map[int]int{}
	m := p.Round(t.Context(), pairs, memorySpec(), func(i int, s probe.Sample) { told[i]++ })
	for i, want := range []string{"", "the topology does not have both", `kind "disk"`, "", "", `variant "squint"`} {
		if want == "" && m[i].Err != nil || want != "" && (m[i].Err == nil || !strings.Contains(m[i].Err.Error(), want)) {
			t.Errorf("%d: %v", i, m[i].Err)
		}
		if m[i].Bandwidth == nil || m[i].Links == nil {
			t.Errorf("%d: null in JSON: %+v", i, m[i])
		}
	}
	if m[3].Waived != "not wanted" || len(told) != 2 || told[0] != len(m[0].Bandwidth[0].SamplesBytesPerSec) || told[4] != len(m[4].Bandwidth[0].SamplesBytesPerSec) {
		t.Errorf("waived %q, told %v", m[3].Waived, told)
	}
	if m[0].CPUSecondsPerGB != nil {
		t.Error("processor time of a pair that was not alone")
	}
}

func TestNew(t *testing.T) {
	for want, o := range map[string]Options{"no topology": {}, `is of "capture"`: {Topology: &topo.Topology{Origin: "capture"}}} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// The order visits every line once, and lines that follow each other are far apart.
func TestCycle(t *testing.T) {
	for width := 1; width <= 16; width++ {
		for seed := range uint64(4) {
			c := newCycle(width, rand.New(rand.NewPCG(seed, 1)))
			seen := make([]bool, 1<<width)
			at, near := c.place(1<<width-1), 0
			for k := range uint64(1) << width {
				next := c.place(k)
				if seen[next] {
					t.Fatalf("width %d: place %d comes again", width, next)
				}
				seen[next] = true
				if d := int64(next) - int64(at); d >= -2 && d <= 2 {
					near++
				}
				at = next
			}
			if width >= 12 && near > 1<<width/100 {
				t.Errorf("width %d: %d of %d steps are to a neighbour", width, near, 1<<width)
			}
		}
	}
}

// A chase goes through all places that are linked and begins again; nothing is left behind.
func TestLink(t *testing.T) {
	mem := make([]byte, 4096*lineBytes)
	c := newCycle(12, rand.New(rand.NewPCG(1, 2)))
	for _, n := range []uint64{1, chaseLoads / 4, chaseLoads, 4 * chaseLoads, 4096} {
		first := c.link(mem, n)
		linked, at := 0, first
		for line := range slices.Chunk(mem, lineBytes) {
			if !bytes.Equal(line, make([]byte, lineBytes)) {
				linked++
			}
		}
		if most := int(n); linked < most-1 || linked > most { // one may point to line 0
			t.Errorf("%d of %d lines are linked", linked, n)
		}
		for range max(1, n/chaseLoads) {
			at = chase(mem, at)
		}
		if at != first {
			t.Errorf("%d lines: the chase ends at %d, and began at %d", n, at, first)
		}
		if c.unlink(mem, n); !bytes.Equal(mem, make([]byte, len(mem))) {
			t.Errorf("%d lines: something is left", n)
		}
	}
}

// Threads move what they are asked for, all of their part in turn, and stop soon.
func TestThread(t *testing.T) {
	src := make([]byte, 10_000)
	for i := range src {
		src[i] = byte(i)
	}
	x := thread{src: src, dst: make([]byte, 10_000)}
	if n, err := x.move(t.Context(), 20_000); n != 20_000 || err != nil || !slices.Equal(x.dst, src) {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := x.move(t.Context(), 3); n < 3 || n > 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, _ := x.move(ctx, 20_000); n != 0 {
		t.Errorf("%d bytes after the end", n)
	}
	y := thread{src: make([]byte, 4096)}
	if n, err := y.move(t.Context(), 10_000); n != 10_000 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	y.src[100] = 1
	if _, err := y.move(t.Context(), 4096); err == nil {
		t.Error("the halves differ, and nobody has looked")
	}
}

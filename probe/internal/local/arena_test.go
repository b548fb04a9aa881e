package local

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/probe"
)

// Memory is there as far as time allows: the least until the later limit, all until the
// earlier one.
func TestFill(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		least, want int64
		soft, hard  time.Duration
		ready       int64
	}{
		{4 * mib, 32 * mib, 0, 0, 32 * mib},
		{4 * mib, 7 * mib, 0, 0, 6 * mib}, // whole pieces
		{4 * mib, 32 * mib, 5, 100, 10 * mib},
		{16 * mib, 32 * mib, 5, 100, 16 * mib},
		{32 * mib, 32 * mib, 5, 7, 14 * mib},
		{4 * mib, 32 * mib, 1, 1, 2 * mib},
	} {
		block, err := memory.Alloc(32*mib, memory.Options{Backing: memory.Private, Lazy: true})
		if err != nil {
			t.Fatal(err)
		}
		x := &arena{block: block}
		looks := time.Duration(-1)
		x.faultIn(1, c.least, c.want, func() time.Duration { looks++; return looks }, c.soft, c.hard)
		// Each look at the clock takes a tick.
		if x.faultedIn != c.ready {
			t.Errorf("%+v: %d bytes are ready", c, x.faultedIn)
		}
		had := x.faultedIn
		x.faultIn(3, c.least, 32*mib, func() time.Duration { return 0 }, 0, 0)
		if x.faultedIn != 32*mib || had > x.faultedIn {
			t.Errorf("%+v: %d bytes in the end", c, x.faultedIn)
		}
		if err := block.Free(); err != nil {
			t.Error(err)
		}
	}
}

// A pair uses the memory of the one before, and finds it as if it were new; a round without
// memory gives it back.
func TestArenas(t *testing.T) {
	f := &fakeHost{}
	p := memoryProber(t, 1, f.host())
	for i, variant := range []string{probe.VariantRead, probe.VariantCopy, probe.VariantRead, probe.VariantRead} {
		if m := one(t, p, memoryPair(0, 0, variant), memorySpec()); m.Err != nil || m.Waived != "" {
			t.Errorf("%d: %v, waived %q", i, m.Err, m.Waived)
		}
	}
	if len(f.sizes) != 1 || !f.options[0].Lazy || p.arenas.free[0] == nil {
		t.Errorf("allocated %v, left %v", f.sizes, p.arenas.free)
	}
	one(t, p, probe.Pair{Kind: probe.Port, Waived: "not wanted"}, memorySpec())
	if len(p.arenas.free) != 0 {
		t.Errorf("left %v", p.arenas.free)
	}
	for i, m := range p.Round(t.Context(), []probe.Pair{memoryPair(0, 0, probe.VariantRead), memoryPair(0, 0, probe.VariantCopy)}, memorySpec(), nil) {
		if m.Err != nil || m.Waived != "" {
			t.Errorf("%d of two at a time: %v, waived %q", i, m.Err, m.Waived)
		}
	}
	if len(f.sizes) != 3 || len(p.arenas.free) != 1 {
		t.Errorf("allocated %v, left %v", f.sizes, p.arenas.free)
	}
}

// slowHost takes 10 ms of the clock for each look at it.
func slowHost(t *testing.T, h system) *Prober {
	t.Helper()
	top, dir := numaHost(t, 1)
	now := time.Duration(0)
	p := newProber(Options{Topology: top, Sysfs: dir, Now: func() time.Duration { now += 10 * time.Millisecond; return now }}, h)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Where memory comes slowly, less of it is measured, and said; where next to none comes, it
// is an error, and no pair waits for it longer than it may take.
func TestSlowMemory(t *testing.T) {
	f := &fakeHost{}
	h := f.host()
	h.allowed = func() (cpuset.Set, error) { return cpuset.Of(0), nil } // one thread: one clock
	p := slowHost(t, h)
	spec := memorySpec()
	spec.SizesBytes, spec.LatencySamples = []int64{4096}, 0
	spec.PairTime = 50 * time.Millisecond
	m := one(t, p, memoryPair(0, 0, probe.VariantRead), spec)
	if m.Err == nil || !strings.Contains(m.Err.Error(), "too little to measure: give the pair more time") {
		t.Errorf("%v", m.Err)
	}
	h.available = func() (int64, bool) { return 1 << 30, true }
	p = slowHost(t, h)
	spec.PairTime = time.Second
	m = one(t, p, memoryPair(0, 0, probe.VariantRead), spec)
	used := int64(0)
	if x := p.arenas.free[0]; x != nil {
		used = x.faultedIn
	}
	if m.Err != nil || used < minWorkingSet || used >= 256<<20 {
		t.Errorf("%v, %d bytes", m.Err, used)
	}
	if used < 16<<20 != slices.ContainsFunc(m.Notes, func(n string) bool { return strings.Contains(n, "may be the cache's") }) {
		t.Errorf("%d bytes, %q", used, m.Notes)
	}
}

// However late it is, 1 sample is the least, and a sweep that was cut short is told.
func TestLateLatency(t *testing.T) {
	f := &fakeHost{}
	p := memoryProber(t, 1, f.host())
	spec := memorySpec()
	spec.SizesBytes, spec.PairTime = nil, 1
	x := memoryPair(0, 0, probe.VariantRead)
	if m := one(t, p, x, spec); m.Err == nil { // nothing could be faulted in
		t.Errorf("%+v", m)
	}
	spec.PairTime = 0
	if m := one(t, p, x, spec); m.Err != nil || m.Latency == nil || m.Latency.Load.N != spec.LatencySamples {
		t.Errorf("%+v", m)
	}
	spec.PairTime = 1
	m := one(t, p, x, spec)
	if m.Err != nil || m.Latency == nil || m.Latency.Load.N != 1 || !strings.Contains(strings.Join(m.Notes, "\n"), "no time to empty the caches") {
		t.Errorf("%+v", m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if m := p.Round(ctx, []probe.Pair{x}, spec, nil)[0]; m.Err == nil {
		t.Errorf("%+v", m)
	}
}

func TestParseHuge(t *testing.T) {
	const smaps = "7f0000000000-7f0040000000 rw-p 00000000 00:00 0\nSize: 1048576 kB\nAnonHugePages:   2048 kB\nVmFlags: rd\n" +
		"7f0050000000-7f0060000000 rw-p 00000000 00:00 0\nSize: 4 kB\nAnonHugePages:   0 kB\n7f0070000000-7f0080000000 rw-p\nSize: 4 kB\n"
	for in, want := range map[string]string{"7f0000000000": "2097152 true", "7f0050000000": "0 true", "7f0070000000": "0 false", "7f0040000000": "0 false", "": "0 false"} {
		n, ok := parseHuge(smaps, in)
		if got := fmt.Sprint(n, ok); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if n, ok := parseHuge("7-8 rw-p\nAnonHugePages: 99999999999999999999 kB\n", "7"); ok {
		t.Errorf("%d", n)
	}
}

package engine

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/pathsel"
)

// foreign is memory that the engine does not own, and its address.
func foreign(t testing.TB, size int64) ([]byte, uintptr) {
	t.Helper()
	b, err := memory.Alloc(size, memory.Options{Backing: memory.Private})
	must(t, err)
	t.Cleanup(func() {
		ok(t, b.Free())
	})
	return b.Bytes(), uintptr(unsafe.Pointer(&b.Bytes()[0]))
}

// Ranges are registered in any order; those that touch become one region, and what lies
// between others is in none. Peers find them by address.
func TestRegisterRanges(t *testing.T) {
	checkLeaks(t)
	p := newPair(t, 1<<20, Options{}, Options{})
	p.randomize(1)
	data, at := foreign(t, 1<<20)
	regions, err := p.server.RegisterRanges([]memory.Range{
		{Address: at + 8192, Bytes: 4096}, {Address: at + 100, Bytes: 50}, {Address: at + 4096, Bytes: 4096}, {Address: at, Bytes: 99},
	}, RegionOptions{Name: "ignored", Grant: memory.PeerWrite, OfferAddress: true})
	must(t, err)
	if len(regions) != 3 {
		t.Fatalf("%d regions", len(regions))
	}
	ctx := testContext(t)
	for i, want := range []memory.Range{{Address: at, Bytes: 99}, {Address: at + 100, Bytes: 50}, {Address: at + 4096, Bytes: 8192}} {
		r := regions[i]
		if r.Address() != want.Address || r.Size() != want.Bytes || r.Grant() != memory.PeerWrite || r.Name() == "ignored" {
			t.Errorf("region %d: %d bytes at %#x", i, r.Size(), r.Address())
		}
		there, err := p.peer.Region(ctx, r.Name())
		must(t, err)
		if address, ok := there.Address(); !ok || address != uint64(want.Address) {
			t.Errorf("region %d is told at %#x", i, address)
		}
		ok(t, p.peer.Write(ctx, p.mine.Span(0, want.Bytes), there.At(0)))
		if off := want.Address - at; !bytes.Equal(data[off:off+uintptr(want.Bytes)], p.mine.Bytes()[:want.Bytes]) {
			t.Errorf("region %d: other bytes", i)
		}
	}
	if data[99] != 0 || data[150] != 0 || data[4095] != 0 || data[12288] != 0 {
		t.Error("bytes beside the ranges were written")
	}
	there, err := p.peer.Region(ctx, regions[2].Name())
	must(t, err)
	ok(t, p.server.CloseRegions(ctx, append(regions, regions[0])))
	eventually(t, "the peer is told", func() bool { return there.closed.Load() })
	if known, err := p.peer.Regions(ctx); err != nil || len(known) != 1 || len(p.server.Regions()) != 1 {
		t.Errorf("%d regions are offered, %v", len(known), err)
	}
	data[0] = 1 // it is still ours
}

// All ranges are registered, or none.
func TestRegisterRangesAllOrNone(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	p, _ := fakePair(t, 4096, fake.Options{})
	_, at := foreign(t, 64<<10)
	heap := make([]byte, 100)
	for _, c := range []struct {
		what   string
		ranges []memory.Range
		want   error
	}{
		{"two that overlap", []memory.Range{{Address: at, Bytes: 100}, {Address: at + 99, Bytes: 100}}, ErrOverlap},
		{"one twice", []memory.Range{{Address: at, Bytes: 100}, {Address: at, Bytes: 100}}, ErrOverlap},
		{"nothing mapped", []memory.Range{{Address: at, Bytes: 100}, {Address: 4096, Bytes: 100}}, nil},
		{"Go's heap", []memory.Range{{Address: at, Bytes: 100}, {Address: uintptr(unsafe.Pointer(&heap[0])), Bytes: 100}}, nil},
		{"no bytes", []memory.Range{{Address: at, Bytes: 100}, {Address: at + 200}}, nil},
	} {
		_, err := p.server.RegisterRanges(c.ranges, RegionOptions{Grant: memory.PeerRead})
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	runtime.KeepAlive(heap)
	full := newEngine(t, Options{Transports: []TransportFactory{n.transport(fake.Options{Name: "fake"})}, Limits: Limits{Regions: 2}})
	if _, err := full.RegisterRanges([]memory.Range{{Address: at, Bytes: 1}, {Address: at + 2, Bytes: 1}, {Address: at + 4, Bytes: 1}}, RegionOptions{}); err == nil {
		t.Error("three regions of at most two")
	}
	for _, e := range []*Engine{p.server, full} {
		for _, r := range e.Regions() {
			if r.Name() != "kv" {
				t.Errorf("region %q is left", r.Name())
			}
		}
	}
	if regions, err := full.RegisterRanges(nil, RegionOptions{}); err != nil || len(regions) != 0 {
		t.Errorf("no ranges: %v, %v", regions, err)
	}
}

// What peers cannot be told is refused where it is registered, and leaves room for the next.
func TestDescriptorLimit(t *testing.T) {
	checkLeaks(t)
	p, _ := fakePair(t, 4096, fake.Options{})
	if err := p.peer.Close(); err != nil { // it is told in the end
		t.Fatal(err)
	}
	name := func(i int) string { return fmt.Sprintf("%0250d", i) }
	add := func(i int) (*Region, error) {
		return p.server.Alloc(1, RegionOptions{
			Name: name(i), Location: pathsel.Location(name(0)), Grant: memory.PeerRead, Memory: memory.Options{Backing: memory.Private},
		})
	}
	var last *Region
	var err error
	n := 0
	for ; err == nil; n++ {
		var r *Region
		if r, err = add(n); err == nil {
			last = r
		}
	}
	if !errors.Is(err, ErrLimit) || n < peerdoc.MaxBytes/700 || n > peerdoc.MaxBytes/500 {
		t.Fatalf("after %d regions: %v", n, err)
	}
	ctx := testContext(t)
	p.open(t, ctx)
	ok(t, errOf(p.peer.Region(ctx, name(n-2))))
	if _, err := p.peer.Region(soon(t), name(n-1)); !errors.Is(err, ErrNoRegion) {
		t.Error(err)
	}
	ok(t, last.Close(ctx))
	ok(t, errOf(add(n-1)))
}

// Statistics list some of very many regions, and count the others. What a peer offers is read once
// and again when it has changed.
func TestManyRegions(t *testing.T) {
	checkLeaks(t)
	p := newPair(t, 4096, Options{}, Options{})
	_, at := foreign(t, 1<<20)
	const n = regionsMost + 10
	var ranges []memory.Range
	for i := range uintptr(n) {
		ranges = append(ranges, memory.Range{Address: at + i*1024, Bytes: 512})
	}
	regions, err := p.server.RegisterRanges(ranges, RegionOptions{Grant: memory.PeerRead})
	must(t, err)
	s := p.server.Stats()
	if len(s.Regions) != regionsMost || s.RegionsUnlisted != 11 || s.RegionsUnlistedBytes != 11*512 {
		t.Errorf("%d regions listed, %d with %d bytes not", len(s.Regions), s.RegionsUnlisted, s.RegionsUnlistedBytes)
	}
	ctx := testContext(t)
	offers := func() []*RemoteRegion {
		t.Helper()
		list, err := p.peer.Regions(ctx)
		if err != nil || !slices.IsSortedFunc(list, func(a, b *RemoteRegion) int { return cmp.Compare(a.ID(), b.ID()) }) {
			t.Fatalf("%d regions, in the order of IDs: %v", len(list), err)
		}
		return list
	}
	first, second := offers(), offers()
	if len(first) != n+1 || !slices.Equal(first, second) {
		t.Fatalf("%d regions, then %d", len(first), len(second))
	}
	gone, name := first[100], first[200].Name()
	must(t, p.server.CloseRegions(ctx, []*Region{regions[99], regions[199]}))
	must(t, errOf(p.server.Alloc(4096, RegionOptions{Name: name, Grant: memory.PeerRead})))
	third := offers()
	if len(third) != n || !gone.closed.Load() || slices.Contains(third, gone) || third[50] != first[50] {
		t.Errorf("%d regions after two were closed and one came", len(third))
	}
	if r, err := p.peer.Region(ctx, name); err != nil || r.Size() != 4096 {
		t.Errorf("a name that is used again: %v", err)
	}
	if _, err := p.peer.Region(soon(t), gone.Name()); !errors.Is(err, ErrNoRegion) {
		t.Errorf("a region that was closed: %v", err)
	}
}

// manyRanges are 100,000 ranges of 512 bytes, one beginning that number of bytes after the other.
func manyRanges(tb testing.TB, every uintptr) []memory.Range {
	const n = 100_000
	_, at := foreign(tb, n*1024)
	ranges := make([]memory.Range, n)
	for i := range ranges {
		ranges[i] = memory.Range{Address: at + uintptr(i)*every, Bytes: 512}
	}
	return ranges
}

// BenchmarkManyRegions asks a peer what it offers, and takes the statistics, with 100,000 ranges
// that do not touch.
func BenchmarkManyRegions(b *testing.B) {
	ranges := manyRanges(b, 1024)
	p := newPair(b, 4096, Options{}, Options{})
	must(b, errOf(p.server.RegisterRanges(ranges, RegionOptions{Grant: memory.PeerRead, OfferAddress: true})))
	b.Run("ask", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if known, err := p.peer.Regions(b.Context()); err != nil || len(known) != len(ranges)+1 {
				b.Fatal(len(known), err)
			}
		}
	})
	b.Run("stats", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p.server.Stats()
		}
	})
}

// BenchmarkRegisterRanges registers 100,000 ranges, and closes them.
func BenchmarkRegisterRanges(b *testing.B) {
	for _, c := range []struct {
		what       string
		every      uintptr
		wantRegion int
	}{{"touching", 512, 1}, {"gaps", 1024, 100_000}} {
		b.Run(c.what, func(b *testing.B) {
			ranges := manyRanges(b, c.every)
			p := newPair(b, 4096, Options{}, Options{})
			b.ReportAllocs()
			for b.Loop() {
				regions, err := p.server.RegisterRanges(ranges, RegionOptions{Grant: memory.PeerRead | memory.PeerWrite, OfferAddress: true})
				if err != nil || len(regions) != c.wantRegion {
					b.Fatal(len(regions), err)
				}
				b.StopTimer()
				known, err := p.peer.Regions(b.Context())
				if err != nil || len(known) != len(regions)+1 {
					b.Fatal(len(known), err)
				}
				must(b, p.server.CloseRegions(b.Context(), regions))
				b.StartTimer()
			}
		})
	}
}

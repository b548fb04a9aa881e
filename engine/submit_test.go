package engine

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/memory"
)

// Nothing of these moves, and each message says what, where and why.
func TestSubmitRefuses(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	list := []TransportFactory{n.transport(fake.Options{Name: "fake"})}
	p := newPair(t, 8192, Options{Transports: list, Limits: Limits{BatchOps: 10}}, Options{Transports: list})
	ctx := testContext(t)
	must(t, errOf(p.server.Alloc(4096, RegionOptions{Name: "read only", Grant: memory.PeerRead})))
	must(t, errOf(p.server.Alloc(4096, RegionOptions{Name: "write only", Grant: memory.PeerWrite})))
	readOnly, err := p.peer.Region(ctx, "read only")
	must(t, err)
	writeOnly, err := p.peer.Region(ctx, "write only")
	must(t, err)
	other, err := p.client.Open(ctx, p.server.Addrs()[0].String())
	must(t, err)
	others, err := other.Region(ctx, "kv")
	must(t, err)
	closed, err := p.client.Alloc(4096, RegionOptions{Name: "closed"})
	must(t, err)
	must(t, closed.Close(ctx))
	l, r := p.mine, p.to
	laid := func(layout Layout) []Op {
		return []Op{{Local: l.Span(0, 0), Remote: r.At(0), Layout: &layout}}
	}
	tests := []struct {
		name string
		ops  []Op
		o    SubmitOptions
		is   error
		op   int // -1: of none
		text string
	}{
		{"local range", []Op{WriteOp(l.Span(0, 8192), r.At(0)), WriteOp(l.Span(8192, 1), r.At(0))}, SubmitOptions{}, ErrRange, 1,
			`op 1: region "mine": write of 1 bytes at 8192: outside the region (8192 bytes)`},
		{"remote range", []Op{ReadOp(l.Span(0, 4096), r.At(4097))}, SubmitOptions{}, ErrRange, 0,
			`op 0: region "kv" of the peer: read of 4096 bytes at 4097: outside the region (8192 bytes)`},
		{"negative length", []Op{ReadOp(l.Span(0, -1), r.At(0))}, SubmitOptions{}, ErrInvalid, 0, "op 0: read of -1 bytes"},
		{"negative local", []Op{ReadOp(l.Span(-1, 1), r.At(0))}, SubmitOptions{}, ErrRange, 0, `region "mine": read of 1 bytes at -1: outside`},
		{"negative remote", []Op{ReadOp(l.Span(0, 1), r.At(-1))}, SubmitOptions{}, ErrRange, 0, `region "kv" of the peer: read of 1 bytes at -1: outside`},
		{"overflow", []Op{ReadOp(l.Span(math.MaxInt64, math.MaxInt64), r.At(0))}, SubmitOptions{}, ErrRange, 0, "outside the region"},
		{"overflowing count", laid(Layout{Bytes: 1 << 40, Count: 1 << 40}), SubmitOptions{}, ErrRange, 0, "1099511627776 pieces of 1099511627776 bytes: outside the region"},
		{"overflowing stride", laid(Layout{Bytes: 1, Count: 3, LocalStride: math.MaxInt64 / 2, RemoteStride: 1}), SubmitOptions{}, ErrRange, 0, `region "mine": write of 3 pieces of 1 bytes from 0: outside`},
		{"page outside", laid(Layout{Bytes: 1024, Count: 2, RemotePages: []uint32{0, 8}}), SubmitOptions{}, ErrRange, 0, `region "kv" of the peer: write of 2 pieces of 1024 bytes from 0: outside`},
		{"negative stride", laid(Layout{Bytes: 1, Count: 2, LocalStride: -1}), SubmitOptions{}, ErrInvalid, 0, "op 0: layout with a negative stride"},
		{"negative count", laid(Layout{Bytes: 1, Count: -1}), SubmitOptions{}, ErrInvalid, 0, "op 0: layout of -1 pieces"},
		{"page tables differ", []Op{WritePages(l.All(), []uint32{1, 2}, r.At(0), []uint32{1}, 10)}, SubmitOptions{}, ErrInvalid, 0, "op 0: layout of 2 pieces with 1 remote pages"},
		{"pages missing", laid(Layout{Bytes: 1, Count: 2, LocalPages: []uint32{1}}), SubmitOptions{}, ErrInvalid, 0, "op 0: layout of 2 pieces with 1 local pages"},
		{"not granted to write", []Op{WriteOp(l.Span(0, 1), readOnly.At(0))}, SubmitOptions{}, ErrDenied, 0, `op 0: region "read only" of the peer: write: not granted`},
		{"not granted to read", []Op{ReadOp(l.Span(0, 1), writeOnly.At(0))}, SubmitOptions{}, ErrDenied, 0, `op 0: region "write only" of the peer: read: not granted`},
		{"another peer's", []Op{ReadOp(l.Span(0, 1), others.At(0))}, SubmitOptions{}, ErrInvalid, 0, `op 0: region "kv" is of another peer`},
		{"another engine's", []Op{ReadOp(p.theirs.Span(0, 1), r.At(0))}, SubmitOptions{}, ErrInvalid, 0, `op 0: region "kv" is another engine's`},
		{"closed", []Op{ReadOp(closed.Span(0, 1), r.At(0))}, SubmitOptions{}, ErrClosed, 0, `op 0: region "closed": closed`},
		{"no region", []Op{{}}, SubmitOptions{}, ErrInvalid, 0, "op 0: no local region"},
		{"no remote region", []Op{{Local: l.Span(0, 1)}}, SubmitOptions{}, ErrInvalid, 0, "op 0: no remote region"},
		{"too many ops", make([]Op, 11), SubmitOptions{}, ErrLimit, -1, "batch of 11 ops: limit is 10"},
		{"unknown transport", nil, SubmitOptions{Transport: "rdma"}, ErrInvalid, -1, `transport "rdma": the engine has fake`},
		{"writes overlap", []Op{WriteOp(l.Span(0, 10), r.At(100)), WriteOp(l.Span(50, 10), r.At(0)), WriteOp(l.Span(20, 10), r.At(109))}, SubmitOptions{}, ErrOverlap, 2,
			"op 2: it and op 0 touch the same bytes in the peer's memory, and the order is not defined: overlap"},
		{"reads overlap", []Op{ReadOp(l.Span(9, 10), r.At(100)), ReadOp(l.Span(0, 10), r.At(0))}, SubmitOptions{}, ErrOverlap, 1,
			"op 1: it and op 0 touch the same bytes in local memory"},
		{"read into what is written", []Op{ReadOp(l.Span(0, 10), r.At(100)), WriteOp(l.Span(5, 10), r.At(0))}, SubmitOptions{}, ErrOverlap, 1,
			"op 1: it and op 0 touch the same bytes in local memory"},
		{"read of what is written", []Op{ReadOp(l.Span(0, 10), r.At(100)), WriteOp(l.Span(50, 10), r.At(95))}, SubmitOptions{}, ErrOverlap, 1,
			"op 1: it and op 0 touch the same bytes in the peer's memory"},
		{"pieces overlap", laid(Layout{Bytes: 10, Count: 2, RemoteStride: 9}), SubmitOptions{}, ErrOverlap, 0, "op 0: pieces of it write the same bytes: overlap"},
		{"a page twice", laid(Layout{Bytes: 10, Count: 3, RemotePages: []uint32{2, 1, 2}}), SubmitOptions{}, ErrOverlap, 0, "op 0: pieces of it write the same bytes"},
	}
	for _, test := range tests {
		b, err := p.peer.Submit(ctx, test.ops, test.o)
		if err == nil {
			b.Cancel()
			t.Errorf("%s: not refused", test.name)
			continue
		}
		if test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: %v is no %v", test.name, err, test.is)
		}
		var op *OpError
		if found := errors.As(err, &op); found != (test.op >= 0) || found && op.Op != test.op {
			t.Errorf("%s: %v: op %+v, want %d", test.name, err, op, test.op)
		}
		if text := err.Error(); !strings.HasPrefix(text, "engine: peer \"127.0.0.1:") || !strings.Contains(text, test.text) {
			t.Errorf("%s: text %q, want %q in it", test.name, text, test.text)
		}
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := p.peer.Submit(canceled, nil, SubmitOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: %v", err)
	}
	// Sources may overlap, and so may what interleaves without touching.
	for name, ops := range map[string][]Op{
		"sources": {WriteOp(l.Span(0, 100), r.At(0)), WriteOp(l.Span(50, 100), r.At(100))},
		"interleaved": {
			{Local: l.Span(0, 0), Remote: r.At(0), Layout: &Layout{Bytes: 10, Count: 50, RemoteStride: 40}},
			{Local: l.Span(0, 0), Remote: r.At(10), Layout: &Layout{Bytes: 30, Count: 50, RemoteStride: 40}}},
		"pages": {
			{Local: l.Span(0, 0), Remote: r.At(0), Layout: &Layout{Bytes: 512, Count: 3, RemotePages: []uint32{9, 1, 5}}},
			{Local: l.Span(0, 0), Remote: r.At(0), Layout: &Layout{Bytes: 512, Count: 3, RemotePages: []uint32{2, 8, 4}}}},
	} {
		b, err := p.peer.Submit(ctx, ops, SubmitOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := b.Wait(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if pins := p.mine.r.Pins(); pins != 0 {
		t.Errorf("%d pins are left", pins)
	}
}

func findOverlap(sides []opSide) (a, b int32, err error) {
	var s overlapSearch
	for i, x := range sides {
		s.outlines = append(s.outlines, outline{x.all, x.region, int32(i)})
	}
	return s.find(func(number int32) opSide { return sides[number] })
}

// The search for overlaps agrees with marking every byte.
func TestOverlapAgreesWithMarks(t *testing.T) {
	const size = 200
	random := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 20_000 {
		var sides []opSide
		owner := [2][size]int{}
		written := [2][size]bool{}
		want := false
		for op := range 1 + random.IntN(4) {
			s := opSide{
				region: int32(random.IntN(2)), op: int32(op), written: random.IntN(3) > 0,
				offset: int64(random.IntN(size)), bytes: int64(1 + random.IntN(20)), count: 1 + random.IntN(5),
			}
			s.stride = int64(random.IntN(40))
			if random.IntN(2) == 0 {
				s.stride = []int64{20, 40}[random.IntN(2)] // often the same, as tables have it
			}
			if random.IntN(3) == 0 {
				for range s.count {
					s.pages = append(s.pages, uint32(random.IntN(6)))
				}
			}
			lo, hi := int64(math.MaxInt64), int64(0)
			for k := range s.count {
				lo, hi = min(lo, s.piece(k).lo), max(hi, s.piece(k).hi)
			}
			if hi > size {
				continue
			}
			s.all = byteRange{lo, hi}
			marks := [size]bool{}
			self := false
			for k := range s.count {
				for i := s.piece(k).lo; i < s.piece(k).hi; i++ {
					self = self || marks[i]
					marks[i] = true
				}
			}
			if got := s.selfOverlap(); got != self {
				t.Fatalf("pieces of %+v overlap: got %v, want %v", s, got, self)
			}
			if self && s.written {
				continue // refused before
			}
			for i := range marks {
				if !marks[i] {
					continue
				}
				if owner[s.region][i] != 0 && (s.written || written[s.region][i]) {
					want = true
				}
				owner[s.region][i] = op + 1
				written[s.region][i] = written[s.region][i] || s.written
			}
			sides = append(sides, s)
		}
		a, b, err := findOverlap(sides)
		must(t, err)
		if (a >= 0) != want || a >= 0 && a >= b {
			t.Fatalf("%+v: got ops %d and %d, want an overlap: %v", sides, a, b, want)
		}
		if want {
			found++
		}
	}
	if found < 1000 {
		t.Errorf("only %d overlaps were tried", found)
	}
}

// Huge regular layouts are judged without looking at every piece.
func TestOverlapOfManyPieces(t *testing.T) {
	many := func(op int32, offset int64, bytes int64) opSide {
		s := opSide{op: op, written: true, offset: offset, bytes: bytes, stride: 1 << 10, count: 1 << 30}
		s.all = byteRange{offset, offset + s.stride*int64(s.count-1) + bytes}
		return s
	}
	if a, _, err := findOverlap([]opSide{many(0, 0, 512), many(1, 512, 512)}); a >= 0 || err != nil {
		t.Errorf("pieces beside each other: op %d, %v", a, err)
	}
	if _, _, err := findOverlap([]opSide{many(0, 0, 512), many(1, 511, 512)}); !errors.Is(err, ErrLimit) {
		t.Errorf("too many to look at: %v", err)
	}
}

func TestNoAllocationPerSlice(t *testing.T) {
	if raceEnabled {
		t.Skip("built with -race, whose own allocations would be counted")
	}
	p := transportPair(t, "tcp", 64<<20)
	ctx := testContext(t)
	run := func(ops []Op) {
		p.run(t, ctx, ops, SubmitOptions{})
	}
	const piece = 16 << 10
	ops := make([]Op, 64<<20/piece)
	for i := range ops {
		ops[i] = ReadOp(p.mine.Span(int64(i)*piece, piece), p.to.At(int64(len(ops)-1-i)*piece))
	}
	for range 3 {
		run(ops)
	}
	before := p.client.Stats().Slices
	allocs := testing.AllocsPerRun(5, func() { run(ops) })
	slices := float64(p.client.Stats().Slices-before) / 6
	if allocs > 16+slices/4 || slices < 40 {
		t.Errorf("%.0f allocations for a batch of %.0f slices, want some for the batch and none for slices", allocs, slices)
	}
}

// Pages lie where their numbers say, on either side; without numbers they follow one another.
func TestPages(t *testing.T) {
	const size = 4
	p := newPair(t, 4*size, Options{}, Options{})
	ctx := testContext(t)
	copy(p.mine.Bytes(), "aaaabbbbccccdddd")
	p.run(t, ctx, []Op{WritePages(p.mine.Span(size, 2), []uint32{1, 0}, p.to.At(size), []uint32{2, 0}, size)}, SubmitOptions{})
	if got := string(p.theirs.Bytes()[size:]); got != "bbbb\x00\x00\x00\x00cccc" {
		t.Errorf("written: %q", got)
	}
	p.run(t, ctx, []Op{ReadPages(p.mine.All(), nil, p.to.At(size), []uint32{2, 0}, size)}, SubmitOptions{})
	if got := string(p.mine.Bytes()); got != "ccccbbbbccccdddd" {
		t.Errorf("read: %q", got)
	}
}

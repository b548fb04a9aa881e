package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

const both = memory.PeerRead | memory.PeerWrite

func fillRandom(b []byte, seed uint64) {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
}

func bytesOf(r *memory.Region) []byte { return r.Block().Bytes() }

func TestSizes(t *testing.T) {
	noLeaks(t)
	a, b := newSide(t, Options{}), newSide(t, Options{})
	const size = 6 << 20
	mine := a.region(t, size, memory.None, memory.Options{})
	theirs := b.region(t, size, both, memory.Options{})
	c := dial(t, a, b, b.listen(t))
	for _, check := range []bool{false, true} {
		for i, n := range []int64{0, 1, 7, 4095, 4096, 4097, directMin - 1, directMin, directMin + 1, 65536,
			stageBytes - headBytes, stageBytes, sumBytesAtOnce, sumBytesAtOnce + 1, chunkBytes, chunkBytes + 1, readBytes + 13, 5<<20 + 3} {
			for _, op := range []transport.Op{transport.Write, transport.Read} {
				t.Run(fmt.Sprintf("%d/%d/%v", op, n, check), func(t *testing.T) {
					fillRandom(bytesOf(mine), uint64(i))
					fillRandom(bytesOf(theirs), uint64(i)+100)
					from, to, fo, to_ := mine, theirs, int64(33), int64(4099)
					req := request(op, mine, 33, remote(theirs), 4099, n)
					if op == transport.Read {
						from, to, fo, to_ = theirs, mine, 4099, 33
					}
					req.Check = check
					want := bytes.Clone(bytesOf(to))
					copy(want[to_:], bytesOf(from)[fo:fo+n])
					if x := c.do(t, req); x.Err != nil || x.Request != req || x.MayLand {
						t.Fatalf("completion %+v", x)
					}
					if !bytes.Equal(want, bytesOf(to)) {
						t.Fatal("wrong bytes")
					}
				})
			}
		}
	}
	c.Close(nil)
	if err := c.gone(t); err != nil {
		t.Error(err)
	}
}

// model is a copy of both memories that is changed along with them.
type model struct {
	mine, theirs   *memory.Region
	wantMine, want []byte
}

// TestMixture moves random strided pieces, many at a time, and compares every byte
// of both memories with a model.
func TestMixture(t *testing.T) {
	noLeaks(t)
	a, b := newSide(t, Options{MaxPosted: 32}), newSide(t, Options{})
	const size, cells = 8 << 20, 64
	m := model{mine: a.region(t, size, memory.None, memory.Options{}), theirs: b.region(t, size, both, memory.Options{})}
	fillRandom(bytesOf(m.mine), 1)
	fillRandom(bytesOf(m.theirs), 2)
	m.wantMine, m.want = bytes.Clone(bytesOf(m.mine)), bytes.Clone(bytesOf(m.theirs))
	c := dial(t, a, b, b.listen(t))
	rnd := rand.New(rand.NewPCG(3, 4))
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for range rounds {
		// Each request has a cell of both memories for itself.
		var reqs []*transport.Request
		for cell := range cells {
			reqs = append(reqs, m.request(rnd, int64(cell)*(size/cells), size/cells))
		}
		posted, ended := 0, 0
		for ended < len(reqs) {
			n, done := c.Post(reqs[posted:], nil)
			posted += n
			for _, x := range done {
				c.done <- x
			}
			if x := c.next(t); x.Err != nil {
				t.Fatal(x.Err)
			}
			ended++
		}
		if !bytes.Equal(m.wantMine, bytesOf(m.mine)) || !bytes.Equal(m.want, bytesOf(m.theirs)) {
			t.Fatal("wrong bytes")
		}
	}
	if got := b.Served(); got.Requests != int64(rounds*cells) || got.Refused != 0 || got.Conns != 1 {
		t.Errorf("served %+v", got)
	}
}

func (m *model) request(rnd *rand.Rand, base, room int64) *transport.Request {
	op := transport.Op(1 - rnd.IntN(2))
	req := &transport.Request{Op: op, Check: rnd.IntN(2) == 0}
	n := []int{1, 1, 2, 7, 100, spansLimit}[rnd.IntN(6)]
	stride := room / int64(n)
	local, rem := m.mine, remote(m.theirs)
	for i := range n {
		piece := rnd.Int64N(stride + 1)
		if rnd.IntN(3) == 0 {
			piece = min(piece, 64)
		}
		lo := base + int64(i)*stride + rnd.Int64N(stride-piece+1)
		ro := base + int64(n-1-i)*stride + rnd.Int64N(stride-piece+1)
		req.Spans = append(req.Spans, transport.Span{Local: local, LocalOffset: lo, Remote: rem, RemoteOffset: ro, Bytes: piece})
		req.Bytes += piece
		if op == transport.Write {
			copy(m.want[ro:ro+piece], m.wantMine[lo:lo+piece])
		} else {
			copy(m.wantMine[lo:lo+piece], m.want[ro:ro+piece])
		}
	}
	return req
}

func TestRefusals(t *testing.T) {
	noLeaks(t)
	a, b := newSide(t, Options{}), newSide(t, Options{})
	const size = 1 << 20
	mine := a.region(t, size, memory.None, memory.Options{})
	open := b.region(t, size, both, memory.Options{})
	readable := b.region(t, size, memory.PeerRead, memory.Options{})
	writable := b.region(t, size, memory.PeerWrite, memory.Options{})
	private := b.region(t, size, memory.None, memory.Options{})
	gone := b.region(t, size, both, memory.Options{})
	if err := gone.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := dial(t, a, b, b.listen(t))
	fillRandom(bytesOf(mine), 5)
	before := bytes.Clone(bytesOf(mine))
	tests := []struct {
		name   string
		op     transport.Op
		remote *transport.RemoteRegion
		offset int64
		bytes  int64
		want   error
	}{
		{"no region", transport.Write, &transport.RemoteRegion{ID: 77}, 0, 10, memory.ErrNoRegion},
		{"no region, large", transport.Write, &transport.RemoteRegion{ID: 0}, 0, size, memory.ErrNoRegion},
		{"closed", transport.Read, remote(gone), 0, 10, memory.ErrNoRegion},
		{"past the end", transport.Write, remote(open), 1, size, memory.ErrRange},
		{"far past the end", transport.Read, remote(open), 1 << 40, 1, memory.ErrRange},
		{"overflow", transport.Write, remote(open), -1, 2, memory.ErrRange},
		{"write to readable", transport.Write, remote(readable), 0, 100000, memory.ErrDenied},
		{"read of writable", transport.Read, remote(writable), 0, 100000, memory.ErrDenied},
		{"read of private", transport.Read, remote(private), 0, 1, memory.ErrNoRegion},
	}
	refused := int64(0)
	for _, tt := range tests {
		for _, check := range []bool{false, true} {
			req := request(tt.op, mine, 0, tt.remote, tt.offset, tt.bytes)
			req.Check = check
			x := c.do(t, req)
			refused++
			if !errors.Is(x.Err, transport.ErrRefused) || !errors.Is(x.Err, tt.want) || x.MayLand {
				t.Errorf("%s: %+v", tt.name, x)
			}
			ok := request(transport.Write, mine, 0, remote(open), 0, 40000)
			if x := c.do(t, ok); x.Err != nil {
				t.Fatalf("after %s: %v", tt.name, x.Err)
			}
		}
	}
	// One bad span among good ones: nothing is written.
	clear(bytesOf(open))
	mixed := &transport.Request{Op: transport.Write, Bytes: 30, Spans: []transport.Span{
		{Local: mine, Remote: remote(open), Bytes: 10},
		{Local: mine, Remote: remote(readable), Bytes: 10},
		{Local: mine, Remote: remote(open), Bytes: 10},
	}}
	if x := c.do(t, mixed); !errors.Is(x.Err, memory.ErrDenied) || !strings.Contains(x.Err.Error(), "span 1") {
		t.Errorf("mixed: %+v", x)
	}
	refused++
	for _, offset := range []int64{size - 9, 1 << 40, -1, -10} {
		mixed.Spans[1] = transport.Span{Local: mine, Remote: remote(open), RemoteOffset: offset, Bytes: 10}
		if x := c.do(t, mixed); !errors.Is(x.Err, memory.ErrRange) {
			t.Errorf("second span at %d: %+v", offset, x)
		}
		refused++
	}
	if !bytes.Equal(bytesOf(open), make([]byte, size)) {
		t.Error("a refused request wrote")
	}
	if !bytes.Equal(before, bytesOf(mine)) {
		t.Error("a refused READ changed our memory")
	}
	for _, r := range []*memory.Region{open, readable, writable, private} {
		if bytesOf(r)[0] != 0 || r.Pins() != 0 {
			t.Errorf("region %q: byte %d, %d pins", r.Name(), bytesOf(r)[0], r.Pins())
		}
	}
	if got := b.Served().Refused; got != refused {
		t.Errorf("%d refused, want %d", got, refused)
	}
}

func TestPostTakesWhatFits(t *testing.T) {
	a, b := newSide(t, Options{MaxPosted: 4, MaxSpans: 3, MaxBytes: 1 << 20}), newSide(t, Options{MaxBytes: 5000})
	mine := a.region(t, 1<<20, memory.None, memory.Options{})
	theirs := b.region(t, 1<<20, both, memory.Options{})
	c := dial(t, a, b, b.listen(t))
	if got, want := c.Limits(), (transport.Caps{MaxSpans: 3, MaxBytes: 5000, MaxPosted: 4}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
	rem := remote(theirs)
	bad := []*transport.Request{
		request(transport.Write, mine, 0, rem, 0, 5001),
		{Op: transport.Write, Bytes: 1, Spans: []transport.Span{{Local: mine, Remote: rem, Bytes: 2}}},
		{Op: transport.Write, Bytes: 1, Spans: []transport.Span{{Local: mine, Remote: rem, Bytes: 2}, {Local: mine, Remote: rem, Bytes: -1}}},
		{Op: transport.Write, Spans: make([]transport.Span, 4)},
		{Op: 3},
	}
	n, done := c.Post(bad, nil)
	if n != len(bad) || len(done) != len(bad) {
		t.Fatalf("%d taken, %d done of %d bad requests", n, len(done), len(bad))
	}
	for i, x := range done {
		if x.Request != bad[i] || x.Err == nil || x.MayLand {
			t.Errorf("bad request %d: %+v", i, x)
		}
	}
	// No spans at all is a request like others.
	if x := c.do(t, &transport.Request{Op: transport.Read}); x.Err != nil {
		t.Error(x.Err)
	}
}

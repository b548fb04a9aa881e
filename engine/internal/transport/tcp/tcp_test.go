package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
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

// What is refused is counted, says which span it was, and leaves nothing pinned.
func TestRefusals(t *testing.T) {
	noLeaks(t)
	a, b := newSide(t, Options{}), newSide(t, Options{})
	const size = 1 << 20
	mine := a.region(t, size, memory.None, memory.Options{})
	open, readable := b.region(t, size, both, memory.Options{}), b.region(t, size, memory.PeerRead, memory.Options{})
	c := dial(t, a, b, b.listen(t))
	fillRandom(bytesOf(mine), 5)
	refused := map[string]int64{"denied": 1, "range": 4}
	for _, span := range []struct {
		of     *memory.Region
		offset int64
		want   error
	}{{readable, 0, memory.ErrDenied}, {open, size - 9, memory.ErrRange}, {open, 1 << 40, memory.ErrRange}, {open, -1, memory.ErrRange}, {open, -10, memory.ErrRange}} {
		x := c.do(t, &transport.Request{Op: transport.Write, Bytes: 30, Spans: []transport.Span{
			{Local: mine, Remote: remote(open), Bytes: 10},
			{Local: mine, Remote: remote(span.of), RemoteOffset: span.offset, Bytes: 10},
			{Local: mine, Remote: remote(open), Bytes: 10},
		}})
		if !errors.Is(x.Err, transport.ErrRefused) || !errors.Is(x.Err, span.want) || !strings.Contains(x.Err.Error(), "span 1") {
			t.Errorf("second span at %d: %+v", span.offset, x)
		}
	}
	for _, r := range []*memory.Region{open, readable} {
		if !bytes.Equal(bytesOf(r), make([]byte, size)) || r.Pins() != 0 {
			t.Errorf("region %q was written, or has %d pins", r.Name(), r.Pins())
		}
	}
	if got := b.Served().Refused; !maps.Equal(got, refused) {
		t.Errorf("refused: %v, want %v", got, refused)
	}
}

func TestPostTakesWhatFits(t *testing.T) {
	a, b := newSide(t, Options{MaxPosted: 4, MaxSpans: 3, MaxBytes: 1 << 20}), newSide(t, Options{MaxBytes: 5000})
	c := dial(t, a, b, b.listen(t))
	if got, want := c.Limits(), (transport.Caps{MaxSpans: 3, MaxBytes: 5000, MaxPosted: 4}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
	// No spans at all is a request like others.
	if x := c.do(t, &transport.Request{Op: transport.Read}); x.Err != nil {
		t.Error(x.Err)
	}
}

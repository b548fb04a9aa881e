package transporttest

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// area is a region with its shadow: what its bytes must be.
type area struct {
	p      *pair
	name   string
	region *memory.Region // nil: it is on another machine
	far    FarRegion
	remote *transport.RemoteRegion // as a peer knows it
	shadow []byte
	seed   uint64 // of the last fill
}

// fill puts bytes into region and shadow that no other seed gives.
func (a *area) fill(seed uint64) {
	a.seed = seed
	fill(a.shadow, seed*0xd1342543de82ef95)
	if a.far == nil {
		a.p.h.Write(a.region.Block(), a.shadow, 0)
	} else if _, err := a.far.WriteAt(a.shadow, 0); err != nil {
		a.p.Fatalf("filling region %q: %v", a.name, err)
	}
}

func (a *area) size() int64 { return int64(len(a.shadow)) }

func (a *area) bytes() []byte { return a.read(0, a.size()) }

// read gives bytes as they are now: themselves, or a copy where they are on a device or
// on another machine.
func (a *area) read(offset, length int64) []byte {
	if a.far == nil && a.region.Device() == nil {
		return a.region.Bytes(offset, length)
	}
	out := make([]byte, length)
	if a.far == nil {
		a.p.h.Read(a.region.Block(), out, offset)
	} else if _, err := a.far.ReadAt(out, offset); err != nil {
		a.p.Fatalf("reading region %q: %v", a.name, err)
	}
	return out
}

// verify compares every byte.
func (a *area) verify(t testing.TB, what string) {
	t.Helper()
	got := a.bytes()
	if bytes.Equal(got, a.shadow) {
		return
	}
	first, count := -1, 0
	for i := range got {
		if got[i] != a.shadow[i] {
			if first < 0 {
				first = i
			}
			count++
		}
	}
	t.Errorf("%s: region %q: %d bytes are wrong, the first at %d: %#02x, want %#02x",
		what, a.name, count, first, got[first], a.shadow[first])
}

// noise is what fill copies from: SplitMix64, once.
var noise = sync.OnceValue(func() []byte {
	var out []byte
	for i := uint64(0); len(out) < 1<<18; {
		out = binary.LittleEndian.AppendUint64(out, mix(&i))
	}
	return out
})

func mix(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// fill writes pieces of noise whose places depend on the seed. Pieces are of an odd
// length, so that equal offsets in pages or slices do not hold equal bytes.
func fill(to []byte, seed uint64) {
	const piece = 4093
	from := noise()
	for len(to) > 0 {
		at := mix(&seed) % uint64(len(from)-piece)
		to = to[copy(to, from[at:at+piece]):]
	}
}

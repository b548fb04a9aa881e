package bench

import (
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/units"
)

// layout places the ops of one size in the memory of both ends: each worker walks through
// its own part, in order on this side and in large steps on the other.
type layout struct {
	size, part, slots, step int64
	parts                   int
}

// partAlign keeps the parts of workers on separate pages.
const partAlign = 4096

// newLayout divides memory bytes on each side among parts workers that have batch
// ops of size bytes in flight each.
func newLayout(memory, size int64, parts, batch int) (layout, error) {
	l := layout{size: size, parts: parts, part: memory / int64(parts)}
	if l.part > partAlign {
		l.part -= l.part % partAlign
	}
	if l.slots = l.part / size; l.slots < int64(batch) || batch < 1 {
		return layout{}, pkgerr.Errorf("bench", "ops of %s, %d in a batch and %d batches at a time need %s on each side: there is %s",
			units.Bytes(size), batch, parts, units.Bytes(roundUp(size*int64(batch))*int64(parts)), units.Bytes(memory))
	}
	l.step = coprime(l.slots)
	return l, nil
}

func roundUp(n int64) int64 { return (n + partAlign - 1) / partAlign * partAlign }

// coprime finds a step near the golden section of n that visits all of n slots, so that
// consecutive ones are far apart.
func coprime(n int64) int64 {
	for step := max(1, n*382/1000); ; step++ {
		if gcd(step, n) == 1 {
			return step
		}
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// near is the offset of op k of a part on this side, far that on the other.
func (l *layout) near(part int, k int64) int64 { return int64(part)*l.part + k%l.slots*l.size }

func (l *layout) far(part int, k int64) int64 {
	return int64(part)*l.part + k%l.slots*l.step%l.slots*l.size
}

// walk iterates over the memory of the ops of one part.
type walk struct {
	layout
	mem  []byte
	part int // which part
	far  bool
	k    int64
}

func (w *walk) next() []byte {
	at := w.layout.near(w.part, w.k)
	if w.far {
		at = w.layout.far(w.part, w.k)
	}
	w.k++
	return w.mem[at : at+w.size : at+w.size]
}

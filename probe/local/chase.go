package local

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/stats"
)

const (
	// ChaseLoads is how many dependent loads a sample of load_ns is the mean of: with
	// fewer the clock would be in the figure.
	ChaseLoads = 256
	lineBytes  = 64
	// chasePart is which part of the time of a pair is kept for latency, as 1/chasePart.
	chasePart = 4
	// chaseTurns is how many loads there are between two looks at ctx while the cycle is
	// built.
	chaseTurns = 1 << 20
)

// cycle is a permutation of 2^width places that is one cycle and looks random: position k
// of the cycle is mix(k), whose inverse is known, so that the place after any other can be
// computed, and the cycle is written in the order of places.
type cycle struct {
	width     int
	mask      uint64
	a, b      uint64 // odd
	undoA     uint64 // inverses modulo 2^width
	undoB     uint64
	halfWidth int
}

func newCycle(width int, r *rand.Rand) cycle {
	c := cycle{width: width, mask: 1<<width - 1, a: r.Uint64() | 1, b: r.Uint64() | 1, halfWidth: (width + 1) / 2}
	c.undoA, c.undoB = inverse(c.a), inverse(c.b)
	return c
}

// inverse is that of an odd number modulo 2^64 (Newton: each step doubles the bits that
// are right, from three on).
func inverse(x uint64) uint64 {
	y := x
	for range 5 {
		y *= 2 - x*y
	}
	return y
}

func (c *cycle) mix(k uint64) uint64 {
	k = k * c.a & c.mask
	k ^= k >> c.halfWidth // is its own inverse: twice the shift leaves nothing
	return k * c.b & c.mask
}

// next is the place after place i.
func (c *cycle) next(i uint64) uint64 {
	k := i * c.undoB & c.mask
	k ^= k >> c.halfWidth
	k = k * c.undoA & c.mask
	return c.mix((k + 1) & c.mask)
}

// latency chases pointers over the whole buffer.
func (m *memoryJob) latency(ctx context.Context, until time.Duration, out *probe.Measurement) error {
	undo, err := m.pin(0)
	if err != nil {
		return err
	}
	defer undo()
	mem := m.block.Bytes()
	c := newCycle(bits.Len64(uint64(len(mem)/lineBytes))-1, rand.New(rand.NewPCG(uint64(m.p.o.Now()), 0)))
	for i := uint64(0); i <= c.mask; i++ {
		binary.LittleEndian.PutUint64(mem[i*lineBytes:], c.next(i)*lineBytes)
		if i%chaseTurns == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	var samples []int64
	at, now := uint64(0), m.p.o.Now
	for warm := now() + m.spec.Warmup/chasePart; len(samples) < m.spec.LatencySamples; {
		began := now()
		at = chase(mem, at)
		took := now() - began
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case began < warm:
			continue
		default:
			samples = append(samples, (int64(took)+ChaseLoads/2)/ChaseLoads)
		}
		if err != nil || until > 0 && began >= until {
			break
		}
	}
	if p := stats.Percentiles(samples); p != nil {
		out.Latency = &probe.Latency{SizeBytes: lineBytes, Load: p}
		out.Notes = append(out.Notes, fmt.Sprintf("load_ns: each sample is the mean of %d dependent loads, over %d bytes in pages of %d",
			ChaseLoads, (c.mask+1)*lineBytes, m.block.Info().PageBytes))
	}
	return err
}

// chase follows the cycle for ChaseLoads loads. Where it ends depends on all of them, so
// that none can be left out.
func chase(mem []byte, at uint64) uint64 {
	for range ChaseLoads {
		at = binary.LittleEndian.Uint64(mem[at:])
	}
	return at
}

package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

const (
	// chaseLoads is how many dependent loads a sample of load_ns is the mean of: with
	// fewer the clock would be in the figure.
	chaseLoads = 256
	lineBytes  = 64
	// chaseWarm is how many samples are not taken, at first.
	chaseWarm = 16
	// chasePart is which part of the time of a pair latency may take, as 1/chasePart. It
	// comes first, so that bandwidth has what is left, and mostly needs little of it.
	chasePart = 2
)

// cycle is a permutation of 2^width places that looks random. The next place is computed, so that only the
// places that are visited are written.
type cycle struct {
	mask      uint64
	a, b      uint64 // odd
	halfWidth int
}

func newCycle(width int, r *rand.Rand) cycle {
	return cycle{mask: 1<<width - 1, a: r.Uint64() | 1, b: r.Uint64() | 1, halfWidth: (width + 1) / 2}
}

// place is the k-th place: each step can be undone, so no two places are the same.
func (c *cycle) place(k uint64) uint64 {
	k = k * c.a & c.mask
	k ^= k >> c.halfWidth
	return k * c.b & c.mask
}

// link makes each of the first n places, of a line each, point to the next, the last to the first, and
// returns the offset of the first. Only lines that no cache has should be loaded: n places of many are few
// lines, and none is loaded twice before all were.
func (c *cycle) link(mem []byte, n uint64) (first uint64) {
	first = c.place(0) * lineBytes
	at := first
	for k := uint64(1); k < n; k++ {
		next := c.place(k) * lineBytes
		binary.LittleEndian.PutUint64(mem[at:], next)
		at = next
	}
	binary.LittleEndian.PutUint64(mem[at:], first)
	return first
}

// unlink restores the memory.
func (c *cycle) unlink(mem []byte, n uint64) {
	for k := range n {
		binary.LittleEndian.PutUint64(mem[c.place(k)*lineBytes:], 0)
	}
}

// latency chases pointers over the whole working set.
func (m *memoryJob) latency(ctx context.Context, until time.Duration, out *probe.Measurement) error {
	undo, err := m.pin(0)
	if err != nil {
		return err
	}
	defer undo()
	mem, now := m.set, m.p.o.Now
	c := newCycle(bits.Len64(uint64(len(mem)/lineBytes))-1, rand.New(rand.NewPCG(uint64(now()), 0)))
	n := min(c.mask+1, uint64(m.spec.LatencySamples+chaseWarm)*chaseLoads)
	at := c.link(mem, n)
	defer c.unlink(mem, n)
	if !m.sweep(ctx, lane.Share(now(), until, 2)) {
		out.Notes = append(out.Notes, "load_ns: there was no time to empty the caches first: some loads may be from a cache")
	}
	var samples []int64
	for k := 0; len(samples) < m.spec.LatencySamples; k++ {
		began := now()
		at = chase(mem, at)
		took := now() - began
		if err = context.Cause(ctx); err != nil {
			break
		}
		if k >= chaseWarm {
			samples = append(samples, (int64(took)+chaseLoads/2)/chaseLoads)
		}
		if until > 0 && began >= until && len(samples) > 0 {
			break
		}
	}
	if p := probe.NewPercentiles(samples); p != nil {
		out.Latency = &probe.Latency{SizeBytes: lineBytes, Load: p}
		out.Notes = append(out.Notes, fmt.Sprintf("load_ns: each sample is the mean of %d dependent loads, over %d bytes%s",
			chaseLoads, (c.mask+1)*lineBytes, m.pages()))
	}
	return err
}

// sweep loads the working set, so that no cache has what was written to it. false: there was not enough
// time.
func (m *memoryJob) sweep(ctx context.Context, until time.Duration) (whole bool) {
	var running sync.WaitGroup
	var short atomic.Bool
	for _, part := range m.parts() {
		running.Go(func() {
			for ; len(part) > 0; part = part[min(len(part), pieceBytes):] {
				if ctx.Err() != nil || until > 0 && m.p.o.Now() >= until {
					short.Store(true)
					return
				}
				m.swept.Add(int64(bytes.Count(part[:min(len(part), pieceBytes)], []byte{0xff})))
			}
		})
	}
	running.Wait()
	return !short.Load()
}

// chase follows the cycle for chaseLoads loads. Where it ends depends on all of them, so none can be
// optimised away.
func chase(mem []byte, at uint64) uint64 {
	for range chaseLoads {
		at = binary.LittleEndian.Uint64(mem[at:])
	}
	return at
}

package bench

import (
	"context"
	"sync"
	"time"
)

// copyRound copies between two pieces of memory of one size for a while, the way
// that ops go through it, in as many goroutines as the layout has parts.
func copyRound(ctx context.Context, dst, src []byte, l layout, d time.Duration, copyTo func(dst, src []byte) int) (sample, error) {
	done := make([]int64, l.parts)
	start, cpu := time.Now(), selfCPU()
	var running sync.WaitGroup
	for part := range l.parts {
		running.Go(func() {
			from, to := walk{layout: l, mem: src, part: part}, walk{layout: l, mem: dst, part: part, far: true}
			for ctx.Err() == nil && time.Since(start) < d {
				for moved := int64(0); moved < 1<<20; moved += l.size { // the clock is not asked for each op
					done[part] += int64(copyTo(to.next(), from.next()))
				}
			}
		})
	}
	running.Wait()
	s := sample{elapsed: time.Since(start), self: selfCPU() - cpu, peerKnown: true}
	for _, n := range done {
		s.bytes += n
	}
	return s, ctx.Err()
}

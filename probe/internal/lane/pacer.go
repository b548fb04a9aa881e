package lane

import (
	"context"
	"sync"
	"time"
)

// Pacer spreads bytes, or anything else that is counted, over time. It may be used by many goroutines.
type Pacer struct {
	Now    Clock
	PerSec int64         // 0: no limit
	Burst  time.Duration // how much may go at once after a pause, as the time that it has at that rate

	mu    sync.Mutex
	ready time.Duration // when all that went would have gone at that rate
}

// Wait waits until n more may go.
func (p *Pacer) Wait(ctx context.Context, n int64) error {
	if p.PerSec == 0 {
		return nil
	}
	t := time.NewTimer(p.next(n))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// next says how long n more have to wait.
func (p *Pacer) next(n int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Now()
	at := max(now, p.ready)
	p.ready = at + time.Duration(float64(n)/float64(p.PerSec)*float64(time.Second))
	return max(0, at-p.Burst-now)
}

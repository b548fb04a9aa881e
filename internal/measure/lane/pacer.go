package lane

import (
	"context"
	"sync"
	"time"
)

// Pacer spreads bytes over time. It may be used by many goroutines.
type Pacer struct {
	Now         Clock
	BytesPerSec int64 // 0: no limit

	mu   sync.Mutex
	next time.Duration
}

// Wait waits until bytes may be moved.
func (p *Pacer) Wait(ctx context.Context, bytes int64) error {
	if p.BytesPerSec == 0 {
		return nil
	}
	p.mu.Lock()
	now := p.Now()
	at := max(now, p.next)
	p.next = at + time.Duration(float64(bytes)/float64(p.BytesPerSec)*float64(time.Second))
	p.mu.Unlock()
	t := time.NewTimer(at - now)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

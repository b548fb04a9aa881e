package lane

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// CPU measures processor time for the bytes of a period.
type CPU struct {
	// Ask returns the processor time so far. It may ask another host, so it is not waited for until perGB.
	Ask func(ctx context.Context) (cpu time.Duration, ok bool)

	other         atomic.Int64
	from, to      look
	begun, asking sync.WaitGroup
}

// look is the processor time at one moment.
type look struct {
	cpu   time.Duration
	other int64
	known bool
}

// Add counts bytes that cost time and are not among those of perGB.
func (c *CPU) Add(bytes int64) { c.other.Add(bytes) }

// Begin marks the beginning of the period.
func (c *CPU) Begin(ctx context.Context) {
	c.from.other = c.other.Load()
	c.begun.Go(func() { c.from.cpu, c.from.known = c.Ask(ctx) })
}

// End marks its end.
func (c *CPU) End(ctx context.Context) {
	c.to.other = c.other.Load()
	c.asking.Go(func() {
		c.begun.Wait() // the first answer is the earlier one, however short the while
		c.to.cpu, c.to.known = c.Ask(ctx)
	})
}

// perGB is in seconds for 10^9 bytes, with four decimals; nil not known.
func (c *CPU) perGB(bytes int64) *float64 {
	c.begun.Wait()
	c.asking.Wait()
	bytes += c.to.other - c.from.other
	if !c.from.known || !c.to.known || bytes <= 0 || c.to.cpu < c.from.cpu {
		return nil
	}
	v := math.Round((c.to.cpu-c.from.cpu).Seconds()/(float64(bytes)/1e9)*1e4) / 1e4
	return &v
}

package lane

import (
	"context"
	"math"
	"sync"
	"time"
)

// cpuMeter measures processor time for the bytes of a period.
type cpuMeter struct {
	// ask returns the processor time so far, nil: not known. It may ask another host, so it is not waited for
	// until perGB.
	ask func(ctx context.Context) (cpu time.Duration, ok bool)

	from, to      cpuLook
	begun, asking sync.WaitGroup
}

// cpuLook is the processor time at one moment, and the bytes beside the measured ones until then.
type cpuLook struct {
	cpu    time.Duration
	beside int64
	known  bool
}

// begin marks the beginning of the period.
func (c *cpuMeter) begin(ctx context.Context, beside int64) {
	c.from.beside = beside
	if c.ask != nil {
		c.begun.Go(func() { c.from.cpu, c.from.known = c.ask(ctx) })
	}
}

// end marks its end.
func (c *cpuMeter) end(ctx context.Context, beside int64) {
	c.to.beside = beside
	if c.ask != nil {
		c.asking.Go(func() {
			c.begun.Wait() // the first answer is the earlier one, however short the while
			c.to.cpu, c.to.known = c.ask(ctx)
		})
	}
}

// perGB is in seconds for 10^9 bytes, with four decimals; nil not known.
func (c *cpuMeter) perGB(bytes int64) *float64 {
	c.begun.Wait()
	c.asking.Wait()
	bytes += c.to.beside - c.from.beside
	if !c.from.known || !c.to.known || bytes <= 0 || c.to.cpu < c.from.cpu {
		return nil
	}
	v := math.Round((c.to.cpu-c.from.cpu).Seconds()/(float64(bytes)/1e9)*1e4) / 1e4
	return &v
}

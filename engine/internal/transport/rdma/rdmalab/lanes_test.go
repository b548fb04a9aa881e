//go:build vmlab && linux && cgo

package rdma

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
)

// stream gives the rate of a steady while of a stream, in bytes per second.
func (d *duo) stream(read bool, inFlight int, opBytes int64, settle, steady time.Duration) (rate float64) {
	d.Helper()
	d.during(read, inFlight, opBytes, settle, func() {
		rate = d.rate(func() { pause(steady) })
	})
	return rate
}

// rate is what lanes carry while something runs, in bytes per second.
func (d *duo) rate(while func()) float64 {
	from, began := d.moved(*over), time.Now()
	while()
	bytes, took := d.moved(*over)-from, time.Since(began)
	return float64(bytes) / took.Seconds()
}

// during moves the whole region in one direction again and again, in ops of a size, with
// some batches in flight, while something is measured.
func (d *duo) during(read bool, inFlight int, opBytes int64, settle time.Duration, measure func()) {
	d.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var workers sync.WaitGroup
	stripe := int64(len(d.here)) / int64(inFlight)
	for w := range inFlight {
		workers.Go(func() { d.streamStripe(ctx, read, int64(w)*stripe, stripe, opBytes) })
	}
	pause(settle)
	measure()
	cancel()
	workers.Wait()
	if n := d.engine.Stats().Retries; n > 0 {
		d.Logf("%d slices were sent again: the host is noisy, or something is wrong", n)
		for _, l := range d.peer.Lanes() {
			if l.Failures > 0 {
				d.Logf("lane %s: %d failures, the last: %s", l.Lane, l.Failures, l.LastError)
			}
		}
	}
	if read {
		copy(d.here, d.there[:len(d.here)])
	} else {
		copy(d.there, d.here)
	}
	d.verify("after a stream")
}

func (d *duo) streamStripe(ctx context.Context, read bool, at, size, opBytes int64) {
	var ops []engine.Op
	for o := at; o+opBytes <= at+size; o += opBytes {
		op := engine.WriteOp(d.mine.Span(o, opBytes), d.theirs.At(o))
		if read {
			op = engine.ReadOp(d.mine.Span(o, opBytes), d.theirs.At(o))
		}
		ops = append(ops, op)
	}
	for ctx.Err() == nil {
		limit, cancel := context.WithTimeout(context.Background(), within)
		b, err := d.peer.Submit(limit, ops, engine.SubmitOptions{})
		if err == nil {
			err = b.Wait(context.Background()) // which limit ends, too
		}
		cancel()
		if err != nil {
			d.Errorf("a stream's batch: %v", err)
			return
		}
	}
}

// tries is how often something that is measured may fall short: hosts are noisy.
const tries = 3

// Lanes together move what they move alone.
func TestAggregation(t *testing.T) {
	if *over != "rdma" {
		t.Skip("-over is not rdma: over TCP there are always all lanes")
	}
	t.Run("WRITE", func(t *testing.T) { aggregate(t, false) })
	if *long {
		t.Run("READ", func(t *testing.T) { aggregate(t, true) })
	}
}

func aggregate(t *testing.T, read bool) {
	mended(t)
	// Far below what the emulated processors carry, so that the cables are the limit.
	const rate = 10_000_000
	even := map[int]int64{0: rate, 1: rate, 2: rate, 3: rate}
	// No lane is faster than those: what a lane holds must last as long as machines stand still.
	uneven := map[int]int64{0: rate, 1: rate / 2}
	measure := func(rates map[int]int64, lanes int) float64 {
		if err := shape(bounded(t), rates); err != nil {
			t.Fatal(err)
		}
		var speed float64
		t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
			all := []int{0, 1, 2, 3}
			near, there := Spec{Transports: []string{*over}, Rails: all[:lanes], Bytes: 1 << 20}, Spec{Transports: []string{*over}, Bytes: 1 << 20}
			d := newDuos(t, near, there)
			d.during(read, 4, 64<<10, 2*time.Second, func() { speed = d.undisturbed(4 * time.Second) })
		})
		return speed * 8 / 1e6
	}
	for try := 1; ; try++ {
		one, two, four := measure(even, 1), measure(even, 2), measure(even, 4)
		mixed := measure(uneven, 2)
		text := fmt.Sprintf("Mbit/s: one lane %.1f, two %.1f (%.2f times), four %.1f (%.2f times), one and a half %.1f (%.0f %% of both)",
			one, two, two/one, four, four/one, mixed, 100*mixed/(1.5*one))
		if enough(t, try, text, two >= 1.9*one && four >= 3.7*one && mixed >= 0.95*1.5*one) {
			return
		}
	}
}

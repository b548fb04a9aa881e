//go:build vmlab && linux && cgo

package rdma

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/test/vmlab/guest"
)

// soakRate is what a rail carries: four stay below what two emulated machines can.
const soakRate = 25_000_000

// trouble is what a soak does to a rail for a while.
type trouble struct {
	name        string
	host        int
	begin, over func(rail int, rng *rand.Rand) Action
}

func plain(do string) func(int, *rand.Rand) Action {
	return func(rail int, _ *rand.Rand) Action { return Action{Do: do, Rail: rail} }
}

// netem has what the machine sends suffer; the end of it is the rail's usual rate.
func netem(name string, host int, draw func(*rand.Rand) guest.Netem) trouble {
	return trouble{name, host,
		func(rail int, rng *rand.Rand) Action { return Action{Do: "netem", Rail: rail, Net: draw(rng)} },
		func(rail int, _ *rand.Rand) Action {
			return Action{Do: "netem", Rail: rail, Net: guest.Netem{RateBitsPerSec: soakRate}}
		},
	}
}

func troubles() []trouble {
	var list []trouble
	for host := 1; host <= 2; host++ {
		list = append(list,
			trouble{"link down", host, plain("link down"), plain("link up")},
			trouble{"carrier lost", host, plain("carrier lost"), plain("carrier back")},
			netem("loss", host, func(rng *rand.Rand) guest.Netem {
				return guest.Netem{RateBitsPerSec: soakRate, LossPercent: 0.5 + 9*rng.Float64()}
			}),
			netem("delay", host, func(rng *rand.Rand) guest.Netem {
				d := time.Duration(1+rng.IntN(40)) * time.Millisecond
				return guest.Netem{RateBitsPerSec: soakRate, Delay: d, Jitter: d / 4}
			}),
			netem("short queue", host, func(rng *rand.Rand) guest.Netem {
				return guest.Netem{RateBitsPerSec: soakRate, Packets: 2 + rng.IntN(60)}
			}),
			netem("rate", host, func(rng *rand.Rand) guest.Netem {
				return guest.Netem{RateBitsPerSec: 1_000_000 + rng.Int64N(30_000_000)}
			}),
		)
	}
	return append(list, trouble{"wire cut", 1, plain("cut"), plain("splice")})
}

// Transfers of random ranges go on while rails break and are mended in random order: no
// wrong byte, no hang, nothing left.
func TestSoak(t *testing.T) {
	mended(t)
	rng := dice(t)
	d := newDuo(t, Spec{Transports: withTCP(), Bytes: 4 << 20})
	rails := map[int]int64{}
	for rail := range 2 + rng.IntN(3) {
		rails[rail] = soakRate
	}
	if err := shape(bounded(t), rails); err != nil {
		t.Fatal(err)
	}
	length := *soakFor
	if length == 0 {
		length = 15 * time.Second
		if *long {
			length = 5 * time.Minute
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	tr := d.startTraffic(4, 6, 48<<10, rng)
	counts := torment(ctx, t, slices.Sorted(maps.Keys(rails)), rng)
	tr.end()
	s := d.engine.Stats()
	t.Logf("%v over %d rails: %v; slowest batch %v; %d slices sent again, %d times another transport", length, len(rails), tr, tr.takeSlowest().Round(time.Millisecond), s.Retries, s.Fallback)
	t.Logf("troubles: %s", counts)
	logLanes(t, d)
	if s.Retries == 0 {
		t.Error("no slice was sent again: this soak saw no fault")
	}
	if tr.reads.Load() == 0 || tr.writes.Load() == 0 {
		t.Error("nothing moved")
	}
	if s.Failed > 0 {
		t.Errorf("%d batches failed", s.Failed)
	}
}

// torment breaks and mends each of the rails, independently, until ctx ends; all are
// whole when it returns. It says what it did.
func torment(ctx context.Context, t *testing.T, rails []int, rng *rand.Rand) string {
	var mu sync.Mutex
	done := map[string]int{}
	var all sync.WaitGroup
	for _, rail := range rails {
		own := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		all.Go(func() {
			list := troubles()
			for sleep(ctx, time.Duration(200+own.IntN(1500))*time.Millisecond) {
				x := list[own.IntN(len(list))]
				if err := x.strike(ctx, rail, own); err != nil {
					t.Errorf("rail %d: %s: %v", rail, x.name, err)
					return
				}
				mu.Lock()
				done[fmt.Sprintf("%s on machine %d", x.name, x.host)]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(done)) {
		out = append(out, fmt.Sprintf("%d %s", done[name], name))
	}
	if len(out) == 0 {
		t.Error("nothing was broken")
	}
	return strings.Join(out, ", ")
}

// strike is one trouble from its beginning to its end.
func (x *trouble) strike(ctx context.Context, rail int, rng *rand.Rand) error {
	limit, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := x.begin(rail, rng).on(limit, x.host); err != nil {
		return err
	}
	sleep(ctx, time.Duration(100+rng.IntN(2500))*time.Millisecond)
	return x.over(rail, rng).on(limit, x.host)
}

// sleep is false where ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// logLanes prints what each lane did.
func logLanes(t *testing.T, d *duo) {
	t.Helper()
	for _, l := range d.peer.Lanes() {
		if l.Slices > 0 || l.Failures > 0 {
			t.Logf("lane %s (%s): %s, %d bytes in %d slices, %d failures, %d sent again, last error %q; %s",
				l.Lane, l.Transport, l.Health, l.Bytes, l.Slices, l.Failures, l.Retries, l.LastError, l.Connection)
		}
	}
}

package tui

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/units"
)

// samples are some seconds of a host, to be played again and again.
func samples(x *topo.Topology) []*counters.Sample {
	var out []*counters.Sample
	for k := range 30 {
		out = append(out, sample(x, k+1))
	}
	return out
}

// at is a sample as the feed tells it at a second.
func at(list []*counters.Sample, second_ int) *record.Record {
	s := *list[second_%len(list)]
	s.AtNS = int64(second_) * second
	return &record.Record{Schema: record.Schema, AtNS: s.AtNS, Source: record.SourceCounters, Counters: &s}
}

// BenchmarkSecond is what a second of a live host costs: a look at its counters, a tick and
// a picture.
func BenchmarkSecond(b *testing.B) {
	for _, fixture := range []string{"dgx-h100", "aws-p5-44nic-synthetic"} {
		for _, size := range [][2]int{{120, 30}, {200, 50}} {
			for view, name := range Views() {
				b.Run(fmt.Sprintf("%s/%dx%d/%s", fixture, size[0], size[1], name), func(b *testing.B) {
					d := open(b, Options{Color: true}, fixture, 3, size[0], size[1])
					d.show(view)
					list := samples(d.live.Topology)
					b.ReportAllocs()
					b.ResetTimer()
					for n := range b.N {
						d.clock.pass(time.Second)
						d.send(news{{record: at(list, n+4)}})
						d.send(tick{})
					}
				})
			}
		}
	}
}

// Forty minutes of a host with 44 NICs cost no memory that stays, and no key gets lost.
func TestLongRun(t *testing.T) {
	const fixture, seconds = "aws-p5-44nic-synthetic", 2400
	b := open(t, Options{Color: true}, fixture, 3, 120, 30)
	list := samples(b.live.Topology)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var early uint64
	toggles := 0
	for k := range seconds {
		b.clock.pass(time.Second)
		b.Update(news{{record: at(list, k+4)}})
		b.Update(tick{})
		if k%3 == 0 {
			b.Update(keyPress(t, "u"))
			toggles++
		}
		if k%20 == 0 { // pictures cost time, not memory
			b.send(tea.KeyPressMsg{Code: rune('1' + k/20%6), Text: string(rune('1' + k/20%6))})
		}
		if k == seconds/4 {
			early = heap()
		}
	}
	late := heap()
	t.Logf("heap %d KiB after %d s, %d KiB after %d s", early>>10, seconds/4, late>>10, seconds)
	if late > early+early/10+256<<10 {
		t.Errorf("the heap grew from %d to %d bytes", early, late)
	}
	if got := b.look.Units; toggles%4 != 0 || got != units.Auto {
		t.Errorf("%d keys were pressed, and the units are %q", toggles, got)
	}
	if b.live.Now != int64(seconds+3)*second {
		t.Errorf("the state stands at %d", b.live.Now)
	}
}

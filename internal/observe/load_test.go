package observe

import (
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// What a curve comes to is the sum of what it is at each moment.
func TestCurvesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := curveOf(rapid.Uint64().Draw(t, "hash"))
		from := rapid.Float64Range(0, 1e6).Draw(t, "from")
		sum, step, n := 0.0, 0.01, 6000
		for i := range n {
			now := c.now(from + (float64(i)+0.5)*step)
			if now < 0 || now > 1 {
				t.Fatalf("%+v is %v", c, now)
			}
			sum += now * step
		}
		if got := c.seconds(from+float64(n)*step) - c.seconds(from); math.Abs(got-sum) > 0.1 {
			t.Fatalf("%+v: %v, the sum is %v", c, got, sum)
		}
	})
}

func TestSyntheticLoad(t *testing.T) {
	for _, name := range []string{"aws-p5-44nic-synthetic", "bonds", "cpu-2eth", "dgx-h100", "dgx-h100-port-down", "gb200-tray", "lab-softrdma", "sriov-pf-vf", "v100-8gpu"} {
		host := fixturetest.Topology(t, name)
		a, b, other := newSyntheticLoad(host, 1), newSyntheticLoad(host, 1), newSyntheticLoad(host, 2)
		before := a.at(0)
		errors, flaps, busy, idle, differs := 0, 0, 0, 0, false
		for sec := 1; sec <= 200; sec++ {
			at := time.Duration(sec) * time.Second
			now := a.at(at)
			if sec%50 == 0 && !reflect.DeepEqual(now, b.at(at)) {
				t.Fatalf("%s: not the same for the same seed", name)
			}
			differs = differs || !reflect.DeepEqual(now.Ports, other.at(at).Ports)
			r := counters.Between(before, now)
			for i := range now.Ports {
				p := &now.Ports[i]
				x := r.Ports[p.ID]
				if x.SentBytesPerSec == nil || x.ReceivedBytesPerSec == nil {
					t.Fatalf("%s, %d s: a counter of %s went back", name, sec, p.ID)
				}
				if before.Ports[i].State != p.State && (p.State == "DOWN" || p.State == "down") {
					flaps++
				}
				errors += len(x.Errors)
				if share, known := counters.Share(x.SentBytesPerSec, p.BytesPerSec); known && share > 1.001 {
					t.Fatalf("%s, %d s: %s carries %.2f of its line", name, sec, p.ID, share)
				} else if known && share > 0.1 {
					busy++
				} else if known {
					idle++
				}
			}
			if sec%50 == 0 {
				if err := valid(now); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			before = now
		}
		up := 0
		for i := range a.ports {
			if a.ports[i].up {
				up++
			}
		}
		if errors == 0 || idle == 0 || busy == 0 || !differs || up > 1 && flaps != 2 {
			t.Errorf("%s: %d ports up: errors %d, flaps %d, busy %d, idle %d, another seed differs: %v", name, up, errors, flaps, busy, idle, differs)
		}
	}
}

// valid says whether a sample can be written and read.
func valid(s *counters.Sample) error {
	data, err := (&record.Record{Source: record.SourceCounters, Counters: s}).Encode()
	if err == nil {
		_, err = record.Decode(data)
	}
	return err
}

func TestSyntheticSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := play(t, Synthetic(Options{Start: record.Start{Host: "fixture:x"}, Discover: looking}, 7), func(*heard) { time.Sleep(3500 * time.Millisecond) })
		if s := h.records[0].Start; s == nil || s.Synthetic != "counters (seed 7)" || s.Host != "fixture:x" {
			t.Errorf("start %+v", s)
		}
		if n := len(h.news(record.SourceCounters)); n != 4 {
			t.Errorf("%d samples", n)
		}
	})
}

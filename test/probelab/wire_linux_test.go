package probelab

import (
	"path/filepath"
	"testing"
	"time"
)

// watch counts the bytes that hosts send on rail 0, as the switches see them, until stop
// is called.
func (l *lab) watch(hosts ...int) (stop func() [][]look) {
	end, ended := make(chan struct{}), make(chan [][]look)
	go func() {
		began := time.Now()
		seen := make([][]look, len(hosts))
		for {
			for i, h := range hosts {
				link, err := l.here.LinkByName(l.switchPort(h, 0))
				if err != nil {
					l.t.Error(err)
					break
				}
				seen[i] = append(seen[i], look{time.Since(began), link.Attrs().Statistics.RxBytes})
			}
			select {
			case <-end:
				ended <- seen
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() [][]look {
		close(end)
		return <-ended
	}
}

// look is what a counter had at a time.
type look struct {
	at    time.Duration
	bytes uint64
}

// busiest is the most that was sent in any span of at least so long, in bytes per second.
func busiest(seen []look, span time.Duration) (most float64) {
	from := 0
	for to := range seen {
		for from < to && seen[to].at-seen[from+1].at >= span {
			from++
		}
		if took := seen[to].at - seen[from].at; took >= span {
			most = max(most, float64(seen[to].bytes-seen[from].bytes)/took.Seconds())
		}
	}
	return most
}

// No wire carries more than a rate limit.
func TestRateLimit(t *testing.T) {
	if !alone {
		t.Skip("TOPOCTL_LANES is not \"alone\": rates need the machine for themselves")
	}
	l := newLab(t, 2, 1, labMbit)
	const limit = 10 // Mbit/s
	stop := l.watch(0, 1)
	report := filepath.Join(t.TempDir(), "report.json")
	x := start(t, l.probing(short("--rate-limit", "10Mb/s", "--duration", "1s", "--report", report)...)...).wait(t)
	seen := stop()
	t.Logf("exit code %d:\n%s%s", x.code, x.out.String(), x.errors.String())
	if x.code != 0 && x.code != 3 { // 3: noise
		t.Errorf("exit code %d", x.code)
	}
	for i, s := range seen {
		got := busiest(s, 500*time.Millisecond) * 8 / 1e6
		t.Logf("n%d sends at most %.1f Mbit/s in half a second", i+1, got)
		if got > 1.3*limit || got < 0.3*limit {
			t.Errorf("n%d sent %.1f Mbit/s, want %d at most", i+1, got, limit)
		}
	}
	for _, p := range readReport(t, report).Results {
		if b := p.Judged(); b == nil || float64(b.MeanBytesPerSec)*8/1e6 > 1.1*limit {
			t.Errorf("%s: %+v", p.ID, b)
		}
	}
}

// The pairs of a round are measured at the same time: the wires that they load are loaded
// together.
func TestBarrier(t *testing.T) {
	if !alone {
		t.Skip("TOPOCTL_LANES is not \"alone\": rates need the machine for themselves")
	}
	l := newLab(t, 4, 1, labMbit)
	stop := l.watch(0, 2)
	x := start(t, l.probing(short("--duration", "1s", "--min-samples", "8", "--max-samples", "8", "--select", "n1>n2", "--select", "n3>n4")...)...).wait(t)
	seen := stop()
	t.Logf("exit code %d:\n%s%s", x.code, x.out.String(), x.errors.String())
	both, either := 0, 0
	for k := 1; k < min(len(seen[0]), len(seen[1])); k++ {
		busy := 0
		for _, s := range seen {
			if rate := float64(s[k].bytes-s[k-1].bytes) / (s[k].at - s[k-1].at).Seconds(); rate > labMbit*1e6/8/4 {
				busy++
			}
		}
		both, either = both+busy/2, either+(busy+1)/2
	}
	t.Logf("%d of %d looks see both wires busy", both, either)
	if either < 20 || float64(both) < 0.8*float64(either) {
		t.Errorf("both wires are busy in %d of the %d looks that see one busy", both, either)
	}
}

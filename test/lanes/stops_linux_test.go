package lanes

import (
	"slices"
	"sync"
	"time"

	"github.com/topoctl/topoctl/internal/kv"
)

// stops are moments in which this machine stood still, from and to in Unix time in ns: what
// shares its processors with it takes them for up to half a second, and nothing can be told of
// what was under way then.
type stops [][2]int64

// stopped is how late a timer is at least that says so.
const stopped = 20 * time.Millisecond

// watch looks for them. It is for the far process, so that nothing counts which only keeps
// the one that drives.
type watch struct {
	stop chan struct{}
	over sync.WaitGroup
	list stops
}

func watchStops() *watch {
	w := &watch{stop: make(chan struct{})}
	last := time.Now()
	w.over.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
			now := time.Now()
			if now.Sub(last) > stopped {
				w.list = append(w.list, [2]int64{last.UnixNano(), now.UnixNano()})
			}
			last = now
		}
	})
	return w
}

// end ends the watch and tells what it saw.
func (w *watch) end() stops {
	close(w.stop)
	w.over.Wait()
	return w.list
}

// meet says which requests met one: it came while they were under way, or, where requests come
// whatever became of those before them, while something was that they may have waited for. Times
// are since began.
func (s stops) meet(began time.Time, times []kv.Times, closedLoop bool) []bool {
	order := make([]int, len(times))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(times[a].SentNS - times[b].SentNS) })
	met := make([]bool, len(times))
	for i := 0; i < len(order); {
		from, to, last := times[order[i]].SentNS, end(&times[order[i]]), i+1
		for ; !closedLoop && last < len(order) && times[order[last]].SentNS <= to; last++ {
			to = max(to, end(&times[order[last]]))
		}
		hit := slices.ContainsFunc(s, func(x [2]int64) bool {
			return x[0]-began.UnixNano() < to && from < x[1]-began.UnixNano()+int64(stopped)
		})
		for ; i < last; i++ {
			met[order[i]] = hit
		}
	}
	return met
}

// end is when a request had its answer.
func end(t *kv.Times) int64 { return t.TokensNS[len(t.TokensNS)-1] }

package lanes

import (
	"slices"
	"sync"
	"time"

	"github.com/topoctl/topoctl/internal/kv"
)

// stops are the moments in which this machine stood still: what shares its processors with it
// takes them for up to half a second, and nothing can be told of what was under way then.
type stops struct {
	stop chan struct{}
	over sync.WaitGroup
	list [][2]int64 // from and to, in ns since the watch began
}

// stopped is how late a timer is at least that says so.
const stopped = 20 * time.Millisecond

func watchStops() *stops {
	s := &stops{stop: make(chan struct{})}
	began := time.Now()
	s.over.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for last := began; ; {
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
			now := time.Now()
			if now.Sub(last) > stopped {
				s.list = append(s.list, [2]int64{int64(last.Sub(began)), int64(now.Sub(began))})
			}
			last = now
		}
	})
	return s
}

// end ends the watch.
func (s *stops) end() {
	close(s.stop)
	s.over.Wait()
}

// meet says which requests met one: it came while they were under way, or, where requests come
// whatever became of those before them, while something was that they may have waited for.
func (s *stops) meet(times []kv.Times, closedLoop bool) []bool {
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
		hit := slices.ContainsFunc(s.list, func(x [2]int64) bool { return x[0] < to && from < x[1]+int64(stopped) })
		for ; i < last; i++ {
			met[order[i]] = hit
		}
	}
	return met
}

// end is when a request had its answer.
func end(t *kv.Times) int64 { return t.TokensNS[len(t.TokensNS)-1] }

package kv

// Load is how fast requests arrive, of workloads in which they arrive one after the other, and
// whether the system keeps up.
type Load struct {
	ArrivalsPerSec float64
	// GrowingWait is what requests wait for, ForPrefill or ForMemory, where they arrive faster than
	// they are served: waiting is more than half of TTFT and grows with the arrivals. "" otherwise.
	GrowingWait string
}

// What requests wait for.
const (
	ForPrefill = "prefill"   // an instance that computes the prompt
	ForMemory  = "KV memory" // of the decode side
)

const (
	// fewest is the number of requests below which nothing is said of growth.
	fewest = 8
	// A queue that grows steadily from 0 makes the last quarter of requests wait 3.5 times as long
	// as the first half; a queue that does not grow, as long on average.
	growth = 2
	// lag is how far the last quarter lags behind its arrivals, in parts of all the time that
	// requests arrive: random queues of a system that keeps up are shorter in all but short runs.
	lag = 0.03
)

// load judges the waits of requests, which were added in the order of their arrival. It is nil where
// requests do not arrive over time: all at once, or when others end.
func (s *samples) load(w *Workload) *Load {
	if w.Concurrency > 0 || len(w.Requests) < 2 {
		return nil
	}
	spanNS := w.Requests[len(w.Requests)-1].ArriveNS - w.Requests[0].ArriveNS
	if spanNS <= 0 {
		return nil
	}
	l := &Load{ArrivalsPerSec: float64(len(w.Requests)-1) / (float64(spanNS) / 1e9)}
	n := len(s.queue)
	if n < fewest {
		return l
	}
	waits := make([]int64, n)
	for i := range waits {
		waits[i] = s.queue[i] + s.memoryWait[i]
	}
	early, late := meanOf(waits[:n/2]), meanOf(waits[n-n/4:])
	if 2*meanOf(waits)*float64(n) > float64(s.all) && late > growth*early && late > lag*float64(spanNS) {
		l.GrowingWait = ForPrefill
		if 2*meanOf(s.memoryWait[n-n/4:]) > late {
			l.GrowingWait = ForMemory
		}
	}
	return l
}

func meanOf(ns []int64) float64 {
	sum := 0.
	for _, v := range ns {
		sum += float64(v)
	}
	return sum / float64(len(ns))
}

package replay

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"
)

// loop is the serving system's clock, and the one goroutine that owns its state: it runs due
// alarms and posted functions one after the other. The time stands still while one of them runs.
type loop struct {
	startedAt time.Time
	nowNS     int64
	alarms    alarms
	count     int64

	mu     sync.Mutex
	posted []item
	wake   chan struct{}

	timersLate, postedLate []int64
}

// item is something to run.
type item struct {
	atNS     int64
	order    int64 // of asking
	inFuture bool  // it was asked for a time in the future
	run      func()
}

func newLoop() *loop { return &loop{wake: make(chan struct{}, 1)} }

// begin sets the clock to 0.
func (l *loop) begin() { l.startedAt, l.nowNS = time.Now(), 0 }

// sinceNS is the real time. Any goroutine may call it.
func (l *loop) sinceNS() int64 { return int64(time.Since(l.startedAt)) }

// NowNS implements serve.Clock.
func (l *loop) NowNS() int64 { return l.nowNS }

// At implements serve.Clock.
func (l *loop) At(atNS int64, run func()) {
	l.count++
	heap.Push(&l.alarms, item{atNS: max(atNS, l.nowNS), order: l.count, inFuture: atNS > l.nowNS, run: run})
}

// post runs something on the loop. Any goroutine may call it; it does not wait.
func (l *loop) post(run func()) {
	l.mu.Lock()
	l.posted = append(l.posted, item{atNS: l.sinceNS(), run: run})
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run runs alarms and posted functions until over is true or ctx ends.
func (l *loop) run(ctx context.Context, over *bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l.runPosted(ctx)
		for !*over && ctx.Err() == nil && l.due() {
			x := heap.Pop(&l.alarms).(item)
			if x.inFuture {
				l.timersLate = append(l.timersLate, l.nowNS-x.atNS)
			}
			x.run()
		}
		if *over || ctx.Err() != nil {
			return
		}
		wait := time.Hour
		if len(l.alarms) > 0 {
			wait = time.Duration(l.alarms[0].atNS - l.sinceNS())
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-l.wake:
		case <-ctx.Done():
		}
	}
}

// due says whether an alarm is due, and advances the time if so.
func (l *loop) due() bool {
	now := l.sinceNS()
	if len(l.alarms) == 0 || l.alarms[0].atNS > now {
		return false
	}
	l.nowNS = now
	return true
}

// runPosted runs what was posted. Once ctx has ended it runs nothing more: transfers that were
// stopped by it would count as failed.
func (l *loop) runPosted(ctx context.Context) {
	l.mu.Lock()
	news := l.posted
	l.posted = nil
	l.mu.Unlock()
	for _, x := range news {
		if ctx.Err() != nil {
			return
		}
		l.nowNS = l.sinceNS()
		l.postedLate = append(l.postedLate, l.nowNS-x.atNS)
		x.run()
	}
}

// alarms is a heap of what is to run, the earliest first.
type alarms []item

func (a alarms) Len() int { return len(a) }
func (a alarms) Less(i, j int) bool {
	return a[i].atNS < a[j].atNS || a[i].atNS == a[j].atNS && a[i].order < a[j].order
}
func (a alarms) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)   { *a = append(*a, x.(item)) }
func (a *alarms) Pop() any {
	last := (*a)[len(*a)-1]
	(*a)[len(*a)-1] = item{}
	*a = (*a)[:len(*a)-1]
	return last
}

// Late is how late things ran.
type Late struct {
	Count               int
	P50NS, P99NS, MaxNS int64
}

func lateness(ns []int64) Late {
	n := len(ns)
	if n == 0 {
		return Late{}
	}
	slices.Sort(ns)
	return Late{Count: n, P50NS: ns[(n-1)/2], P99NS: ns[(n-1)*99/100], MaxNS: ns[n-1]}
}

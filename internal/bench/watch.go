package bench

import (
	"sync"
	"time"
)

// watcher reports the progress of a run.
type watcher struct {
	mu       sync.Mutex
	what     string
	n, steps int
	left     time.Duration // of the steps after the current one
	until    time.Time     // the end of the current one
	meter    *meter
	last     int64 // its bytes at the last tick
}

// start reports every Tick, until the function that it returns is called.
func (w *watcher) start(tell func(Progress)) (stop func()) {
	if tell == nil {
		return func() {}
	}
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(Tick)
		defer tick.Stop()
		for at := time.Now(); ; {
			select {
			case <-over:
				return
			case now := <-tick.C:
				tell(w.progress(now, now.Sub(at)))
				at = now
			}
		}
	})
	return func() {
		close(over)
		running.Wait()
	}
}

func (w *watcher) plan(steps int, total time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps, w.left = steps, total
}

// step starts a step.
func (w *watcher) step(what string, takes time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.what, w.meter, w.last = what, nil, 0
	w.n++
	w.left -= takes
	w.until = time.Now().Add(takes)
}

// follow takes rates from a meter.
func (w *watcher) follow(m *meter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.meter, w.last = m, 0
}

func (w *watcher) progress(now time.Time, since time.Duration) Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := Progress{What: w.what, Step: w.n, Steps: w.steps, Left: max(0, w.left+max(0, w.until.Sub(now)))}
	if w.meter != nil {
		bytes := w.meter.bytesSoFar()
		p.BytesPerSec = sample{bytes: bytes - w.last, elapsed: min(since, now.Sub(w.meter.start))}.bytesPerSec()
		w.last = bytes
	}
	return p
}

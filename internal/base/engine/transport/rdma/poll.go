package rdma

import "runtime"

// idlePolls is how often the poller looks at an empty queue before it sleeps: some
// 10 µs, less than waking up costs.
const idlePolls = 20

// poll takes the device's completions and sleeps on the completion channel while there
// are none.
func (d *device) poll() {
	left := 0
	for !d.stop.Load() {
		n, err := d.take(false)
		switch {
		case err != nil:
			d.lose(&PortError{Local: d.name, What: "completions cannot be taken", Advice: "see the kernel log; the device is opened again", Err: err})
			d.sleepUntilStopped()
			return
		case n > 0:
			left = idlePolls
		case left > 0:
			left--
			runtime.Gosched()
		default:
			n, err := d.take(true) // what came before it was armed gives no event
			if err == nil && n == 0 {
				err = d.cq.Wait()
			}
			if err != nil && !d.stop.Load() {
				d.lose(&PortError{Local: d.name, What: "completions cannot be waited for", Advice: "see the kernel log; the device is opened again", Err: err})
				d.sleepUntilStopped()
				return
			}
		}
	}
}

// sleepUntilStopped keeps the poller for the device's close, which wakes it.
func (d *device) sleepUntilStopped() {
	for !d.stop.Load() {
		if err := d.cq.Wait(); err != nil {
			return
		}
	}
}

// take takes some completions and reports them, after it has armed the queue where that
// is wanted.
func (d *device) take(arm bool) (int, error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	if arm {
		if err := d.cq.Arm(); err != nil {
			return 0, err
		}
	}
	return d.takeLocked()
}

// takeLocked is for who has the turn.
func (d *device) takeLocked() (int, error) {
	stale := d.stale.Swap(0)
	n, err := d.cq.Poll(d.wcs[:])
	if n == len(d.wcs) || err != nil {
		d.stale.Add(stale) // there may be more
	} else if stale > 0 {
		d.emptied(stale)
	}
	if n == 0 || err != nil {
		return 0, err
	}
	d.qmu.RLock()
	var held *conn // is locked
	for i := range d.wcs[:n] {
		s := d.slots[uint32(d.wcs[i].ID>>32)]
		if s == nil {
			continue // its queue pair was destroyed
		}
		if s.c != held {
			if held != nil {
				held.mu.Unlock()
			}
			held = s.c
			held.mu.Lock()
			d.touched = append(d.touched, held)
		}
		s.ended(&d.wcs[i])
	}
	if held != nil {
		held.mu.Unlock()
	}
	d.qmu.RUnlock()
	for i, c := range d.touched {
		c.mu.Lock()
		c.deliver()
		c.mu.Unlock()
		d.touched[i] = nil
	}
	d.touched = d.touched[:0]
	return n, nil
}

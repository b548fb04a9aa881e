package rdma

import (
	"fmt"
	"time"

	"github.com/topoctl/topoctl/internal/base/verbs"
)

// newQP makes a queue pair within all budgets. Its depth is counted until freeQP.
func (d *device) newQP(depth, sge, inline int) (*verbs.QP, error) {
	t := d.t
	d.tidy(depth)
	t.mu.Lock()
	switch {
	case d.gone != nil:
		t.mu.Unlock()
		return nil, d.gone
	case t.qps >= t.o.MaxQueuePairs:
		t.mu.Unlock()
		return nil, &PortError{Local: d.name, What: fmt.Sprintf("all %d queue pairs are in use", t.o.MaxQueuePairs), Err: ErrBudget,
			Advice: "raise the limit, or use fewer lanes or peers"}
	case d.used+depth > d.room:
		t.mu.Unlock()
		return nil, &PortError{Local: d.name, What: fmt.Sprintf("the completion queue of %d entries has no room for a queue pair of %d", d.room, depth),
			Err: ErrBudget, Advice: "use a smaller depth, or fewer lanes or peers"}
	}
	t.qps++
	d.used += depth
	d.qps.Add(1)
	t.mu.Unlock()
	qp, err := d.pd.NewQP(d.cq, verbs.QPOptions{MaxSend: depth, MaxSGE: sge, MaxInline: inline})
	if err != nil {
		d.uncount(depth)
		return nil, resourceError(err, d.name, "no queue pair")
	}
	return qp, nil
}

func (d *device) uncount(depth int) {
	d.t.mu.Lock()
	d.t.qps--
	d.used -= depth
	d.t.mu.Unlock()
	d.qps.Done()
}

// freeQP destroys a queue pair, which may take long. With an error it is still there.
func (d *device) freeQP(qp *verbs.QP, depth int) error {
	if err := qp.Destroy(); err != nil {
		return resourceError(err, d.name, "a queue pair cannot be destroyed")
	}
	d.stale.Add(int64(depth))
	d.uncount(0)
	return nil
}

// tidy takes what is in the completion queue if it may have no room for a queue pair, and
// nobody else takes it.
func (d *device) tidy(depth int) {
	d.t.mu.Lock()
	full := d.used+depth > d.room
	d.t.mu.Unlock()
	for full && d.stale.Load() > 0 && d.turn.TryLock() {
		n, err := d.takeLocked()
		d.turn.Unlock()
		full = n > 0 && err == nil
	}
}

// emptied gives back the entries of queue pairs that were gone before the completion
// queue was seen empty.
func (d *device) emptied(stale int64) {
	d.t.mu.Lock()
	d.used -= int(stale)
	d.t.mu.Unlock()
}

// destroyTries is how often a transport that is being closed tries to destroy a queue pair.
const destroyTries = 10

// retry pauses after the nth try (0: the first) to destroy a queue pair, and says whether
// there is another. There is always one while the transport is open: what the queue pair
// may touch is not free before.
func (t *Transport) retry(n int) bool {
	if n >= destroyTries && t.ctx.Err() != nil {
		return false
	}
	time.Sleep(time.Duration(min(n+1, destroyTries)) * 10 * time.Millisecond)
	return true
}

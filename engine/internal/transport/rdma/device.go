//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/verbs"
)

// device is an RDMA device that is open.
type device struct {
	t          *Transport
	name       string
	generation uint32
	guid       uint64
	v          *verbs.Device
	pd         *verbs.PD
	cq         *verbs.CQ
	limits     verbs.DeviceLimits
	// unprovenReads: a READ that the device calls done may not be, see proveRead.
	unprovenReads bool
	ports         atomic.Pointer[[]*port]

	ready bool  // under the transport's mutex: every region is registered
	gone  error // under the transport's mutex: why it is being closed
	// ctx ends when it is being closed.
	ctx    context.Context
	cancel context.CancelCauseFunc

	entries sync.Mutex
	known   map[*memory.Region]*entry
	over    bool     // nothing is registered any more
	mrs     sync.Map // of *memory.Region to *mr: what is registered

	turn    sync.Mutex // held while completions are taken
	wcs     [verbs.MaxBatch]verbs.WC
	touched []*conn
	stop    atomic.Bool
	reading

	qmu    sync.RWMutex
	slots  map[uint32]*slot // by serial
	serial uint32
	used   int // entries of the completion queue, under the transport's mutex
	room   int
	// stale are those of used whose queue pairs are gone: some devices keep what these
	// have completed until it is taken.
	stale atomic.Int64

	qps sync.WaitGroup // queue pairs that are not destroyed
}

// attempt is how opening a device went.
type attempt struct {
	err      error
	closeErr error
	next     time.Time
	pause    time.Duration
}

const maxPause = 30 * time.Second

// scan opens devices that are new and gives up those that are gone.
func (t *Transport) scan(now time.Time) error {
	t.scanning.Lock()
	defer t.scanning.Unlock()
	infos, err := t.list()
	if err != nil {
		return err
	}
	there := map[string]uint64{}
	for _, i := range infos {
		if t.o.wants(i.Name) && validDevice(i.Name) {
			there[i.Name] = i.GUID
		}
	}
	t.mu.Lock()
	for name, d := range t.devices {
		if guid, ok := there[name]; !ok || guid != d.guid {
			t.retire(d, &PortError{Local: name, What: "the device was removed", Advice: "it is opened again when it comes back"})
		}
	}
	maps.DeleteFunc(t.attempts, func(name string, _ *attempt) bool {
		_, ok := there[name]
		return !ok
	})
	var open []string
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if t.closed || t.devices[name] != nil || t.isClosing(name) {
			continue
		}
		if a := t.attempts[name]; a == nil || !now.Before(a.next) {
			open = append(open, name)
		}
	}
	t.mu.Unlock()
	var wg sync.WaitGroup
	for _, name := range open {
		wg.Go(func() { t.try(name, there[name], now) })
	}
	wg.Wait()
	return nil
}

// try opens a device and notes how that went.
func (t *Transport) try(name string, guid uint64, now time.Time) {
	d, err := t.open(name, guid)
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.attempts[name]
	if a == nil {
		a = &attempt{}
		t.attempts[name] = a
	}
	a.err = err
	if err != nil {
		a.pause = min(max(2*a.pause, t.o.Watch), maxPause)
		a.next = now.Add(a.pause)
		return
	}
	a.pause, a.next = 0, time.Time{}
	if d.gone == nil {
		d.ready = true
	}
}

// open opens a device and registers every region with it.
func (t *Transport) open(name string, guid uint64) (*device, error) {
	var g [4]byte
	if _, err := rand.Read(g[:]); err != nil {
		return nil, err
	}
	v, err := t.lib.Open(name)
	if err != nil {
		return nil, resourceError(err, name, "the device cannot be opened")
	}
	d := &device{
		t: t, name: name, guid: guid, v: v, limits: v.Limits(), generation: binary.BigEndian.Uint32(g[:]),
		unprovenReads: v.Limits().VendorID == verbs.SoftRoCE,
		known:         map[*memory.Region]*entry{}, slots: map[uint32]*slot{},
	}
	d.ctx, d.cancel = context.WithCancelCause(t.ctx)
	if err := d.setUp(); err != nil {
		return nil, errors.Join(err, d.tearDown())
	}
	t.mu.Lock()
	t.devices[name] = d
	regions := slices.Collect(maps.Keys(t.regions))
	t.mu.Unlock()
	d.t.wg.Go(d.poll)
	d.t.wg.Go(d.listen)
	for _, r := range regions {
		if err := d.register(r); err != nil {
			t.mu.Lock()
			t.retire(d, err)
			t.mu.Unlock()
			return nil, err
		}
		t.dropIfClosed(d, r)
	}
	return d, nil
}

func (d *device) setUp() error {
	d.room = min(d.limits.MaxCQE, maxEntries, d.t.o.MaxQueuePairs*(d.t.o.Depth+1))
	if d.limits.MaxQPWR < 3 || d.limits.MaxSGE < 1 || d.room < 8 || d.limits.MaxQPReadAtomic < 1 || d.limits.MaxInitReadDepth < 1 {
		return &PortError{Local: d.name, What: fmt.Sprintf("the device is too small: %+v", d.limits), Advice: "reliable connections with RDMA READ are needed"}
	}
	var err error
	if d.pd, err = d.v.AllocPD(); err != nil {
		return resourceError(err, d.name, "no protection domain")
	}
	if d.cq, err = d.v.NewCQ(d.room); err != nil {
		return resourceError(err, d.name, "no completion queue")
	}
	d.wake = d.cq.LeaderWake
	if err = d.readPorts(); err != nil {
		return resourceError(err, d.name, "its ports cannot be read")
	}
	return nil
}

// retire gives a device up: its connections end now, and it is closed in the
// background, which can take long. The transport's mutex is held.
func (t *Transport) retire(d *device, why error) {
	if t.devices[d.name] != d {
		return
	}
	delete(t.devices, d.name)
	t.closing[d] = true
	d.ready = false
	if why == nil {
		why = &PortError{Local: d.name, What: "the transport is closed"}
	}
	d.gone = why
	d.cancel(why)
	t.wg.Go(func() {
		err := d.close(why)
		t.mu.Lock()
		defer t.mu.Unlock()
		if err == nil {
			delete(t.closing, d)
			return
		}
		t.closing[d] = false
		if a := t.attempts[d.name]; a != nil {
			a.closeErr = pkgerr.Errorf("rdma", "%s: closing the device: %w", d.name, err)
		}
	})
}

// isClosing says whether a device of that name is on its way out. The mutex is held.
func (t *Transport) isClosing(name string) bool {
	for d, busy := range t.closing {
		if busy && d.name == name {
			return true
		}
	}
	return false
}

// allDevices are those that may know a region, those that are being closed as well.
// The mutex is held.
func (t *Transport) allDevices() []*device {
	return slices.AppendSeq(slices.Collect(maps.Values(t.devices)), maps.Keys(t.closing))
}

// lose gives the device up.
func (d *device) lose(why error) {
	d.t.mu.Lock()
	d.t.retire(d, why)
	d.t.mu.Unlock()
	d.t.changed()
}

// close ends everything that is on the device.
func (d *device) close(why error) error {
	for _, c := range d.t.conns(d) {
		c.lose(why)
	}
	var wg sync.WaitGroup
	for _, p := range d.t.ends.Select(func(p *passive) bool { return p.dev == d }) {
		wg.Go(p.endForGood)
	}
	wg.Wait()
	d.qps.Wait()
	d.stop.Store(true)
	d.cq.Wake()
	d.cq.LeaderWake()
	return d.tearDown()
}

// tearDown closes what there is.
func (d *device) tearDown() error {
	d.cancel(nil)
	err := d.deregisterAll()
	if d.cq != nil {
		d.turn.Lock() // nobody polls
		err = errors.Join(err, d.cq.Close())
		d.turn.Unlock()
	}
	if d.pd != nil {
		err = errors.Join(err, d.pd.Close())
	}
	return errors.Join(err, d.v.Close())
}

// listen takes asynchronous events.
func (d *device) listen() {
	for {
		e, err := d.v.NextEvent()
		if err != nil {
			if !errors.Is(err, verbs.ErrClosed) {
				d.lose(&PortError{Local: d.name, What: "its events cannot be read", Advice: "see the kernel log", Err: err})
			}
			return
		}
		d.event(e)
	}
}

func (d *device) event(e verbs.Event) {
	switch e.Type {
	case verbs.EventDeviceFatal, verbs.EventCQErr:
		d.lose(eventError(e.Type, d.name, ""))
	case verbs.EventPortErr, verbs.EventPortActive, verbs.EventLIDChange, verbs.EventPKeyChange,
		verbs.EventGIDChange, verbs.EventSMChange, verbs.EventClientRereg:
		if e.Type == verbs.EventPortErr {
			for _, c := range d.t.conns(d) {
				if c.local.number == e.Port {
					c.lose(eventError(e.Type, c.local.String(), c.remote.String()))
				}
			}
		}
		d.reread()
	case verbs.EventQPFatal, verbs.EventQPAccessErr, verbs.EventQPRequestErr:
		if c := d.connOf(e.QPNum); c != nil {
			c.lose(eventError(e.Type, c.local.String(), c.remote.String()))
		} else if e.Type != verbs.EventQPFatal {
			d.t.refused.Add(memory.ErrDenied)
		}
	}
}

// connOf finds the active end that has a queue pair.
func (d *device) connOf(number uint32) *conn {
	d.qmu.RLock()
	defer d.qmu.RUnlock()
	for _, s := range d.slots {
		if s.number == number {
			return s.c
		}
	}
	return nil
}

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

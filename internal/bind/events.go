package bind

import "sync"

// events are the descriptors that wake loops: they become readable when a batch has ended, and when a notification
// or a call has come.
type events struct {
	mu  sync.Mutex
	fds map[int32]int32 // those of callers to our own of the same event; nil until there is one
}

// EventFD makes a descriptor that wakes a loop, an eventfd of the kernel. It is the caller's until CloseEventFD; after
// Close it is only the caller's.
func (e *Engine) EventFD() (int32, error) {
	own, fd, err := newEvent()
	if err != nil {
		return 0, fail(Failed, "event descriptor: %w", err)
	}
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	v := &e.events
	v.mu.Lock()
	if closed {
		v.mu.Unlock()
		closeEvent(own)
		closeEvent(fd)
		return 0, errClosed
	}
	first := v.fds == nil
	if first {
		v.fds = map[int32]int32{}
	}
	v.fds[fd] = own
	v.mu.Unlock()
	if first {
		e.watchNotifications()
		for _, b := range e.batches.All() {
			v.watch(e, b)
		}
	}
	v.signal() // what came before
	return fd, nil
}

// CloseEventFD closes a descriptor of EventFD.
func (e *Engine) CloseEventFD(fd int32) error {
	v := &e.events
	v.mu.Lock()
	defer v.mu.Unlock()
	own, ok := v.fds[fd]
	if !ok {
		return fail(NoHandle, "no event descriptor %d", fd)
	}
	delete(v.fds, fd)
	closeEvent(own)
	closeEvent(fd)
	return nil
}

func (v *events) signal() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, own := range v.fds {
		setEvent(own)
	}
}

// watch signals the end of a batch, where anybody waits for events.
func (v *events) watch(e *Engine, b *batch) {
	v.mu.Lock()
	wanted := v.fds != nil
	v.mu.Unlock()
	if !wanted {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.tasks.Go(func() {
			<-b.Done()
			v.signal()
		})
	}
}

// close is the end of the engine, which is signalled, too.
func (v *events) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, own := range v.fds {
		setEvent(own)
		closeEvent(own)
	}
	v.fds = map[int32]int32{}
}

//go:build cgo && linux && (amd64 || arm64)

package verbs

// #include "calls.h"
import "C"

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// channel is how two sleep for the events of one completion queue, its owner and a leader.
// An event would wake both of them, and a thread that wakes for nothing costs more than
// taking a completion. So the owner sleeps in Go's net poller on an epoll set, which has
// the completion channel in it while nobody leads.
type channel struct {
	name    string
	owner   *waiter
	fd      int // the completion channel, in the set
	in, out func(set uintptr)
	err     error // of in and out, which the leader calls

	// The set alone does not keep the owner from a leader's events: a wait that is about to
	// begin, or was woken for an older event, looks at the channel before it sleeps.
	taking sync.Mutex
	led    bool

	// The leader's thread sleeps in the kernel, as a program in C does: on its way through
	// the net poller Go's scheduler puts all to sleep, its monitor too, and wakes them again.
	leading sync.Mutex // one sleeper at a time; close waits for it
	ended   atomic.Bool
	mu      sync.RWMutex // held for writing to close wake
	wake    int          // an eventfd, -1 closed
}

func newChannel(fd int, name string) (*channel, error) {
	c := &channel{name: name, fd: fd}
	c.in = func(set uintptr) { c.err = c.control(int(set), unix.EPOLL_CTL_ADD) }
	c.out = func(set uintptr) { c.err = c.control(int(set), unix.EPOLL_CTL_DEL) }
	err := unix.SetNonblock(fd, true)
	if err == nil {
		c.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err != nil {
		return nil, pkgerr.Errorf("verbs", "%s: %w", name, err)
	}
	set, err := c.newSet()
	if err == nil {
		c.owner, err = waiterOn(set, name)
	}
	if err != nil {
		_ = unix.Close(c.wake)
		return nil, pkgerr.Errorf("verbs", "%s: an epoll set: %w", name, err)
	}
	return c, nil
}

func (c *channel) newSet() (int, error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if err = unix.SetNonblock(set, true); err == nil {
		err = c.control(set, unix.EPOLL_CTL_ADD)
	}
	if err != nil {
		_ = unix.Close(set)
	}
	return set, err
}

func (c *channel) control(set, op int) error {
	return unix.EpollCtl(set, op, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)})
}

// setLed gives the channel's events to a leader, or back to the owner, whom the set wakes
// where one is waiting.
func (c *channel) setLed(led bool) error {
	how := c.in
	if led {
		how = c.out
	}
	before := c.swapLed(led)
	if err := c.owner.raw.Control(how); err != nil {
		return ErrClosed
	}
	if c.err != nil {
		c.swapLed(before)
	}
	return c.err
}

func (c *channel) swapLed(led bool) (before bool) {
	c.taking.Lock()
	defer c.taking.Unlock()
	before, c.led = c.led, led
	return before
}

// take calls get, which does not wait, for the owner. While there is a leader it finds nothing.
func (c *channel) take(get func() C.int) C.int {
	c.taking.Lock()
	defer c.taking.Unlock()
	if c.led {
		return C.int(syscall.EAGAIN)
	}
	return get()
}

// lead calls take, which sleeps until there is an event or the eventfd can be read.
func (c *channel) lead(take func() C.int) (C.int, error) {
	c.leading.Lock()
	defer c.leading.Unlock()
	if c.ended.Load() {
		return 0, ErrClosed
	}
	rc := take()
	if c.ended.Load() {
		return 0, ErrClosed
	}
	return rc, nil
}

// wakeLeader ends a lead, this one or the next.
func (c *channel) wakeLeader() {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.wake >= 0 {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(c.wake, one[:]) // it fails where it was woken more often than anybody counts
	}
}

// close ends all waits for good and comes back when none is left.
func (c *channel) close() {
	c.owner.close()
	if c.ended.Swap(true) {
		return
	}
	c.wakeLeader()
	c.leading.Lock()
	defer c.leading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = unix.Close(c.wake)
	c.wake = -1
}

//go:build cgo && linux && (amd64 || arm64)

package verbs

// #include "calls.h"
import "C"

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// waiter sleeps in Go's net poller until a descriptor of the library can be read. It has
// a duplicate, so that the library's own can be closed by the library.
type waiter struct {
	name  string
	file  *os.File
	raw   syscall.RawConn
	mu    sync.Mutex // one sleeper at a time; close waits for it
	ended atomic.Bool
	woken atomic.Bool

	// take is the sleeper's, and rc is what it gave: with mu.
	take func() C.int
	rc   C.int
	read func(uintptr) bool // made once
}

func newWaiter(fd int, name string) (*waiter, error) {
	dup, err := duplicate(fd, name)
	if err != nil {
		return nil, err
	}
	return waiterOn(dup, name)
}

// duplicate gives a descriptor of the same open file, which does not block from now on.
func duplicate(fd int, name string) (int, error) {
	// The flag belongs to the open file, so the library's own reads do not block either.
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, pkgerr.Errorf("verbs", "%s: duplicating the descriptor: %w", name, err)
	}
	if err := unix.SetNonblock(dup, true); err != nil {
		_ = unix.Close(dup)
		return -1, pkgerr.Errorf("verbs", "%s: %w", name, err)
	}
	return dup, nil
}

// waiterOn sleeps on a descriptor that does not block, and is the waiter's from now on.
func waiterOn(fd int, name string) (*waiter, error) {
	w := &waiter{name: name, file: os.NewFile(uintptr(fd), name)}
	w.read = func(uintptr) bool {
		w.rc = w.take()
		return !again(w.rc)
	}
	// This fails where the net poller has refused the descriptor.
	err := w.file.SetReadDeadline(time.Time{})
	if err != nil {
		_ = w.file.Close()
		return nil, pkgerr.Errorf("verbs", "%s: its descriptor cannot be polled: %w", name, err)
	}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		_ = w.file.Close()
		return nil, pkgerr.Errorf("verbs", "%s: %w", name, err)
	}
	return w, nil
}

// again says whether a read found nothing.
func again(rc C.int) bool {
	return rc == C.int(syscall.EAGAIN) || rc == C.int(syscall.EINTR)
}

var errWoken = errors.New("woken")

// wait calls take until it finds something, sleeping in between, and gives what it gave.
// errWoken: wake was called; ErrClosed: close.
func (w *waiter) wait(take func() C.int) (rc C.int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.take = take
	for {
		if w.ended.Load() {
			return 0, ErrClosed
		}
		err := w.raw.Read(w.read)
		if err == nil {
			return w.rc, nil
		}
		if w.ended.Load() || errors.Is(err, os.ErrClosed) {
			return 0, ErrClosed
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, pkgerr.Errorf("verbs", "waiting for %s: %w", w.name, err)
		}
		// In this order no wake is lost: it sets the word before the deadline.
		_ = w.file.SetReadDeadline(time.Time{})
		if w.woken.Swap(false) {
			return 0, errWoken
		}
	}
}

// wake ends a wait, this one or the next.
func (w *waiter) wake() {
	w.woken.Store(true)
	_ = w.file.SetReadDeadline(time.Unix(1, 0))
}

// close ends all waits for good and comes back when none is left.
func (w *waiter) close() {
	if w.ended.Swap(true) {
		return
	}
	_ = w.file.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
}

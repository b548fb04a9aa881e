package bind

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// lastHandle is counted for the whole process, and never back: a handle of another engine, or of
// something that is gone, is no handle, rather than one of something else.
var lastHandle atomic.Int64

// Handles gives things numbers. The zero value is empty.
type Handles[T any] struct {
	mu sync.RWMutex
	m  map[int64]T
}

// Add gives a thing the next number, at least 1.
func (h *Handles[T]) Add(x T) int64 {
	n := lastHandle.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[int64]T{}
	}
	h.m[n] = x
	return n
}

// Get finds a thing.
func (h *Handles[T]) Get(n int64) (T, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	x, ok := h.m[n]
	return x, ok
}

// Remove takes a thing out, once.
func (h *Handles[T]) Remove(n int64) (T, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x, ok := h.m[n]
	delete(h.m, n)
	return x, ok
}

// Len is how many there are.
func (h *Handles[T]) Len() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.m)
}

// All are the things that there are.
func (h *Handles[T]) All() []T {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Values(h.m))
}

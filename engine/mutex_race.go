//go:build race

package engine

import (
	"sync"
	"sync/atomic"
)

// mutex is the engine's, with a place for tests to pause whoever has just released it:
// what an engine decides in one step and does in another must stand whatever comes between.
type mutex struct {
	sync.Mutex
	released atomic.Pointer[func()]
}

// Unlock releases the mutex.
func (m *mutex) Unlock() {
	m.Mutex.Unlock()
	if f := m.released.Load(); f != nil {
		(*f)()
	}
}

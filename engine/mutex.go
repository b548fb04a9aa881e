//go:build !race

package engine

import "sync"

// mutex is the engine's. Under the race detector it is one that tests can pause.
type mutex = sync.Mutex

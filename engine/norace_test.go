//go:build !race

package engine

import "sync"

const raceEnabled = false

// The engine's mutex has no place for pauses but in builds for the race detector.
var _ *sync.Mutex = (*mutex)(nil)

//go:build !linux

package discover

import (
	"testing"
	"time"
)

// fifo does nothing where there are none.
func fifo(*testing.T, string) {}

// cpuTime is not known.
func cpuTime() time.Duration { return 0 }

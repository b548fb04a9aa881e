//go:build !linux

package bench

import "time"

// processCPU is not known here: only Linux has clocks of other processes.
func processCPU(int) (time.Duration, bool) { return 0, false }

//go:build !unix

package lane

import (
	"context"
	"time"
)

// OwnCPU is the processor time that this process has taken, all threads together: for Lane.CPU if both
// ends are in it.
func OwnCPU(context.Context) (time.Duration, bool) { return 0, false }

//go:build !unix

package self

import (
	"context"
	"time"
)

// CPU is the processor time that this process has taken, of all its threads.
func CPU(context.Context) (time.Duration, bool) { return 0, false }

//go:build !unix

package lane

import (
	"context"
	"time"
)

// OwnCPU is not known here.
func OwnCPU(context.Context) (time.Duration, bool) { return 0, false }

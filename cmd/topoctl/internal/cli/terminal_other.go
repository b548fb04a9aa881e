//go:build !unix

package cli

import (
	"io"
	"os"
)

// terminal knows no terminals on this system: output is plain everywhere.
func terminal(*os.File) (columns, lines int, ok bool) { return 0, 0, false }

// hasShell knows no job control on this system.
func hasShell() bool { return false }

// readerGone knows nothing of pipes on this system: the next write tells.
func readerGone(io.Writer) bool { return false }

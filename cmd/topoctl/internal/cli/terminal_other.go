//go:build !unix

package cli

import "os"

// terminal knows no terminals on this system: output is plain everywhere.
func terminal(*os.File) (columns, lines int, ok bool) { return 0, 0, false }

// hasShell knows no job control on this system.
func hasShell() bool { return false }

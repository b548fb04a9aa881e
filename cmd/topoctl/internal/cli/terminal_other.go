//go:build !unix

package cli

import "os"

// terminal knows no terminals on this system: output is plain everywhere.
func terminal(*os.File) (columns int, ok bool) { return 0, false }

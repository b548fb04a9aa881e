//go:build unix

package transfer

import (
	"syscall"
)

// ownGroup puts a child into a process group of its own, so that the terminal's
// signals do not reach it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

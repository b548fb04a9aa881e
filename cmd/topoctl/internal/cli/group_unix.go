//go:build unix

package cli

import "syscall"

// ownGroup keeps a terminal's signals from a command: this process forwards them, once.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

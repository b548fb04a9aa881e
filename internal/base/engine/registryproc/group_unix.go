//go:build unix

package registryproc

import "syscall"

// ownGroup keeps the terminal's signals from the program, which ends when this process does.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

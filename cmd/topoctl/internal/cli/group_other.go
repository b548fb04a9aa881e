//go:build !unix

package cli

import "syscall"

// ownGroup is nothing where there are no process groups.
func ownGroup() *syscall.SysProcAttr { return nil }

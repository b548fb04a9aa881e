//go:build !linux

package vmlab

import "syscall"

func child() *syscall.SysProcAttr { return nil }

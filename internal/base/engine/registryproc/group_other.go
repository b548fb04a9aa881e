//go:build !unix

package registryproc

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }

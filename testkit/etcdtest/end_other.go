//go:build !linux

package etcdtest

import "syscall"

func endWithUs(*syscall.SysProcAttr) {}

package etcdtest

import "syscall"

// endWithUs has a child killed when this process is gone, however it ends.
func endWithUs(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

package vmlab

import "syscall"

// child makes an emulator end with the thread that starts it: nobody else would end it if
// this process was killed.
func child() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

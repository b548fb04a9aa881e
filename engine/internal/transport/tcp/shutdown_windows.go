package tcp

import "golang.org/x/sys/windows"

func shutdown(fd uintptr) { _ = windows.Shutdown(windows.Handle(fd), windows.SHUT_RDWR) }

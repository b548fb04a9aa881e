//go:build !linux

package session

import "net"

// Tune leaves sockets as they are: congestion control and timeouts are chosen per
// connection on Linux only.
func Tune(uintptr, bool) {}

func limitSilence(uintptr) {}

// bindInterface leaves the choice to the source address.
func bindInterface(uintptr, string) error { return nil }

func deferPort(uintptr) {}

func congestionControl(uintptr) string { return "" }

func delivered(net.Conn) (bytes uint64, all, ok bool) { return 0, false, false }

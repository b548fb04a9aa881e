//go:build !linux

package rdma

import "net/netip"

// routeFrom is not known here.
func routeFrom(gid, netip.Addr) (ok, known bool) { return false, false }

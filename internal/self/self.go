// Package self knows this process and this machine: what processor time it takes, and which addresses it has.
package self

import (
	"net"
	"net/netip"
	"slices"
)

// Address says whether an address belongs to this machine.
func Address(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	own, err := net.InterfaceAddrs()
	return a.IsLoopback() || err == nil && slices.ContainsFunc(own, func(x net.Addr) bool {
		p, err := netip.ParsePrefix(x.String())
		return err == nil && p.Addr().Unmap().WithZone("") == a
	})
}

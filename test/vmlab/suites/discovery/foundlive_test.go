//go:build vmlab && linux

package discovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// What is found of RDMA devices and interfaces. Captures have stand-ins for addresses.

func truth(b *bool) string {
	if b == nil {
		return "unknown"
	}
	return fmt.Sprint(*b)
}

func rdmaDevices(host *topo.Topology) []string {
	var out []string
	for i := range host.RDMADevices {
		d := &host.RDMADevices[i]
		line := fmt.Sprintf("%s at %s node %s netdevs %v software %v uverbs %s", d.Name, d.BDF, number(d.NUMA), d.Netdevs, d.Software, d.Uverbs)
		for j := range host.Ports {
			p := &host.Ports[j]
			if p.RDMA != d.ID {
				continue
			}
			line += fmt.Sprintf(" port %d %s %s netdevs %v", p.Number, p.State, p.LinkLayer, p.Netdevs)
			for _, g := range p.GIDs {
				line += fmt.Sprintf(" %s %s", g.Type, g.GID)
			}
		}
		out = append(out, line)
	}
	return out
}

func netdevs(host *topo.Topology) []string {
	var out []string
	for i := range host.Netdevs {
		n := &host.Netdevs[i]
		if n.Type == "loopback" {
			continue
		}
		line := fmt.Sprintf("%s at %s node %s driver %s mac %s mtu %s up %s carrier %s", n.Name, n.BDF, number(n.NUMA), n.Driver, n.MAC, number(n.MTU), truth(n.AdminUp), truth(n.Carrier))
		for _, a := range n.Addresses {
			if !strings.HasPrefix(a, "fe80") { // the kernel's own, which takes seconds to be there
				line += " " + a
			}
		}
		out = append(out, line)
	}
	return out
}

// classes are the relations of all GPUs and NICs, by the functions' addresses.
func classes(host *topo.Topology) []string {
	axis := append(host.MatrixAxis(topo.KindGPU), host.MatrixAxis(topo.KindRDMA)...)
	var out []string
	for _, a := range axis {
		for _, b := range axis {
			out = append(out, fmt.Sprintf("%s %s: %s", a, b, host.Relate(a, b).Class))
		}
	}
	slices.Sort(out)
	return out
}

package discovery

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// What discovery found, in the same lines as what was stated.

func number(n *int) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}

func numaNodes(host *topo.Topology) []string {
	var out []string
	for _, n := range host.NUMANodes {
		out = append(out, fmt.Sprintf("node %d cpus %s distances %v", n.Index, n.CPUs, n.Distances))
	}
	return out
}

func hostBridges(host *topo.Topology) []string {
	var out []string
	for _, b := range host.HostBridges {
		out = append(out, fmt.Sprintf("%04x:%02x node %s", b.Domain, b.Bus, number(b.NUMA)))
	}
	return out
}

// functions leaves out bus 0, which is the emulated chipset's.
func functions(host *topo.Topology) []string {
	var out []string
	for i := range host.PCIDevices {
		d := &host.PCIDevices[i]
		if strings.HasPrefix(d.BDF.String(), "0000:00:") {
			continue
		}
		out = append(out, fmt.Sprintf("%s %s below %s node %s", d.BDF, d.Role, strings.TrimPrefix(string(d.Parent), "pci:"), number(d.NUMA)))
	}
	return out
}

func switches(host *topo.Topology) []string {
	var out []string
	for _, s := range host.Switches {
		out = append(out, fmt.Sprintf("%s node %s ports %v", strings.TrimPrefix(string(s.Upstream), "pci:"), number(s.NUMA), s.Downstream))
	}
	return out
}

func gpus(host *topo.Topology) []string {
	var out []string
	for i := range host.GPUs {
		g := &host.GPUs[i]
		for j := range host.PCIDevices {
			if d := &host.PCIDevices[j]; d.ID == g.PCI {
				out = append(out, fmt.Sprintf("%d %s vendor %s %s device %s class %s subsystem %s %s node %s",
					g.Index, g.BDF, g.Vendor, d.Vendor, d.Device, d.Class, d.SubVendor, d.SubDevice, number(g.NUMA)))
			}
		}
	}
	return out
}

//go:build vmlab && linux

package discovery

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/test/vmlab"
)

func nics(m *vmlab.Machine) []vmlab.Function {
	var out []vmlab.Function
	for _, f := range m.Functions() {
		if f.NIC != nil {
			out = append(out, f)
		}
	}
	return out
}

// linkLocal is the GID that follows from a NIC's hardware address (RFC 4291, appendix A).
func linkLocal(host, rail int) string {
	return fmt.Sprintf("RoCE v2 fe80:0000:0000:0000:5054:00ff:fe00:%02x%02x", host, rail)
}

// gid is the one that follows from its IPv4 address.
func gid(host, rail int) string {
	return fmt.Sprintf("RoCE v2 0000:0000:0000:0000:0000:ffff:0a07:%02x%02x", rail, host)
}

func statedRDMA(m *vmlab.Machine, host int) []string {
	var out []string
	for _, f := range nics(m) {
		dev := vmlab.RailNetDev(f.NIC.Rail)
		out = append(out, fmt.Sprintf("%s at %s node %d netdevs [%s] software true uverbs rw port 1 ACTIVE Ethernet netdevs [%s] %s %s",
			vmlab.RDMADev(f.NIC.Rail), f.BDF, f.Node, dev, dev, linkLocal(host, f.NIC.Rail), gid(host, f.NIC.Rail)))
	}
	return out
}

func statedNetdevs(m *vmlab.Machine, host int) []string {
	line := "%s at %s node %v driver %s mac %s mtu %d up true carrier true %s/24"
	var out []string
	for _, f := range nics(m) {
		driver := "e1000e"
		if f.NIC.Model == vmlab.Virtio {
			driver = "virtio_net"
		}
		out = append(out, fmt.Sprintf(line, vmlab.RailNetDev(f.NIC.Rail), f.BDF, f.Node, driver,
			vmlab.MAC(host, f.NIC.Rail), f.NIC.MTU, vmlab.Address(host, f.NIC.Rail)))
	}
	if m.Management {
		const r = vmlab.ManagementRail
		out = append(out, fmt.Sprintf(line, vmlab.RailNetDev(r), "0000:00:1d.0", "unknown", "virtio_net",
			vmlab.MAC(host, r), 1500, vmlab.Address(host, r)))
	}
	return out
}

// statedFindings: the stand-ins have no driver, bridges of the emulator claim a link of
// the first generation, RDMA is software, and some MTUs are small. Broken is how
// TestFaults leaves the rails: 0 and 2 are down, 1 has no address, 3 is gone.
func statedFindings(m *vmlab.Machine, broken bool) []string {
	var gpus, bridges, devices, small, large []string
	for _, f := range m.Functions() {
		switch {
		case f.GPU != nil:
			gpus = append(gpus, fmt.Sprintf("gpu:%d", len(gpus)))
		case f.NIC == nil:
			if broken && abandoned(m, f.BDF) {
				continue
			}
			bridges = append(bridges, "pci:"+f.BDF)
		case broken && f.NIC.Rail == 3:
		default:
			devices = append(devices, "rdma:"+vmlab.RDMADev(f.NIC.Rail))
			if port := fmt.Sprintf("port:%s/1", vmlab.RDMADev(f.NIC.Rail)); f.NIC.MTU >= 4200 {
				large = append(large, port)
			} else if !broken || f.NIC.Rail == 1 {
				small = append(small, port)
			}
		}
	}
	slices.Sort(bridges)
	slices.Sort(devices)
	slices.Sort(small)
	out := []string{fmt.Sprintf("software-rdma %v", devices), "memlock []"}
	if len(gpus) > 0 { // links of bridges matter to GPUs and RDMA hardware, of which there is none else
		out = append(out, fmt.Sprintf("gpu-driver-missing %v", gpus), fmt.Sprintf("implausible-bridge-link %v", bridges))
	}
	if len(small) > 0 {
		out = append(out, fmt.Sprintf("mtu-small %v", small))
	}
	if len(small) > 0 && len(large) > 0 {
		all := append(slices.Clone(small), large...)
		slices.Sort(all)
		out = append(out, fmt.Sprintf("mtu-mismatch %v", all))
	}
	if broken {
		out = append(out, "port-down [port:rxe0/1]", "port-down [port:rxe2/1]", "gid-none-routable [port:rxe1/1]")
	}
	return out
}

// abandoned is whether a port has nothing below it but the NIC of rail 3.
func abandoned(m *vmlab.Machine, port string) bool {
	rail3 := false
	for _, f := range m.Functions() {
		if slices.Contains(f.Above, port) && f.NIC != nil && f.NIC.Rail == 3 && f.Above[len(f.Above)-1] == port {
			rail3 = true
		}
	}
	return rail3
}
